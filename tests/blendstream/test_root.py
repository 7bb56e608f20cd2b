"""One import root, `blendstream`: no other name is taken, and every tool sees all of it.

In a checkout the folders are at the top and `src/blendstream` holds links to them. Other ways to
say so to a build backend left mypy, coverage or the contracts with nothing to look at, silently.
"""

import json
import subprocess
import sys
from pathlib import Path

import grimp
import pytest
from mypy.fscache import FileSystemCache
from mypy.main import process_options

REPOSITORY = Path(__file__).parents[2]
FOLDERS = ("agents", "blender", "evaluation", "localclient", "streams")
FILES = [
    *(file for folder in FOLDERS for file in (REPOSITORY / folder).rglob("*.py")),
    *(REPOSITORY / "src/blendstream").glob("*.py"),
]


def modules() -> set[str]:
    """Every module that the folders hold, by the name under which it is imported."""
    places = [file.relative_to(REPOSITORY).with_suffix("").parts for file in FILES]
    kept = [place[2:] if place[0] == "src" else place for place in places]
    return {".".join(["blendstream", *(p for p in place if p != "__init__")]) for place in kept}


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_imported_by_its_own_name_says_the_right_one(folder):
    """`agents` is openai-agents' name: half of ours under it would fail far from the cause."""
    ended = subprocess.run(
        [sys.executable, "-c", f"import {folder}"],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert ended.returncode == 1
    assert f"ImportError: this folder is imported as blendstream.{folder}, got" in ended.stderr


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_link_of_a_folder_is_relative(folder):
    """An absolute one would lead into somebody else's checkout."""
    assert (REPOSITORY / "src/blendstream" / folder).readlink() == Path(f"../../{folder}")


def test_mypy_checks_every_module(monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    sources, options = process_options([], fscache=FileSystemCache())

    assert options.strict_equality
    assert modules() <= {source.module for source in sources}


def test_the_import_contracts_see_every_module():
    assert modules() == grimp.build_graph("blendstream", cache_dir=None).modules


def test_coverage_counts_every_module(tmp_path):
    """One that no test imports counts as not covered, rather than not at all."""
    coverage = [sys.executable, "-m", "coverage"]
    data = f"--data-file={tmp_path / 'data'}"
    for command in (
        ["run", data, "-m", "blendstream.agents.cli", "--version"],
        ["combine", "--quiet", data, str(tmp_path)],
        ["json", "--quiet", data, "-o", str(tmp_path / "report.json")],
    ):
        subprocess.run([*coverage, *command], cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL)
    counted = json.loads((tmp_path / "report.json").read_text())["files"]

    assert {str(file.relative_to(REPOSITORY)) for file in FILES} == set(counted)
