"""Wrap the prose of the pages, here and in docs/, at 100 characters.

Run `python docs/wrap.py` when the test of line lengths fails. It joins and wraps again each
paragraph or list item with a line that is too long and leaves every other line as it is. Tables,
code, headings and HTML are not prose. Every character counts, those of a link's address too; only
a line that is a single link may be longer. `code` is not broken: a test or a reader may search for
it.
"""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
PAGES = [
    *sorted(REPOSITORY.glob("*.md")),
    *sorted((REPOSITORY / "docs").rglob("*.md")),
]
WIDTH = 100

_ITEM = re.compile(r"(\s*)([-*+]|\d+[.)])\s+")
#: Keeps its neighbours on its line: part of a formula, or at a line's start no prose any more.
_GLUE = re.compile(r"[-+*<>=≤≥≈·×−%]+|[>#|~].*")
_NOT_PROSE = re.compile(r"\s*([|#]|<(?!https?:)|!\[)|    ")
_WORD = re.compile(r"(?:`[^`]*`|\S)+")
#: A line's only word: no place to break it.
_LINK = re.compile(r"(?:[-*+] +)?\(?\[\S+\]\(\S+\)\)?[.,;:]?")


def too_long(line: str) -> bool:
    """Whether this line of prose has more than `WIDTH` characters and can be broken."""
    return len(line) > WIDTH and not _LINK.fullmatch(line.strip())


def long_lines(page: str) -> list[str]:
    """Lines of prose that are too long."""
    return [line for lines, prose in _parts(page) if prose for line in lines if too_long(line)]


def wrapped(page: str) -> str:
    """The page, with every paragraph that has a line too long wrapped again."""
    lines: list[str] = []
    for part, prose in _parts(page):
        lines += _wrap(part) if prose and any(map(too_long, part)) else part
    return "\n".join(lines) + "\n"


def _parts(page: str) -> list[tuple[list[str], bool]]:
    """The page's lines, grouped into paragraphs and what is no prose."""
    parts: list[tuple[list[str], bool]] = []
    fenced = False
    paragraph = False
    for line in page.splitlines():
        fence = line.lstrip().startswith("```")
        item = _ITEM.match(line)
        prose = not (fenced or fence or not line.strip())
        if prose and not item and _NOT_PROSE.match(line) and not (paragraph and line[0] == " "):
            prose = False
        if prose and paragraph and not item:
            parts[-1][0].append(line)
        else:
            parts.append(([line], prose))
        paragraph = prose
        fenced ^= fence
    return parts


def _wrap(lines: list[str]) -> list[str]:
    item = _ITEM.match(lines[0])
    first = item[0] if item else re.match(r"\s*", lines[0])[0]  # type: ignore[index]
    text = " ".join(line.strip() for line in lines)
    if item:
        text = text[len(first.lstrip()) :]
    chunks: list[str] = []
    glued = False
    for word in _WORD.findall(text):
        glue = bool(_GLUE.fullmatch(word) or re.fullmatch(r"\d+[.)]", word))
        if chunks and (glue or glued):
            chunks[-1] += f" {word}"
        else:
            chunks.append(word)
        glued = bool(_GLUE.fullmatch(word))
    out, line = [], first + chunks[0]
    for chunk in chunks[1:]:
        if len(line) + 1 + len(chunk) <= WIDTH:
            line += f" {chunk}"
        else:
            out.append(line)
            line = " " * len(first) + chunk
    return [*out, line]


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(wrapped(path.read_text()))
