"""What the documents show is true: code runs, files exist, tests that are named are there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
README = (REPOSITORY / "README.md").read_text()
PAGES = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])
ROOTS = "agents|bench|blender|blendstream|deploy|docs|localclient|streams|tests|webclient"


def blocks(language: str, page: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """Every shell command of the README but the two that set everything up."""
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    return [line.partition("#")[0].strip() for line in lines if not line.startswith("make ")]


@pytest.mark.parametrize("code", blocks("python"))
def test_the_readmes_python_runs_and_says_what_it_should(code):
    """The first code that a reader copies."""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, check=False
    )

    assert ended.returncode == 0, ended.stderr
    found = re.fullmatch(r"tea: (0\.\d{3})\n", ended.stdout)
    assert found
    # 100 000 devices at ε = 4: a standard error is below 0.002, so this is 15 of them.
    assert abs(float(found[1]) - 0.6) < 0.03


def test_the_operators_python_says_how_many_records_to_ask_for():
    (code,) = blocks("python", (REPOSITORY / "docs/operations.md").read_text())
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, check=False
    )

    assert ended.returncode == 0, ended.stderr
    *tried, best = ended.stdout.splitlines()
    assert [re.search(r"user=(\d+), threshold=(\d+)", line).groups() for line in tried] == [
        ("1", "7"), ("2", "11"), ("5", "18"), ("10", "25")
    ]  # fmt: skip
    assert "records_per_user=10" in best


@pytest.mark.parametrize("command", commands())
def test_the_readmes_commands_run(command, tmp_path):
    """With the settings that the samples give."""
    words = command.split()
    assert words[0] == "blendstream"
    secrets = tmp_path / "secrets"
    secrets.write_text(f"2026-a={'00' * 32}\n")
    secrets.chmod(0o600)
    ended = subprocess.run(
        [sys.executable, "-m", "agents.cli", *words[1:]],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(REPOSITORY),
            "BLENDSTREAM_SETTINGS": str(REPOSITORY / "deploy/settings/basic.toml"),
            "BLENDSTREAM_KEYS_MASTER_SECRETS_FILE": str(secrets),
        },
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip()


def test_the_two_commands_that_set_everything_up_are_the_makefiles():
    """They are run from a fresh clone, by hand and before every change lands."""
    first = blocks("sh")[0]
    makefile = (REPOSITORY / "Makefile").read_text()

    assert re.findall(r"^make ([a-z-]+)", first, re.MULTILINE) == ["demo", "test"]
    for target in ("demo", "test"):
        assert re.search(rf"^{target}: .*setup", makefile, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_and_named_files_exist(page):
    """A page that points at nothing costs its reader's trust."""
    text = page.read_text()
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)(?:#[^)]*)?\)", text)
    missing = [link for link in links if not (page.parent / link).exists()]
    # `path/to/file.py`, with or without ::test_name.
    for path in re.findall(
        rf"`((?:{ROOTS})/[\w./-]+?\.(?:js|mjs|py|lua|toml|yaml|yml|json|md|txt))\b", text
    ):
        if not (REPOSITORY / path).exists():
            missing.append(path)

    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_tests_that_are_named_exist(page):
    """Whoever doubts a claim looks for its test."""
    defined = {
        name
        for file in (REPOSITORY / "tests").rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", file.read_text(), re.MULTILINE)
    }
    named = set(re.findall(r"`(?:[\w/.]+::)?(test_[a-z0-9_]+)`", page.read_text()))

    assert sorted(named - defined) == []


def test_versions_and_dates_agree():
    """A citation with a date says that there is a release; the changelog must know of it."""
    newest, when = re.findall(
        r"^## (\S+) \((\S+)\)$", (REPOSITORY / "CHANGELOG.md").read_text(), re.MULTILINE
    )[0]
    citation = (REPOSITORY / "CITATION.cff").read_text()
    released = re.findall(r"^date-released: (\S+)$", citation, re.MULTILINE)
    declared = re.search(
        r'^version = "(.+)"$', (REPOSITORY / "pyproject.toml").read_text(), re.MULTILINE
    )

    assert released == ([] if when == "unreleased" else [when])
    assert re.findall(r"^version: (\S+)$", citation, re.MULTILINE) == [newest]
    assert declared
    assert declared[1] == newest
    assert f"Version {newest}" in README
