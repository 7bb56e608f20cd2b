"""Reader of a gateway's public API into tidy data frames, with one row per estimate and epoch.

Promises: `share` (a proportion of people), `low`, `high` and `variance` are those of the group that
each publication prefers (`preferred`); in a `disputed` row they are one group's value and an
interval that spans both. Dates are in UTC; queries are text as published, even "null" or "007". ⋆,
everything that is not on the list, has no query and no URL (missing values).
Assumes: the server is a gateway. The reader requests published documents only.
"""

from __future__ import annotations

import io
import re
from typing import Any, Literal

import httpx

from blendstream.blender.values.errors import BlenderError
from blendstream.blender.values.record import normalise

try:
    import pandas as pd
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "reading results into data frames needs pandas; run: pip install 'blendstream[pandas]'",
        name="pandas",
    ) from error

__all__ = ["Results", "ResultsError"]

Table = Literal["records", "queries"]

#: Maximum number of epochs per request.
_PAGE = 100
#: Unlisted rows are neither disputed nor undisputed: the flag is missing there.
_KINDS = {
    "query": "string",
    "url": "string",
    "outcome": "string",
    "preferred": "string",
    "disputed": "boolean",
    "unlisted": "boolean",
    "at_least": "boolean",
}
_TEXTS = frozenset({"query", "url"})
_NEXT = re.compile(r'<([^>]+)>; rel="next"')


class ResultsError(BlenderError):
    """The gateway did not respond as expected, or has published nothing."""


class Results:
    """The published results of one service.

    Rows are ordered by epoch, then by proportion, highest first.
    """

    def __init__(self, server: str = "http://127.0.0.1:8080", *, timeout_s: float = 30.0) -> None:
        self._http = httpx.Client(base_url=server.rstrip("/"), timeout=timeout_s)

    def estimates(self, epoch: int | None = None) -> pd.DataFrame:
        """Read one epoch, by default the latest with results: a row per record (query and URL)."""
        return self._epoch(epoch, "records")

    def queries(self, epoch: int | None = None) -> pd.DataFrame:
        """Read one epoch, by default the latest with results: a row per query.

        `share` sums a query's listed results, `filtered_probability` all known ones. Where
        `at_least` is true, neither includes unknown results.
        """
        return self._epoch(epoch, "queries")

    def history(self, *queries: str, epochs: int = 30, table: Table = "queries") -> pd.DataFrame:
        """Read the latest epochs, oldest first, for these queries in any spelling, or for all.

        A query that was unknown in an epoch has no row there: too few people searched for it to
        publish a proportion. A query's estimates in an epoch cover the results known then: for a
        fixed set of results, sum those of `table="records"`.
        """
        wanted = [_as_published(query) for query in queries]
        path: str | None = (
            f"/v1/estimates?format=csv&table={table}&limit={max(1, min(epochs, _PAGE))}"
        )
        frames: list[pd.DataFrame] = []
        while path is not None and sum(frame["epoch"].nunique() for frame in frames) < epochs:
            response = self._get(path)
            frames.append(_frame(response.content))
            following = _NEXT.search(response.headers.get("link", ""))
            path = following[1] if following else None
        whole = pd.concat(frames, ignore_index=True)
        newest = sorted(whole["epoch"].unique())[-epochs:]
        whole = whole[whole["epoch"].isin(newest)]
        if wanted:
            whole = whole[whole["query"].isin(wanted)]
        return _ordered(whole)

    def epochs(self) -> pd.DataFrame:
        """Read recent epochs, oldest first: their dates, states and outcomes."""
        found = pd.DataFrame(self._get("/v1/epochs").json()["epochs"])
        if found.empty:
            return found
        return _dated(found).sort_values("epoch", ignore_index=True)

    def document(self, epoch: int | None = None) -> dict[str, Any]:
        """Read one epoch's publication unchanged, by default the latest with results."""
        which = "latest" if epoch is None else str(epoch)
        document: dict[str, Any] = self._get(f"/v1/estimates/{which}").json()
        return document

    def _epoch(self, epoch: int | None, table: Table) -> pd.DataFrame:
        which = "latest" if epoch is None else str(epoch)
        response = self._get(f"/v1/estimates/{which}?format=csv&table={table}")
        return _ordered(_frame(response.content))

    def _get(self, path: str) -> httpx.Response:
        try:
            response = self._http.get(path)
        except httpx.HTTPError as error:
            raise ResultsError(
                f"the gateway at {self._http.base_url} must respond, got {type(error).__name__}; "
                "is this its address, and does it run?"
            ) from error
        if response.status_code == 404:
            raise ResultsError("nothing is published there, or not yet; see `epochs()`")
        if response.status_code != 200:
            raise ResultsError(f"the gateway must respond with 200, got {response.status_code}")
        return response


def _as_published(query: str) -> str:
    """Normalise a query as the service does, which publishes "Weather Tomorrow" in lower case."""
    return normalise(query, "https://any.example/").query


def _frame(table: bytes) -> pd.DataFrame:
    """Parse a CSV table. Only an empty field is a missing value: "null" and "NA" are queries."""
    columns = table.partition(b"\r\n")[0].decode().split(",")
    frame = pd.read_csv(
        io.BytesIO(table),
        keep_default_na=False,
        na_values={column: [""] for column in columns},
        dtype={column: _KINDS[column] for column in columns if column in _KINDS},
    )
    for column in _TEXTS.intersection(columns):
        # Written in front of text that a spreadsheet would read as a formula (docs/api.md).
        frame[column] = frame[column].str.removeprefix("'")
    return _dated(frame)


def _dated(frame: pd.DataFrame) -> pd.DataFrame:
    """Convert seconds since 1970 to dates, and put the window's dates first."""
    for column in [name for name in frame.columns if name.endswith("_s")]:
        dates = pd.to_datetime(frame.pop(column), unit="s", utc=True)
        frame.insert(len(frame.columns), column.removesuffix("_s"), dates)
    first = ["epoch", "window_start", "window_end"]
    return frame[[*first, *(name for name in frame.columns if name not in first)]]


def _ordered(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.sort_values(
        ["epoch", "share"], ascending=[True, False], kind="stable", ignore_index=True
    )
