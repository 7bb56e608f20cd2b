"""Many epochs in one small document, for charts of how shares change.

A column for each number of an epoch, in place of a mapping for each record: `share`, `variance`,
`low` and `high` are those of the group that the publication says to read (`preferred`), and
`filtered` has the same four from all publications together. Behind the `listed` rows come those
that have `filtered` alone (`estimates_tables`). Numbers have five digits. Each epoch is made once
and kept, so that a request for many only puts pieces together.

Promises: made of one published document, and of nothing else.
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
    """Four numbers for each row; null where a number does not exist."""

    share: Column
    variance: Column
    low: Column
    high: Column


class EpochSeries(msgspec.Struct, frozen=True, omit_defaults=True):
    """One epoch, in columns of equal length: row i is `query[i]`, with `url[i]` of a record."""

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
    #: So many rows are listed; those behind them have `filtered` alone. Left out if all are.
    listed: int | None = None
    #: Only in the table of queries: true shares are at least these, results that are not known are
    #: not in them. Left out if they are complete.
    at_least: bool = False


_encode = msgspec.json.Encoder().encode


def series_piece(body: bytes, table: Table) -> bytes:
    """One document's part of a series, in the document's own order."""
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
