"""Local search and trends from a published result: on the device, without a network.

Paper: the two applications of Section 4, trend computation and local search.
Promises: no network; the client looks a person's query up in a file that everyone else has too.
Every number names its estimate.
Assumes: the file is a publication (`blendstream/estimates/2` or `/1`), as `GET
/v1/estimates/latest` returns it. Its writer may be hostile, so this module checks its numbers
before it ranks them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from blendstream.blender.values.errors import ParameterError
from blendstream.blender.values.record import normalise
from blendstream.streams.wire.estimates_document import (
    EstimatedCell,
    EstimatedQuery,
    EstimatedShare,
    EstimatesDocument,
)
from blendstream.streams.wire.head_list_document import MalformedDocument

__all__ = ["MAX_RESULT_BYTES", "MalformedDocument", "PublishedResult", "RankedQuery", "RankedUrl"]

Row = TypeVar("Row", "RankedUrl", "RankedQuery")
#: Probability, low, high, disputed, and which estimate.
_Shown = tuple[float, float, float, bool, str]

#: Maximum size of a publication, some 200 000 records: a server could fill a device otherwise.
MAX_RESULT_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RankedUrl:
    """A URL that people click for a query: P(record = ⟨q,u⟩) with its 95 % interval.

    - `disputed`: opt-in users and clients differ far more for this record than for others. The
      value is one group's, and may be wrong; the interval spans both groups'.
    - `estimate`: the number's name in the publication. "filtered" is computed from all remembered
      epochs, "blend" and "client" from this epoch alone.
    """

    url: str
    probability: float
    low: float
    high: float
    disputed: bool = False
    estimate: str = "blend"


@dataclass(frozen=True, slots=True)
class RankedQuery:
    """A query that people search for, over its known URLs, with its 95 % interval.

    - `at_least`: the number omits unknown URLs, so the true one may be larger. For "filtered" the
      known URLs are all that `search` finds, for one epoch alone those on its list.
    - `disputed`: one of the query's URLs is disputed.
    - `estimate`: as for a URL.
    """

    query: str
    probability: float
    low: float
    high: float
    disputed: bool = False
    estimate: str = "blend"
    at_least: bool = True


@dataclass(frozen=True, slots=True)
class PublishedResult:
    """One epoch's publication, ready to be searched."""

    epoch: int
    #: The estimate that is shown: "filtered" if the publication has one, otherwise the one that the
    #: publication prefers: "blend" or, if the groups disagree, "client". Each row also names its
    #: estimate, because a disputed row shows this epoch's own.
    read: str
    _urls: dict[str, tuple[RankedUrl, ...]]
    _queries: tuple[RankedQuery, ...]

    @classmethod
    def load(cls, source: str | Path | bytes, *, filtered: bool = True) -> PublishedResult:
        """Read a publication from a file or from its bytes, or raise `MalformedDocument`.

        `filtered=False` shows the estimates of this epoch alone.
        """
        data = source if isinstance(source, bytes) else _read(Path(source))
        if len(data) > MAX_RESULT_BYTES:
            raise MalformedDocument(f"a publication must be at most {MAX_RESULT_BYTES} bytes")
        document = EstimatesDocument.from_bytes(data)
        own = document.agreement.prefer if document.agreement else "blend"
        if own not in ("blend", "client"):
            raise MalformedDocument("a publication must prefer blend or client")
        over_time = document.filtered if filtered else None
        read = own if over_time is None else "filtered"
        urls: dict[str, list[RankedUrl]] = {}
        for cell in document.records:
            numbers = _numbers(cell, read, own)
            if numbers and isinstance(cell.query, str) and isinstance(cell.url, str):
                urls.setdefault(cell.query, []).append(RankedUrl(cell.url, *numbers))
        for row in () if over_time is None else over_time.unlisted:
            if numbers := _shown(row.filtered, "filtered", disputed=False):
                urls.setdefault(row.query, []).append(RankedUrl(row.url, *numbers))
        at_least = document.queries_at_least
        queries = [
            RankedQuery(query.query, *numbers, at_least=at_least)
            for query in document.queries
            if (numbers := _numbers(query, read, own)) and isinstance(query.query, str)
        ]
        for total in () if over_time is None else over_time.unlisted_queries:
            if numbers := _shown(total.filtered, "filtered", disputed=False):
                queries.append(RankedQuery(total.query, *numbers, at_least=at_least))
        return cls(
            document.epoch,
            read,
            {query: tuple(_ranked(clicked, by="url")) for query, clicked in urls.items()},
            tuple(_ranked(queries, by="query")),
        )

    @property
    def empty(self) -> bool:
        """Return True if no search can find anything; then keep the publication fetched before."""
        return not self._urls and not self._queries

    def search(self, query: str, limit: int | None = None) -> list[RankedUrl]:
        """Return the URLs clicked for this query, likeliest first; empty if it is not published."""
        wanted = _normalised(query)
        return list(self._urls.get(wanted, ()))[:limit]

    def complete(self, prefix: str, limit: int | None = None) -> list[RankedQuery]:
        """Return the published queries with this prefix, likeliest first.

        A blank after a word ends the word.
        """
        # A full stop at the end preserves the blank before it, and is then removed.
        start = _normalised(prefix + ".")[:-1]
        if not start and prefix.strip():
            return []
        return [row for row in self._queries if row.query.startswith(start)][:limit]

    def trends(self, n: int) -> list[RankedQuery]:
        """Return the n queries searched for most, likeliest first."""
        if n < 0:
            raise ParameterError(f"n must be at least 0, got n={n}")
        return list(self._queries[:n])


def _normalised(typed: str) -> str:
    """Return the query that this text normalises to; empty if it cannot be a query."""
    try:
        return normalise(typed, "any").query
    except ParameterError:
        return ""


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_RESULT_BYTES + 1)


def _numbers(row: EstimatedCell | EstimatedQuery, read: str, own: str) -> _Shown | None:
    """Return the figures to show of a row; for a disputed row those of this epoch alone.

    The interval of a disputed row spans both groups'. The filtered estimate ignores disputes, so it
    would hide this one.
    """
    over_time = row.filtered
    if read == "filtered" and not row.disputed and over_time and over_time.probability is not None:
        return _shown(over_time, read, disputed=False)
    return _shown(row.blend if own == "blend" else row.client, own, disputed=row.disputed)


def _shown(figure: EstimatedShare | None, estimate: str, *, disputed: bool) -> _Shown | None:
    if figure is None or figure.probability is None:
        return None
    numbers = (figure.probability, figure.low, figure.high)
    # Refuse NaN, infinity, and integers too large for a float.
    if any(isinstance(x, bool) or not isinstance(x, int | float) for x in numbers) or not all(
        x is not None and abs(x) < 1e300 for x in numbers
    ):
        raise MalformedDocument("a published probability and its interval must be finite numbers")
    probability, low, high = (float(x) for x in numbers if x is not None)
    return probability, low, high, disputed, estimate


def _ranked(rows: Iterable[Row], *, by: str) -> list[Row]:
    # Equal probabilities are ordered by text, so that every device shows the same order.
    return sorted(rows, key=lambda row: (-row.probability, getattr(row, by)))
