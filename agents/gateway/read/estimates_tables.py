"""A published document as tables, of records and of queries: what CSV and series are made of.

The rows of a document come first, in its own order. Behind them come rows that have `filtered`
alone, marked `unlisted`: records that are known, but that no one was asked about in this epoch, and
queries that have no other record. Nothing is computed here: a query's figure is the one that was
published.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

__all__ = ["TABLES", "EstimatesTables", "Table"]

Table = Literal["records", "queries"]
TABLES: tuple[Table, ...] = ("records", "queries")

Entry = dict[str, Any]


class _Filtered(msgspec.Struct):
    """What tables take of a document's `filtered`."""

    unlisted: list[msgspec.Raw]
    unlisted_queries: list[msgspec.Raw]


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
    reasons: list[str]
    queries_at_least: bool
    filtered: _Filtered | None

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
        if self.filtered is None:
            return listed, []
        more = self.filtered.unlisted if table == "records" else self.filtered.unlisted_queries
        return listed, [{**_decode_entry(raw), "unlisted": True} for raw in more]


_decode_document = msgspec.json.Decoder(EstimatesTables).decode
_decode_entry = msgspec.json.Decoder(Entry).decode
