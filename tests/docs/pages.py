"""What the tests of the documents share."""

import re
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


@cache
def defined_tests() -> set[str]:
    """The name of every test."""
    return {
        name
        for file in (REPOSITORY / "tests").rglob("test_*.py")
        for name in re.findall(r"^ *(?:async )?def (test_\w+)", file.read_text(), re.MULTILINE)
    }
