"""Encode published estimates as CSV, for spreadsheets and data frames.

One row per cell of an epoch, or per query.

- `share`, `low`, `high` and `variance` are those of the group that the publication prefers
  (`preferred`).
- ⋆ is an empty field, since no query or URL is empty; so is a number that does not exist.
- `blend` of a disputed record is one group's value, with an interval that spans both groups'.
- `filtered` estimates the same window from all publications together; the other groups are the
  epoch's own. Rows that have only `filtered` are marked `unlisted` (`estimates_tables`).
- `at_least` marks queries whose figure is a lower bound, because it excludes results that are not
  known.
- Text that a spreadsheet would interpret as a formula has an apostrophe in front (`text_cell`).
"""

from __future__ import annotations

import csv
import io

from blendstream.agents.gateway.read.estimates_tables import TABLES, EstimatesTables, Table

__all__ = ["COLUMNS", "csv_head", "csv_table", "text_cell"]

_FIGURES = ("probability", "variance", "low", "high")
_GROUPS = ("blend", "optin", "client", "filtered")
_ABOUT = ("epoch", "window_start_s", "window_end_s", "outcome")
_KEYS: dict[Table, tuple[str, ...]] = {"records": ("query", "url"), "queries": ("query",)}
_PREFERRED = ("share", "low", "high", "variance", "preferred")
_FURTHER: dict[Table, tuple[str, ...]] = {
    "records": ("optin_weight", "projected", "disputed", "unlisted"),
    "queries": ("optin_weight", "disputed", "unlisted", "at_least"),
}

COLUMNS: dict[Table, tuple[str, ...]] = {
    table: (
        *_ABOUT,
        *_KEYS[table],
        *_PREFERRED,
        *(f"{group}_{figure}" for group in _GROUPS for figure in _FIGURES),
        *_FURTHER[table],
    )
    for table in TABLES
}


def csv_head(table: Table) -> bytes:
    """Return the line that names the columns."""
    return ",".join(COLUMNS[table]).encode() + b"\r\n"


#: How a cell begins that a spreadsheet takes for a formula, or whose apostrophe must be doubled.
_ESCAPED = ("=", "+", "-", "@", "\t", "\r", "'")


def text_cell(text: str | None) -> str | None:
    """A query or URL as a cell: with an apostrophe before =, +, -, @, tab, CR or an apostrophe.

    Readers remove one apostrophe from the beginning, if there is one.

    >>> [text_cell(text) for text in ("=1+1", "tea", "'tis", "a=b", None)]
    ["'=1+1", 'tea', "''tis", 'a=b', None]
    """
    return f"'{text}" if text is not None and text.startswith(_ESCAPED) else text


def _shown(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


def csv_table(body: bytes, table: Table) -> bytes:
    """Return the header and one line per cell, or query, of a document, in its order."""
    document = EstimatesTables.of(body)
    text = io.StringIO(csv_head(table).decode(), newline="")
    text.seek(0, io.SEEK_END)
    rows = csv.writer(text, lineterminator="\r\n")
    about = [getattr(document, column) for column in _ABOUT]
    preferred = document.preferred
    listed, unlisted = document.rows(table)
    further = {"unlisted": False, "at_least": document.queries_at_least}
    for entry in ({**further, **entry} for entry in (*listed, *unlisted)):
        chosen = entry.get(preferred) or {}
        rows.writerow(
            [
                *about,
                *(text_cell(entry[key]) for key in _KEYS[table]),
                *(chosen.get(figure) for figure in ("probability", "low", "high", "variance")),
                None if entry["unlisted"] else preferred,
                *((entry.get(group) or {}).get(figure) for group in _GROUPS for figure in _FIGURES),
                *(_shown(entry.get(column)) for column in _FURTHER[table]),
            ]
        )
    return text.getvalue().encode()
