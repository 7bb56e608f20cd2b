"""Prose of the documents is wrapped, so that a change shows as the lines it changed."""

import runpy
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
WRAP = runpy.run_path(str(REPOSITORY / "docs" / "wrap.py"))


@pytest.mark.parametrize("page", WRAP["PAGES"], ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_no_line_of_prose_is_longer_than_100_characters(page):
    """`python docs/wrap.py` wraps what is too long."""
    assert WRAP["long_lines"](page.read_text()) == []


def test_prose_is_wrapped_and_tables_code_and_formulas_are_not():
    """Wrapping must change no meaning: a line that starts with `-` would begin a list."""
    prose = " ".join(["word"] * 18) + " with n - 1 users and ε = 4"
    row, code = f"| {prose} |", f"```\n{prose}\n```"
    page = f"# {prose}\n\n{row}\n\n{code}\n\n- {prose}\n  and more\n"

    assert WRAP["long_lines"](page) == [f"- {prose}"]
    wrapped = WRAP["wrapped"](page)
    assert wrapped.split() == page.split()
    assert wrapped.startswith(f"# {prose}\n\n{row}\n\n{code}\n\n- word")
    assert wrapped.endswith("\n  n - 1 users and ε = 4 and more\n")
    assert WRAP["long_lines"](wrapped) == []


def test_the_address_of_a_link_counts_unless_the_link_is_the_whole_line():
    """A diff shows the address; a line with one was up to 138 characters long."""
    link = f"[released](released-once.md#{'what-was-accepted-' * 5})"

    assert WRAP["long_lines"](f"It counts, see {link}.\n") == [f"It counts, see {link}."]
    assert WRAP["wrapped"](f"It counts, see {link}.\n") == f"It counts, see\n{link}.\n"
    assert WRAP["long_lines"](f"It counts, see\n{link}.\n") == []
