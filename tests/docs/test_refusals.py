"""Every reason for a refusal is documented, and every documented one exists."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest

from blendstream.agents.gateway.state.verdicts import Reason
from blendstream.agents.worker.halt_reasons import HaltReason
from blendstream.localclient import errors
from blendstream.localclient.exchange import ResultCode
from blendstream.streams.releases.entries import IncompleteReason
from blendstream.streams.tables.batch_verdict import Refusal
from tests.docs.pages import REPOSITORY

DOCS = REPOSITORY / "docs"
#: `code` or *outcome*, as the pages set them.
CODE, OUTCOME = r"`([a-z_]+)`", r"\*([a-z ]+)\*"
CLIENT_ERROR = r"`([A-Z]\w+)`"


def rows(page: str, first: str, header: str) -> list[list[str]]:
    """The cells of the table below the line that begins with `first`, by its header."""
    below = (DOCS / page).read_text().split(f"\n{first}", 1)[1]
    table = re.search(rf"^\| {re.escape(header)}.*\n\|[-:| ]+\n((?:\|.*\n)+)", below, re.MULTILINE)
    assert table, f"{page} must have a table `| {header} ...` below {first!r}"
    return [row.strip("|").split("|") for row in table[1].splitlines()]


def named(cells: Iterable[str], pattern: str) -> set[str]:
    """What the cells name in this way."""
    return {found for cell in cells for found in re.findall(pattern, cell)}


@pytest.mark.parametrize(
    ("page", "heading", "header", "columns", "pattern", "reasons"),
    [
        pytest.param(
            "api.md", "### Verdicts", "reason", (0,), CODE, set(Reason), id="gateway"
        ),
        pytest.param(
            "wire-format.md", "## What becomes of an entry", "client report", (1, 3), CODE,
            set(Refusal), id="worker",
        ),
        pytest.param(
            "runbook.md", "### PartitionHalted", "reason", (0,), CODE, set(HaltReason),
            id="stopped partition",
        ),
        pytest.param(
            "epochs.md", "**No epoch hangs.**", "reason", (0,), CODE, set(IncompleteReason),
            id="publication",
        ),
        pytest.param(
            "localclient.md", "## Outcomes", "outcome", (0,), OUTCOME, set(ResultCode),
            id="outcome in Python",
        ),
        pytest.param(
            "localclient.md", "## When it refuses", "exception", (0,), CLIENT_ERROR,
            set(errors.__all__) - {"ClientRefused"} | {"ParameterError", "MalformedDocument"},
            id="exception in Python",
        ),
    ],
)  # fmt: skip
def test_the_table_names_every_reason_and_no_other(
    page: str, heading: str, header: str, columns: tuple[int, ...], pattern: str, reasons: set[str]
) -> None:
    """A sender that is refused looks its reason up; one that cannot occur misleads."""
    table = rows(page, heading, header)

    assert named((row[column] for row in table for column in columns), pattern) == reasons


def test_the_browser_client_documents_every_outcome() -> None:
    """`ResultCode` of webclient/src/device.js, and what `record` returns."""
    source = (REPOSITORY / "webclient/src/device.js").read_text()
    types = re.findall(r"@typedef \{('sent'.*?)\} ResultCode", source, re.DOTALL)
    types += re.findall(r"Promise<\{code: ('kept'[^,]*),", source)
    outcomes = {word for text in types for word in re.findall(r"'([a-z ]+)'", text)}
    calls = [row[1] for row in rows("webclient.md", "", "call") if "`code`" in row[1]]

    assert len(types) == 2
    assert named(calls, OUTCOME) - {"status", "sent log"} == outcomes
