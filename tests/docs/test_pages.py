"""What the documents show is true: code runs, files exist, tests that are named are there."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from blendstream.streams.user_tokens import new_signing_key
from tests.docs.pages import REPOSITORY, defined_tests

README = (REPOSITORY / "README.md").read_text()
PAGES = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])
ROOTS = "agents|bench|blender|deploy|docs|evaluation|localclient|src|streams|tests|webclient"


def blocks(language: str, page: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def test_the_librarys_example_runs_and_says_what_it_should():
    """The first code that a reader of the paper copies."""
    (code,) = blocks("python", (REPOSITORY / "docs/paper.md").read_text())
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, check=False
    )

    assert ended.returncode == 0, ended.stderr
    found = re.fullmatch(r"tea: (0\.\d{3})\n", ended.stdout)
    assert found
    # 100 000 devices at ε = 4: a standard error is below 0.002, so this is 15 of them.
    assert abs(float(found[1]) - 0.6) < 0.03


def test_the_operators_python_says_how_many_records_to_ask_for():
    (code,) = blocks("python", (REPOSITORY / "docs/change-and-restore.md").read_text())
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, check=False
    )

    assert ended.returncode == 0, ended.stderr
    *tried, best = ended.stdout.splitlines()
    assert [re.search(r"user=(\d+), threshold=(\d+)", line).groups() for line in tried] == [
        ("1", "7"), ("2", "11"), ("5", "18"), ("10", "25")
    ]  # fmt: skip
    assert "records_per_user=10" in best


def test_the_apis_python_mints_a_token_that_gateways_take():
    """A backend in Python copies it."""
    (code,) = blocks("python", (REPOSITORY / "docs/api.md").read_text())
    names = {"key": new_signing_key("app", "app")[0], "user_id": "u-17"}
    exec(compile(code, "docs/api.md", "exec"), names)

    name, expires, *_ = names["token"].split(".")
    assert name == "app"
    assert 3_500 < int(expires) - time.time() <= 3_601


def test_the_two_commands_that_set_everything_up_are_the_makefiles():
    """They are run from a fresh clone, by hand and before every change lands."""
    first = blocks("sh")[0]
    makefile = (REPOSITORY / "Makefile").read_text()

    assert re.findall(r"^make ([a-z-]+)", first, re.MULTILINE) == ["demo", "test"]
    for target in ("demo", "test"):
        assert re.search(rf"^{target}: .*setup", makefile, re.MULTILINE)


def test_the_readme_is_short():
    """The first screen decides; everything else is a click away. Bars of tables are no words."""
    assert len([word for word in README.split() if word != "|"]) <= 1_200


def anchors(page: Path) -> set[str]:
    """Where a link into the page can lead: its headings, as Git servers and the site name them."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    plain = [re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_to_a_section_lead_to_one(page):
    """Otherwise the reader lands at the top of a long page and searches."""
    links = re.findall(r"\]\((?!https?:)([^)#\s]*)#([^)]+)\)", page.read_text())
    targets = [((page.parent / file).resolve() if file else page, anchor) for file, anchor in links]

    assert [f"{file.name}#{to}" for file, to in targets if to not in anchors(file)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_and_named_files_exist(page):
    """A page that points at nothing costs its reader's trust."""
    text = page.read_text()
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)(?:#[^)]*)?\)", text)
    links += re.findall(r'(?:src|srcset)="(?!https?:)([^"]+)"', text)
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
    """A reader who doubts a claim looks for its test."""
    named = set(re.findall(r"`(?:[\w/.]+::)?(test_[a-z0-9_]+)`", page.read_text()))

    assert sorted(named - defined_tests()) == []


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
    wheels = re.findall(r"blendstream-([\d.]+)-py3", (REPOSITORY / "docs/demo.md").read_text())
    assert wheels == [newest]
