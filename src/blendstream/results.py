"""Reads the public API of a gateway into tidy data frames: one row, one estimate of one epoch.

Promises: `share`, `low`, `high` and `variance` are those of the group that each publication says to
read (`preferred`); of a `disputed` row they are one group's value and an interval that spans both.
Dates are in UTC; a query is text as it was published, also one like "null" or "007". ⋆, everything
that is not on the list, has no query and no URL (missing values).
Assumes: the server is a gateway; nothing but published documents is asked for.
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

#: The most epochs that one request may ask for.
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
    """The gateway could not be asked, or has nothing to answer with."""


class Results:
    """What one service published.

    Rows are ordered by epoch, then most frequent first.
    """

    def __init__(self, server: str = "http://127.0.0.1:8080", *, timeout_s: float = 30.0) -> None:
        self._http = httpx.Client(base_url=server.rstrip("/"), timeout=timeout_s)

    def estimates(self, epoch: int | None = None) -> pd.DataFrame:
        """One epoch, by default the newest with results: a row for each record (query and URL)."""
        return self._epoch(epoch, "records")

    def queries(self, epoch: int | None = None) -> pd.DataFrame:
        """One epoch, by default the newest with results: a row for each query.

        `share` sums a query's listed results, `filtered_probability` all that are known. Where
        `at_least` is true, results that are not known are in neither.
        """
        return self._epoch(epoch, "queries")

    def history(self, *queries: str, epochs: int = 30, table: Table = "queries") -> pd.DataFrame:
        """The newest epochs, oldest first: of these queries, however they are typed, or of all.

        A query that was not known in an epoch has no row there: too few people searched for it to
        state a share. Of each epoch a query's figures are over the results that it knew: for one
        fixed set of results sum those of `table="records"`.
        """
        wanted = [_as_published(query) for query in queries]
        path: str | None = (
            f"/v1/estimates?format=csv&table={table}&limit={max(1, min(epochs, _PAGE))}"
        )
        frames: list[pd.DataFrame] = []
        while path is not None and sum(frame["epoch"].nunique() for frame in frames) < epochs:
            answer = self._ask(path)
            frames.append(_frame(answer.content))
            following = _NEXT.search(answer.headers.get("link", ""))
            path = following[1] if following else None
        whole = pd.concat(frames, ignore_index=True)
        newest = sorted(whole["epoch"].unique())[-epochs:]
        whole = whole[whole["epoch"].isin(newest)]
        if wanted:
            whole = whole[whole["query"].isin(wanted)]
        return _ordered(whole)

    def epochs(self) -> pd.DataFrame:
        """Recent epochs, oldest first: their dates, states and outcomes."""
        found = pd.DataFrame(self._ask("/v1/epochs").json()["epochs"])
        if found.empty:
            return found
        return _dated(found).sort_values("epoch", ignore_index=True)

    def document(self, epoch: int | None = None) -> dict[str, Any]:
        """One epoch's publication as it is, by default the newest with results."""
        which = "latest" if epoch is None else str(epoch)
        document: dict[str, Any] = self._ask(f"/v1/estimates/{which}").json()
        return document

    def _epoch(self, epoch: int | None, table: Table) -> pd.DataFrame:
        which = "latest" if epoch is None else str(epoch)
        answer = self._ask(f"/v1/estimates/{which}?format=csv&table={table}")
        return _ordered(_frame(answer.content))

    def _ask(self, path: str) -> httpx.Response:
        try:
            answer = self._http.get(path)
        except httpx.HTTPError as error:
            raise ResultsError(
                f"the gateway at {self._http.base_url} must answer, got {type(error).__name__}; "
                "is this its address, and does it run?"
            ) from error
        if answer.status_code == 404:
            raise ResultsError("nothing is published there, or not yet; see `epochs()`")
        if answer.status_code != 200:
            raise ResultsError(f"the gateway must answer 200, got {answer.status_code}")
        return answer


def _as_published(query: str) -> str:
    """Folded and trimmed as the service does, which publishes "Weather Tomorrow" in lower case."""
    return normalise(query, "https://any.example/").query


def _frame(table: bytes) -> pd.DataFrame:
    """A table of the API. Only an empty field is missing: "null" and "NA" are queries, too."""
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
    """Put the window's dates first, in place of seconds since 1970."""
    for column in [name for name in frame.columns if name.endswith("_s")]:
        dates = pd.to_datetime(frame.pop(column), unit="s", utc=True)
        frame.insert(len(frame.columns), column.removesuffix("_s"), dates)
    first = ["epoch", "window_start", "window_end"]
    return frame[[*first, *(name for name in frame.columns if name not in first)]]


def _ordered(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.sort_values(
        ["epoch", "share"], ascending=[True, False], kind="stable", ignore_index=True
    )
