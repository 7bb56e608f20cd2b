"""Count the files that a report passes, by docs/data-flow.md, and the jumps between them.

A jump is an import of one of these files by another: a place where a reader who follows the report
may have to open another file. Run `python docs/data_flow.py`.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
PAGE = REPOSITORY / "docs" / "data-flow.md"


def files_named(text: str) -> list[str]:
    """Every file that the text names in code style, in order."""
    return re.findall(r"`([\w/-]+\.(?:py|lua|html|md|toml))`", text)


def way_of_a_report(page: str) -> list[str]:
    """The files in the first column of the tables under "One report", each once."""
    section = page.partition("\n## One report")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^`]+`) \|", section, re.MULTILINE)
    return list(dict.fromkeys(files_named("\n".join(rows))))


def jumps(files: list[str]) -> list[tuple[str, str]]:
    """Which of these files imports which other one."""
    modules = {f"blendstream.{file.removesuffix('.py').replace('/', '.')}": file for file in files}
    return sorted(
        (file, modules[module])
        for file in files
        if file.endswith(".py")
        for module in _imported(REPOSITORY / file) & modules.keys()
    )


def _imported(path: Path) -> set[str]:
    """Modules that a file imports, and names that may be modules: `from package import module`."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


if __name__ == "__main__":
    passed = way_of_a_report(PAGE.read_text())
    lines = sum(len((REPOSITORY / file).read_text().splitlines()) for file in passed)
    print(f"a report passes {len(passed)} files of {lines} lines, with {len(jumps(passed))} jumps")
