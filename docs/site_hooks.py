"""What the site needs besides the pages: see mkdocs.yml.

Links to files of the repository that are no pages become plain text: a site has no such files.
Figures come in two colours and follow the site's switch, not only the reader's system.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent

_FIGURE = re.compile(
    r'<picture>\s*<source media="\(prefers-color-scheme: dark\)" srcset="([^"]+)"\s*/?>\s*'
    r'<img alt="([^"]*)" src="([^"]+)"[^>]*>\s*</picture>'
)
_LEAVES_DOCS = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?!decisions|evaluation)[A-Z][^)]*\)")
_ALERT = re.compile(r'<h3 id="([a-z]+)">([A-Z]\w+)')


def on_config(config: Any) -> Any:
    """List the decisions, by the first heading of each."""
    pages = sorted((DOCS / "decisions").glob("[0-9]*.md"))
    for section in config.nav:
        if "Decisions" in section:
            section["Decisions"] = [{title(page): f"decisions/{page.name}"} for page in pages]
    return config


def title(page: Path) -> str:
    """The number and the heading of a decision, whichever way the heading writes its number.

    >>> title(DOCS / "decisions" / "0001-one-set-of-cells.md")
    '0001 One set of cells for both groups'
    """
    heading = page.read_text().splitlines()[0]
    text = re.sub(r"^#\s*\d+[.:]?\s*", "", heading)
    return f"{page.name[:4]} {text[0].upper()}{text[1:]}"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links to README.md and other files above docs/ keep their text."""
    return _LEAVES_DOCS.sub(r"\1", markdown)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Figures in both colours; alerts are found by their names as they are spelled, too."""
    html = _FIGURE.sub(r'<img alt="\2" src="\3#only-light"><img alt="\2" src="\1#only-dark">', html)
    if page.file.src_uri == "runbook.md":
        html = _ALERT.sub(r'<span id="\2"></span><h3 id="\1">\2', html)
    return html
