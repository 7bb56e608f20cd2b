"""Decode a published document into tables of records and of queries, for CSV and series.

The rows of a document come first, in its order. After them come rows that have only `filtered`,
marked `unlisted`: records known from other epochs that are not on this epoch's list, and queries
that have no other record. All figures are the published ones; nothing is computed here.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

__all__ = ["TABLES", "EstimatesTables", "Table"]

Table = Literal["records", "queries"]
TABLES: tuple[Table, ...] = ("records", "queries")

Entry = dict[str, Any]


class _Filtered(msgspec.Struct):
    """The part of a document's `filtered` that tables use."""

    unlisted: list[msgspec.Raw]
    unlisted_queries: list[msgspec.Raw]


class EstimatesTables(msgspec.Struct):
    """The part of a document that tables use; its entries are decoded one by one.

    Decoding holds the interpreter's lock, during which the gateway serves no request.
    """

    epoch: int
    window_start_s: int
    window_end_s: int
    outcome: str
    agreement: dict[str, Any] | None
    records: list[msgspec.Raw]
    queries: list[msgspec.Raw]
    reasons: list[str]
    queries_at_least: bool
    filtered: _Filtered | None

    @staticmethod
    def of(body: bytes) -> EstimatesTables:
        """Decode a document's fields, leaving its entries as bytes."""
        return _decode_document(body)

    @property
    def preferred(self) -> str:
        """The group that the publication prefers."""
        return "blend" if self.agreement is None else str(self.agreement["prefer"])

    def rows(self, table: Table) -> tuple[list[Entry], list[Entry]]:
        """Return a table's listed rows, and the rows that have only a filtered figure."""
        listed = [_decode_entry(raw) for raw in getattr(self, table)]
        if self.filtered is None:
            return listed, []
        more = self.filtered.unlisted if table == "records" else self.filtered.unlisted_queries
        return listed, [{**_decode_entry(raw), "unlisted": True} for raw in more]


_decode_document = msgspec.json.Decoder(EstimatesTables).decode
_decode_entry = msgspec.json.Decoder(Entry).decode
