"""Published estimates as a table, for spreadsheets and data frames.

A row for each cell of an epoch, or for each query. `share`, `low`, `high` and `variance` are those
of the group that the publication says to read (`preferred`). ⋆ is an empty field, since no query
and no URL is empty; so is a number that does not exist. Of a disputed record `blend` is one group's
value, with an interval that spans both groups'; publications of version 1 do not say which are
disputed, so that this field is empty, too. `filtered` is what all publications together say of the
same window, the others are the epoch's own.

Behind them come rows that have `filtered` alone, marked `unlisted`: records that are known, but
that no one was asked about in this epoch, and queries that have no other record. Such a query's
figure is the sum of its records', as it is of a listed query.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Literal

import msgspec

from blender.intervals import Z_95

__all__ = ["COLUMNS", "TABLES", "Filtered", "Table", "csv_head", "csv_rows", "unlisted_entries"]

Table = Literal["records", "queries"]
TABLES: tuple[Table, ...] = ("records", "queries")

_FIGURES = ("probability", "variance", "low", "high")
_GROUPS = ("blend", "optin", "client", "filtered")
_ABOUT = ("epoch", "window_start_s", "window_end_s", "outcome")
_KEYS: dict[Table, tuple[str, ...]] = {"records": ("query", "url"), "queries": ("query",)}
_PREFERRED = ("share", "low", "high", "variance", "preferred")
_FURTHER: dict[Table, tuple[str, ...]] = {
    "records": ("optin_weight", "projected", "disputed", "unlisted"),
    "queries": ("optin_weight", "disputed", "unlisted"),
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
    """The line that names the columns."""
    return ",".join(COLUMNS[table]).encode() + b"\r\n"


class Filtered(msgspec.Struct):
    """What a table takes of a document's `filtered`."""

    unlisted: list[msgspec.Raw]


class _Document(msgspec.Struct):
    """What a table takes of a document; its entries are decoded one by one.

    Decoding keeps the interpreter's lock, and a gateway answers no one meanwhile.
    """

    epoch: int
    window_start_s: int
    window_end_s: int
    outcome: str
    agreement: dict[str, Any] | None
    records: list[msgspec.Raw]
    queries: list[msgspec.Raw]
    filtered: Filtered | None = None


_decode_document = msgspec.json.Decoder(_Document).decode
_decode_entry = msgspec.json.Decoder(dict[str, Any]).decode


def _shown(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


def csv_rows(body: bytes, table: Table) -> bytes:
    """A line for each cell, or query, of one document, in its own order."""
    document = _decode_document(body)
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\r\n")
    about = [getattr(document, column) for column in _ABOUT]
    preferred = "blend" if document.agreement is None else document.agreement["prefer"]
    listed = [
        {**_decode_entry(raw), "unlisted": False}
        for raw in (document.records if table == "records" else document.queries)
    ]
    names = {entry["query"] for entry in listed}
    for entry in (*listed, *unlisted_entries(document.filtered, table, names)):
        chosen = entry.get(preferred) or {}
        rows.writerow(
            [
                *about,
                *(entry[key] for key in _KEYS[table]),
                *(chosen.get(figure) for figure in ("probability", "low", "high", "variance")),
                None if entry["unlisted"] else preferred,
                *((entry.get(group) or {}).get(figure) for group in _GROUPS for figure in _FIGURES),
                *(_shown(entry.get(column)) for column in _FURTHER[table]),
            ]
        )
    return text.getvalue().encode()


def unlisted_entries(
    filtered: Filtered | None, table: Table, queries: Collection[str | None]
) -> Iterator[dict[str, Any]]:
    """Entries with a filtered figure alone: unlisted records, or queries that have no other.

    `queries` are those that have a row.
    """
    parts: dict[str, list[dict[str, float | None]]] = {}
    for raw in () if filtered is None else filtered.unlisted:
        entry = _decode_entry(raw)
        if table == "records":
            yield {**entry, "unlisted": True}
        elif entry["query"] not in queries:
            parts.setdefault(entry["query"], []).append(entry["filtered"])
    for query, figures in parts.items():
        yield {"query": query, "filtered": _sum(figures), "unlisted": True}


def _sum(figures: Sequence[dict[str, float | None]]) -> dict[str, float | None]:
    """Records move and are counted nearly independently: their variances add up."""
    if len(figures) == 1:
        return figures[0]
    p, v = (math.fsum(one[name] or 0.0 for one in figures) for name in ("probability", "variance"))
    reach = Z_95 * math.sqrt(v)
    return {
        "probability": p,
        "variance": v,
        "low": max(0.0, p - reach),
        "high": min(1.0, p + reach),
    }
