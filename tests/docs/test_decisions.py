"""Every decision is named by the module that it is about, and every link to one leads somewhere."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import REPOSITORY

DECISIONS = {path.name[:4]: path for path in (REPOSITORY / "docs/decisions").glob("*.md")}
MODULES = ("agents", "blender", "evaluation", "localclient", "streams", "webclient")
KINDS = {".py", ".md", ".js", ".toml", ".yml", ".yaml", ".conf", ".lua", ".html", ".css"}


def files_of(*folders: str) -> list[Path]:
    """Text files that the project wrote, below these folders."""
    return [
        path
        for folder in folders
        for path in sorted((REPOSITORY / folder).rglob("*"))
        if path.suffix in KINDS and "node_modules" not in path.parts and path.is_file()
    ]


TEXTS = [
    *sorted(REPOSITORY.glob("*.md")),
    REPOSITORY / "mkdocs.yml",
    *files_of(*MODULES, "bench", "deploy", "docs", "tests"),
    *(REPOSITORY / "src/blendstream").glob("*.py"),
]


def named_in(text: str) -> list[tuple[str, str]]:
    """Decisions that a text names: the number, and the rest of the file's name where it is given.

    >>> named_in("docs/decisions/0063, [0009](0009-a-sampler-of-our-own.md), decision 63")
    [('0063', ''), ('0009', '-a-sampler-of-our-own.md'), ('0063', '')]
    """
    found = re.findall(r"decisions/(\d{4})(-[\w-]+\.md)?", text)
    found += re.findall(r"\((\d{4})(-[a-z][\w-]+\.md)", text)
    return found + [(f"{int(n):04}", "") for n in re.findall(r"[Dd]ecision\s+(\d{1,4})\b", text)]


@cache
def named_by_modules() -> set[str]:
    """The numbers of decisions that any module names by file."""
    modules = [*files_of(*MODULES), *(REPOSITORY / "src/blendstream").glob("*.py")]
    return {n for path in modules for n in re.findall(r"decisions/(\d{4})", path.read_text())}


@pytest.mark.parametrize("number", sorted(DECISIONS))
def test_a_module_names_the_decision(number: str) -> None:
    """Who changes the code finds why it is as it is, and what would change our mind."""
    assert number in named_by_modules()


def test_every_link_to_a_decision_leads_to_one() -> None:
    lost = [
        f"{path.relative_to(REPOSITORY)}: {number}{rest}"
        for path in TEXTS
        for number, rest in named_in(path.read_text())
        if number not in DECISIONS or (rest and DECISIONS[number].name != number + rest)
    ]

    assert lost == []


def test_a_decision_says_what_would_change_our_mind() -> None:
    """One that only describes how it is now belongs to the page of its subject."""
    silent = [path.name for path in DECISIONS.values() if "ould change" not in path.read_text()]

    assert silent == []
