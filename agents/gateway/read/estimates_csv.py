"""Published estimates as a table: a row for each cell and epoch, for spreadsheets and data frames.

⋆ is an empty field, since no query and no URL is empty; so is a number that does not exist. Of a
disputed record `blend` is one group's value, with an interval that spans both groups'; publications
of version 1 do not say which are disputed, so that this field is empty, too.
"""

from __future__ import annotations

import csv
import io
from typing import Any

import msgspec

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
    "disputed",
)


def csv_head() -> bytes:
    """The line that names the columns."""
    return ",".join(COLUMNS).encode() + b"\r\n"


class _Document(msgspec.Struct):
    """What a table takes of a document; records are decoded one by one.

    Decoding keeps the interpreter's lock, and a gateway answers no one meanwhile.
    """

    epoch: int
    window_start_s: int
    window_end_s: int
    outcome: str
    records: list[msgspec.Raw]


_decode_document = msgspec.json.Decoder(_Document).decode
_decode_cell = msgspec.json.Decoder(dict[str, Any]).decode


def csv_rows(body: bytes) -> bytes:
    """A line for each cell of one document, in its own order."""
    document = _decode_document(body)
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\r\n")
    about = [getattr(document, column) for column in COLUMNS[:4]]
    for record in document.records:
        cell = _decode_cell(record)
        disputed = cell.get("disputed")
        figures = [(cell[group] or {}).get(figure) for group in _GROUPS for figure in _FIGURES]
        table.writerow(
            [
                *about,
                cell["query"],
                cell["url"],
                *figures,
                cell["optin_weight"],
                cell["projected"],
                None if disputed is None else str(disputed).lower(),
            ]
        )
    return text.getvalue().encode()
