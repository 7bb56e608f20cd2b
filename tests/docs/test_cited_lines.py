"""The lines of the papers' figures that comments cite are those of the table in docs/paper.md."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINES = r"lines? \d+(?: (?:to|and) \d+)?"
CITED = re.compile(rf"(Figure \d|Algorithm 1),\s+(?:#\s+)?({LINES})")


def citations() -> set[tuple[str, str]]:
    """(figure and lines, file name) of every citation in the algorithms."""
    return {
        (f"{figure}, {lines}", path.name)
        for path in (ROOT / "blender").rglob("*.py")
        if "evaluation" not in path.parts
        for figure, lines in CITED.findall(path.read_text())
    }


def test_every_cited_line_is_in_the_table_and_every_row_is_cited() -> None:
    """A researcher goes from the paper to the code by them; two once named the wrong line."""
    rows = re.findall(
        rf"^\| ((?:Figure \d|Algorithm 1), {LINES}) \|.*\| `[^`]*?([^/`]+\.py)` \|$",
        (ROOT / "docs/paper.md").read_text(),
        re.MULTILINE,
    )

    assert citations() == set(rows)
    assert len(rows) >= 15


def test_no_line_is_cited_without_its_figure() -> None:
    """`line 7` alone was how the wrong ones came about: nobody could check it."""
    for path in (ROOT / "blender").rglob("*.py"):
        text = CITED.sub("", path.read_text())
        assert not re.search(r"\b[Ll]ines? \d", text), path.name
