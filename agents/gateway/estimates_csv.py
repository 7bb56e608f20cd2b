"""Published estimates as a table: a row for each cell and epoch, for spreadsheets and data frames.

⋆ is an empty field, since no query and no URL is empty; so is a number that does not exist.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

__all__ = ["COLUMNS", "csv_head", "csv_rows"]

_FIGURES = ("probability", "variance", "low", "high")
_GROUPS = ("blend", "optin", "client")

COLUMNS = (
    "epoch",
    "window_start_s",
    "window_end_s",
    "outcome",
    "query",
    "url",
    *(f"{group}_{figure}" for group in _GROUPS for figure in _FIGURES),
    "optin_weight",
    "projected",
)


def csv_head() -> bytes:
    """The line that names the columns."""
    return ",".join(COLUMNS).encode() + b"\r\n"


def csv_rows(document: Mapping[str, Any]) -> bytes:
    """A line for each cell of one document, in its own order."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\r\n")
    about = [document[c] for c in COLUMNS[:4]]
    for cell in document["records"]:
        figures = [(cell[group] or {}).get(figure) for group in _GROUPS for figure in _FIGURES]
        table.writerow(
            [
                *about,
                cell["query"],
                cell["url"],
                *figures,
                cell["optin_weight"],
                cell["projected"],
            ]
        )
    return text.getvalue().encode()
