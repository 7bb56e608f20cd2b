"""A published document as tables, of records and of queries: what CSV and series are made of.

The rows of a document come first, in its own order. Behind them come rows that have `filtered`
alone, marked `unlisted`: records that are known, but that no one was asked about in this epoch, and
queries that have no other record. Such a query's figure is the sum of its records', as it is of a
listed query.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Literal

import msgspec

from blender.intervals import Z_95

__all__ = ["TABLES", "EstimatesTables", "Table"]

Table = Literal["records", "queries"]
TABLES: tuple[Table, ...] = ("records", "queries")

Entry = dict[str, Any]


class _Filtered(msgspec.Struct):
    """What tables take of a document's `filtered`."""

    unlisted: list[msgspec.Raw]


class EstimatesTables(msgspec.Struct):
    """What tables take of a document; its entries are decoded one by one.

    Decoding keeps the interpreter's lock, and a gateway answers no one meanwhile.
    """

    epoch: int
    window_start_s: int
    window_end_s: int
    outcome: str
    agreement: dict[str, Any] | None
    records: list[msgspec.Raw]
    queries: list[msgspec.Raw]
    reasons: list[str] = []
    filtered: _Filtered | None = None

    @staticmethod
    def of(body: bytes) -> EstimatesTables:
        """The document's head, with its entries as bytes."""
        return _decode_document(body)

    @property
    def preferred(self) -> str:
        """The group that the publication says to read."""
        return "blend" if self.agreement is None else str(self.agreement["prefer"])

    def rows(self, table: Table) -> tuple[list[Entry], list[Entry]]:
        """A table's listed rows, and those that have a filtered figure alone."""
        listed = [_decode_entry(raw) for raw in getattr(self, table)]
        return listed, list(self._unlisted(table, {entry["query"] for entry in listed}))

    def _unlisted(self, table: Table, queries: Collection[str | None]) -> Iterator[Entry]:
        """Unlisted records, or queries that have no other; `queries` are those that have a row."""
        parts: dict[str, list[dict[str, float | None]]] = {}
        for raw in () if self.filtered is None else self.filtered.unlisted:
            entry = _decode_entry(raw)
            if table == "records":
                yield {**entry, "unlisted": True}
            elif entry["query"] not in queries:
                parts.setdefault(entry["query"], []).append(entry["filtered"])
        for query, figures in parts.items():
            yield {"query": query, "filtered": _sum(figures), "unlisted": True}


_decode_document = msgspec.json.Decoder(EstimatesTables).decode
_decode_entry = msgspec.json.Decoder(Entry).decode


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
