"""Plant known faults in a copy of the tree, one at a time, and name those that no test catches.

    python -m tests.mutants                all of them; `make mutants`
    python -m tests.mutants lease token    those whose description has one of these words

Faults of the service must fail the test that they name. Misreadings of the device protocol are
planted in each of the two clients, which must then fail the vector that they name.
Nothing is planted in this tree: each of two workers has its own copy in a temporary folder. Exits 1
if a fault survives, and 2 if the list does not fit the code or a test fails without any fault.
"""

from __future__ import annotations

import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.misreadings import MISREADINGS, Misreading
from tests.mutants.planted_faults import FAULTS, Fault

REPOSITORY = Path(__file__).parents[2]
WORKERS = 2
#: Folders whose code is not the product's.
_ELSEWHERE = ("tests", "bench", "docs", "deploy")
_MADE = (("webclient", "lib"), ("webclient", "extension"))
#: Without plugins that leave files behind or take seconds to load.
_LIGHT = ("-p", "no:cacheprovider", "-p", "no:schemathesis")
_PLAY = (sys.executable, "tests/vectors/device/play.py")
#: Both clients, as programs that play.py runs.
CLIENTS = {
    "python": (sys.executable, "-m", "tests.vectors.device.clients.localclient"),
    "javascript": ("node", "tests/vectors/device/clients/webclient.mjs"),
}
#: Exit codes of pytest and of play.py. Others mean that nothing could be imported or found.
_PASSED, _FAILED = 0, 1


def tracked_files() -> list[Path]:
    """Files of the working tree that are, or are about to be, in the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    return [Path(name) for name in listed if os.path.lexists(REPOSITORY / name)]


def place_of(right: str, suffixes: Sequence[str], files: Sequence[Path]) -> Path:
    """Return the only file of the product's code that has this text, and has it once."""
    code = [
        file
        for file in files
        if file.suffix in suffixes and file.parts[0] not in _ELSEWHERE
        if file.parts[:2] not in _MADE
        if not any((REPOSITORY / part).is_symlink() for part in (file, *file.parents))
    ]
    found = {file: (REPOSITORY / file).read_text().count(right) for file in code}
    places = [file for file, times in found.items() for _ in range(times)]
    if len(places) != 1:
        raise LookupError(f"the text of a fault must occur once in the code, got {places}: {right}")
    return places[0]


def catcher_of(fault: Fault, files: Sequence[Path]) -> str:
    """Return pytest's name of the test that must catch the fault."""
    defined = re.compile(rf"^\s*(async )?def {re.escape(fault.test)}\(", re.MULTILINE)
    named = [file for file in files if file.parts[0] == "tests" and file.name == fault.file]
    having = [file for file in named if defined.search((REPOSITORY / file).read_text())]
    if len(having) != 1:
        raise LookupError(f"one file {fault.file} must define {fault.test}, got {having}")
    return f"{having[0]}::{fault.test}"


def copy_tree(files: Sequence[Path], folder: Path) -> None:
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(REPOSITORY / file, folder / file, follow_symlinks=False)


def run(folder: Path, command: Sequence[str]) -> tuple[int, str]:
    """Run a command on the copy's code; return its exit code and its output."""
    # Before the path on which an editable install finds this tree.
    path = os.pathsep.join([str(folder / "src"), str(folder)])
    ended = subprocess.run(
        command, cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return ended.returncode, ended.stdout + ended.stderr


def run_tests(tests: Sequence[str]) -> tuple[str, ...]:
    return (sys.executable, "-m", "pytest", "-q", "-x", *_LIGHT, *tests)


def play_vectors(vectors: Sequence[str], client: str) -> tuple[str, ...]:
    return (*_PLAY, *vectors, "--", *CLIENTS[client])


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault, the file that it is planted in, and the command that must notice it."""

    what: str
    right: str
    wrong: str
    place: Path
    catcher: str
    command: tuple[str, ...]

    def run_in(self, folder: Path) -> tuple[int, str]:
        """Plant the fault in this copy, run its test, and put the right text back."""
        file = folder / self.place
        right = file.read_text()
        file.write_text(right.replace(self.right, self.wrong))
        try:
            return run(folder, self.command)
        finally:
            file.write_text(right)


def plan_fault(fault: Fault, files: Sequence[Path]) -> Planned:
    test = catcher_of(fault, files)
    place = place_of(fault.right, (".py", ".lua"), files)
    return Planned(fault.what, fault.right, fault.wrong, place, test, run_tests([test]))


def plan_misreading(misreading: Misreading, client: str, files: Sequence[Path]) -> Planned:
    right, wrong = getattr(misreading, client)
    place = place_of(right, (".py",) if client == "python" else (".js",), files)
    command = play_vectors([misreading.vector], client)
    return Planned(f"{client}: {misreading.what}", right, wrong, place, misreading.vector, command)


def plan(words: Sequence[str], files: Sequence[Path]) -> tuple[list[Planned], list[Sequence[str]]]:
    """What is planted, and the commands that must pass without any fault."""

    def chosen(what: str) -> bool:
        return not words or any(word in what for word in words)

    faults = [plan_fault(fault, files) for fault in FAULTS if chosen(fault.what)]
    commands: list[Sequence[str]] = []
    if faults:
        commands.append(run_tests(sorted({fault.catcher for fault in faults})))
    misread = [one for one in MISREADINGS if chosen(one.what)]
    planned = [plan_misreading(one, client, files) for client in CLIENTS for one in misread]
    if misread:
        vectors = sorted({one.vector for one in misread})
        commands += [play_vectors(vectors, client) for client in CLIENTS]
    return [*faults, *planned], commands


def main(words: Sequence[str]) -> int:
    files, began = tracked_files(), time.monotonic()
    try:
        planned, commands = plan(words, files)
    except LookupError as error:
        print(error, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="mutants-") as temporary:
        # Everything below happens in the copies: this tree may be edited meanwhile.
        copies: queue.Queue[Path] = queue.Queue()
        for number in range(WORKERS):
            copy_tree(files, folder := Path(temporary, str(number)))
            copies.put(folder)
        for command in commands:
            code, said = run(folder, command)
            if code != _PASSED:
                print(f"{said}\nThis must pass without any fault.", file=sys.stderr)
                return 2

        def run_somewhere(one: Planned) -> tuple[int, str]:
            folder = copies.get()
            try:
                return one.run_in(folder)
            finally:
                copies.put(folder)

        codes = []
        with ThreadPoolExecutor(WORKERS) as workers:
            for one, (code, said) in zip(planned, workers.map(run_somewhere, planned), strict=True):
                verdict = {_PASSED: "SURVIVED", _FAILED: "caught"}.get(code, "BROKEN")
                print(f"{verdict:9}{one.what}\n         {one.catcher}", flush=True)
                if verdict == "BROKEN":
                    print(said, file=sys.stderr)
                codes.append(code)
    print(f"{codes.count(_FAILED)} of {len(codes)} caught in {time.monotonic() - began:.0f} s")
    return 2 if set(codes) - {_PASSED, _FAILED} else int(_PASSED in codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
