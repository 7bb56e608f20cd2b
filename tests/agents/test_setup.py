"""A fresh machine gets what it needs, or is told what is missing."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

pytestmark = pytest.mark.long

REPOSITORY = Path(__file__).parents[2]


def run_on_a_bare_machine(
    tmp_path: Path, cache: Path, *what: str
) -> subprocess.CompletedProcess[str]:
    """Run the script where nothing is installed and nothing may be."""
    for name in ("sh", "sed", "tr"):
        os.symlink(shutil.which(name) or name, tmp_path / name)
    (tmp_path / "id").write_text("#!/bin/sh\necho 1000\n")
    (tmp_path / "id").chmod(0o755)
    return subprocess.run(
        [REPOSITORY / "deploy/setup/system-packages", sys.executable, *what],
        env={
            "PATH": str(tmp_path),
            "SBIN": str(tmp_path),
            "XDG_CACHE_HOME": str(cache),
            "PYTHONPATH": f"{REPOSITORY}/src:{REPOSITORY}",
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_where_nothing_may_be_installed_the_missing_is_named_with_how_to_get_it(tmp_path):
    """`make test` must not fail later with something that nobody understands."""
    ended = run_on_a_bare_machine(tmp_path, tmp_path / "empty")

    assert ended.returncode == 1
    assert "maven (mvn: fetches Kafka's jars)" in ended.stderr
    assert "chromium (chromium: looks at the pages)" in ended.stderr
    assert "spin (spin: checks the model of a release)" in ended.stderr
    assert "nginx (nginx: is the edge in front of the gateway)" in ended.stderr
    wanted = "maven chromium prometheus nginx spin gcc libc6-dev"
    assert f"sudo apt-get install {wanted}" in ended.stderr


def test_with_the_jars_in_the_cache_nothing_is_missing_for_the_demo(tmp_path, monkeypatch):
    """Java and Redis come from pip; only fetching the jars needs Maven."""
    from blendstream.agents.local.jars import jars_folder

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    jars_folder().mkdir(parents=True)

    assert run_on_a_bare_machine(tmp_path, tmp_path / "cache", "demo").returncode == 0


def make_with_a_python(tmp_path: Path, version: str, *what: str) -> str:
    """What `make` prints where the only Python is `python3`, of that version."""
    for name in ("sh", "make", "echo"):
        os.symlink(shutil.which(name) or name, tmp_path / name)
    pretend = f"import sys; sys.version_info = ({version}); exec(sys.argv[1])"
    (tmp_path / "python3").write_text(f"#!/bin/sh\nexec {sys.executable} -c '{pretend}' \"$2\"\n")
    (tmp_path / "python3").chmod(0o755)
    ended = subprocess.run(
        ["make", *what, "INSTALLED=not-there", "--eval", "found: ; @echo $(PYTHON)"],
        cwd=REPOSITORY,
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.stdout


@pytest.mark.parametrize("version", ["3, 11", "3, 13", "3, 14"])
def test_any_python_from_3_11_on_is_taken(tmp_path, version):
    """Debian 13, Ubuntu 26.04, Fedora and Homebrew have 3.13 or 3.14 as their only one."""
    assert make_with_a_python(tmp_path, version, "found") == "python3\n"


def test_an_older_python_is_refused_with_what_to_install(tmp_path):
    said = make_with_a_python(tmp_path, "3, 10", "setup")
    assert "Python 3.11 or newer" in said
    assert "apt-get install python3-venv" in said
    assert "make PYTHON=" in said


def test_the_lock_holds_every_dependency_by_hash_and_names_no_index():
    """What is not locked differs from machine to machine; an address would bind it to one."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    lock = (REPOSITORY / "requirements.lock").read_text()
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(need for extra in extras for need in extras[extra])]
    locked = set(re.findall(r"^([a-z0-9._-]+)==", lock, flags=re.MULTILINE))

    names = {re.split(r"[<>=\[; ]", need)[0].lower() for need in wanted}
    assert names - {project["name"]} <= locked  # an extra may name another of ours
    assert all("--hash=sha256:" in block for block in re.split(r"\n(?=[a-z0-9])", lock)[1:])
    assert "://" not in lock


def test_versions_are_bounded_where_private_parts_are_used_and_admit_the_lock():
    """A minor version may move what is private; an install without the lock would take it."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    needs = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    wanted = {need.name: need.specifier for need in map(Requirement, needs)}
    for name in ("aiokafka", "confluent-kafka", "faust-streaming"):
        assert any(bound.operator == "<" for bound in wanted[name]), name

    for lock in ("requirements.lock", "deploy/container/requirements-server.lock"):
        text = (REPOSITORY / lock).read_text()
        locked = dict(re.findall(r"^([a-z0-9._-]+)==([^ ;]+)", text, flags=re.MULTILINE))
        assert {name for name in wanted if name in locked} >= {"aiokafka", "uvicorn"}
        for name, version in locked.items():
            assert wanted.get(name, SpecifierSet()).contains(version), (lock, name, version)
