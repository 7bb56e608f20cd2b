"""Encode estimates as a series: many epochs in one small document, for charts over time.

Each number of an epoch is a column: `share`, `variance`, `low` and `high` are those of the group
that the publication prefers, and `filtered` has the same four from all publications together.
After the `listed` rows come those that have only `filtered` (`estimates_tables`). Numbers are
rounded to five digits. Each epoch is encoded once and cached, so a request concatenates pieces.

Promises: a piece is computed from one published document only.
"""

from __future__ import annotations

import msgspec

from blendstream.agents.gateway.http.request_types import EpochNumber
from blendstream.agents.gateway.read.estimates_tables import EstimatesTables, Table

__all__ = ["SCHEMA", "EpochSeries", "SeriesColumns", "series_piece"]

SCHEMA = "blendstream/series/1"
_FIGURES = {"share": "probability", "variance": "variance", "low": "low", "high": "high"}

Column = list[float | None]


class SeriesColumns(msgspec.Struct, frozen=True):
    """Four numbers per row; null where a number does not exist."""

    share: Column
    variance: Column
    low: Column
    high: Column


class EpochSeries(msgspec.Struct, frozen=True, omit_defaults=True):
    """One epoch in columns of equal length: row i is `query[i]`, or record `query[i], url[i]`."""

    epoch: EpochNumber
    window_start_s: int
    window_end_s: int
    outcome: str
    preferred: str
    query: list[str | None]
    share: Column
    variance: Column
    low: Column
    high: Column
    #: Only in the table of records. Null is ⋆.
    url: list[str | None] | None = None
    reasons: list[str] = []
    #: Row numbers of disputed rows, whose interval spans both groups'.
    disputed: list[int] = []
    filtered: SeriesColumns | None = None
    #: Number of listed rows; the rows after them have only `filtered`. Omitted if all are listed.
    listed: int | None = None
    #: Only in the table of queries: shares are lower bounds, because they exclude results that are
    #: not known. Omitted if they are complete.
    at_least: bool = False


_encode = msgspec.json.Encoder().encode


def series_piece(body: bytes, table: Table) -> bytes:
    """Return one document's part of a series, in the document's order, as JSON."""
    document = EstimatesTables.of(body)
    preferred = document.preferred
    own: dict[str, Column] = {name: [] for name in _FIGURES}
    together: dict[str, Column] = {name: [] for name in _FIGURES}
    names: dict[str, list[str | None]] = {"query": [], "url": []}
    disputed, is_filtered = [], False
    listed, unlisted = document.rows(table)
    for place, entry in enumerate((*listed, *unlisted)):
        for key, column in names.items():
            column.append(entry.get(key))
        filtered = entry.get("filtered")
        is_filtered = is_filtered or filtered is not None
        for name, figure in _FIGURES.items():
            own[name].append(_short((entry.get(preferred) or {}).get(figure)))
            together[name].append(_short((filtered or {}).get(figure)))
        if entry.get("disputed"):
            disputed.append(place)
    return _encode(
        EpochSeries(
            epoch=document.epoch,
            window_start_s=document.window_start_s,
            window_end_s=document.window_end_s,
            outcome=document.outcome,
            reasons=document.reasons,
            preferred=preferred,
            query=names["query"],
            url=names["url"] if table == "records" else None,
            disputed=disputed,
            filtered=SeriesColumns(**together) if is_filtered else None,
            listed=len(listed) if unlisted else None,
            at_least=table == "queries" and document.queries_at_least,
            **own,
        )
    )


def _short(number: float | None) -> float | None:
    return None if number is None else float(f"{number:.5g}")
