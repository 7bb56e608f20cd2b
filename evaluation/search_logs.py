"""Read a search log (user, query, clicked URL, time) and draw one record per user from the clicks.

Formats: the AOL release's (tab-separated `AnonID, Query, QueryTime, ItemRank, ClickURL` with that
header) and any TSV or CSV with a header that names its columns; each gzipped or not. Concatenated
files may repeat the header.

Promises:
- A user's m_O records are a uniform draw from the user's clicks without replacement. The first of
  them, which counts as the user's one record, is a uniform draw too.
- The same file and seed give the same draw.
- Rows without a click and malformed rows are counted and are not errors; the first malformed ones
  have line numbers. No message contains a cell's text.
Memory: grows with users, not with rows (reservoir sampling, Vitter's Algorithm R).
Symbols: m_O = records_per_user.
"""

from __future__ import annotations

import csv
import gzip
import io
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from blendstream.blender.values.errors import ParameterError
from blendstream.blender.values.record import (
    MAX_QUERY_BYTES,
    MAX_URL_BYTES,
    Record,
    normalise,
)
from blendstream.evaluation.progress import ProgressBar

__all__ = [
    "AOL_COLUMNS",
    "PLAIN_COLUMNS",
    "Click",
    "DrawnLog",
    "LogColumns",
    "LogTally",
    "draw_records_of_users",
    "read_clicks",
    "record_of",
]

#: A user's id is a key in memory; a longer one is probably a broken line.
MAX_USER_CHARACTERS = 256
#: The rest of a longer line is discarded: a file without line ends must not fill the memory. This
#: limit is above the CSV reader's for a field (131 072), which ends a quote that is never closed.
MAX_LINE_CHARACTERS = 262_144
#: The number of malformed rows that a report lists with line numbers.
REPORTED_LINES = 5


class LogColumns(NamedTuple):
    """The names of the columns in a log's header; `time` may be absent."""

    user: str
    query: str
    url: str
    time: str = ""


AOL_COLUMNS = LogColumns("AnonID", "Query", "ClickURL", "QueryTime")
PLAIN_COLUMNS = LogColumns("user", "query", "url", "time")


@dataclass(slots=True)
class LogTally:
    """Counts of a log's rows: clicks, rows without a click, malformed rows."""

    clicks: int = 0
    without_click: int = 0
    malformed: int = 0
    users: int = 0
    #: The first malformed rows: line number and reason, never text.
    first_malformed: list[tuple[int, str]] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Return the number of rows, without headers and blank lines."""
        return self.clicks + self.without_click + self.malformed

    def add_malformed(self, line: int, reason: str) -> None:
        """Count a malformed row, and store the first few with their line numbers."""
        self.malformed += 1
        if len(self.first_malformed) < REPORTED_LINES:
            self.first_malformed.append((line, reason))

    def describe(self) -> str:
        """Return a summary in one line.

        >>> LogTally(clicks=5, without_click=2, malformed=1, users=3,
        ...          first_malformed=[(4, "its query must not be empty")]).describe()
        '8 rows: 5 clicks of 3 users; skipped: 2 rows without a click, 1 malformed (line 4: its \
query must not be empty)'
        """
        lines = "; ".join(f"line {line}: {reason}" for line, reason in self.first_malformed)
        more = "; ..." if self.malformed > len(self.first_malformed) else ""
        return (
            f"{_grouped(self.rows)} rows: {_grouped(self.clicks)} clicks of "
            f"{_grouped(self.users)} users; skipped: {_grouped(self.without_click)} rows without a "
            f"click, {_grouped(self.malformed)} malformed" + (f" ({lines}{more})" if lines else "")
        )


class Click(NamedTuple):
    """One row with a click. `text` is the normalised record, `query<TAB>url`."""

    user: str
    text: str
    #: Seconds since 1970; 0 if the caller did not request times.
    time_s: float


@dataclass(frozen=True, slots=True)
class DrawnLog:
    """The drawn records: `texts[slot][user]`, `None` where a user has fewer clicks than slots."""

    texts: list[list[str | None]]
    tally: LogTally


def record_of(text: str) -> Record:
    """Split a click's text; neither part can contain a tab after normalising."""
    query, _, url = text.partition("\t")
    return Record(query, url)


def draw_records_of_users(
    path: Path,
    columns: LogColumns | None = None,
    *,
    records_per_user: int = 1,
    seed: int = 1,
) -> DrawnLog:
    """Read the log once and draw each user's records."""
    tally = LogTally()
    uniform = _uniforms(np.random.default_rng([seed, 0x10C]))
    number: dict[str, int] = {}
    seen: list[int] = []
    texts: list[list[str | None]] = [[] for _ in range(records_per_user)]
    first, *others = texts
    for user, text, _ in read_clicks(path, columns, tally):
        place = number.setdefault(user, len(seen))
        if place == len(seen):
            seen.append(1)
            first.append(text)
            for slot in others:
                slot.append(None)
            continue
        # After m_O clicks, the n-th one replaces a random slot with probability m_O/n.
        seen[place] = n = seen[place] + 1
        slot_number = n - 1 if n <= records_per_user else int(next(uniform) * n)
        if slot_number < records_per_user:
            texts[slot_number][place] = text
    tally.users = len(seen)
    if not seen:
        raise ParameterError(f"{path} must have rows with a click; found {tally.describe()}")
    if others:
        # In a reservoir the first slot favours the first click, so swap it with a random slot.
        for place, n in enumerate(seen):
            drawn = int(next(uniform) * min(n, records_per_user))
            first[place], texts[drawn][place] = texts[drawn][place], first[place]
    return DrawnLog(texts, tally)


def _uniforms(rng: np.random.Generator) -> Iterator[float]:
    while True:
        yield from rng.random(65_536).tolist()


def read_clicks(
    path: Path, columns: LogColumns | None, tally: LogTally, *, with_times: bool = False
) -> Iterator[Click]:
    """Yield every click in the file's order and count all rows in `tally`, but not its users.

    Without `columns` the header decides: the AOL release's names, or `user, query, url[, time]`.
    """
    with _open_log(path) as (file, position):
        rows = _csv_rows(file) if _suffix(path) == ".csv" else _tab_rows(file)
        try:
            yield from _clicks(path, rows, columns, tally, with_times, position)
        except (OSError, EOFError, zlib.error) as error:  # reading detects a broken archive
            reason = getattr(error, "strerror", None) or "it is not a whole gzip file"
            raise ParameterError(f"cannot read the log {path}: {reason}") from error


def _clicks(
    path: Path,
    rows: Iterator[tuple[int, list[str]]],
    columns: LogColumns | None,
    tally: LogTally,
    with_times: bool,
    position: Callable[[], int],
) -> Iterator[Click]:
    _, header = next(rows, (1, []))
    header = [name.removeprefix("\ufeff").strip() for name in header]
    user_at, query_at, url_at, time_at = _places(path, header, columns, with_times)
    needed, width, time_s = max(user_at, query_at), len(header), 0.0
    progress = ProgressBar(path.stat().st_size, sys.stderr)
    for line, cells in rows:
        if line % 65_536 == 0:
            progress.show(position(), f"reading {path.name}, line {_grouped(line)}")
        if not any(cells):
            continue
        if not needed < len(cells) <= width:
            tally.add_malformed(line, f"it must have {width} columns, got {len(cells)}")
            continue
        if len(cells) <= url_at or not cells[url_at].strip():
            tally.without_click += 1
            continue
        user = cells[user_at].strip()
        if user == header[user_at] and cells[query_at] == header[query_at]:
            continue  # the header of the next of several concatenated files
        try:
            if not 0 < len(user) <= MAX_USER_CHARACTERS:
                raise ParameterError(
                    f"its user must have 1 to {MAX_USER_CHARACTERS} characters, got {len(user)}"
                )
            text = _text(cells[query_at], cells[url_at])
            if with_times:
                time_s = _seconds(cells[time_at] if time_at < len(cells) else "")
        except ParameterError as error:
            tally.add_malformed(line, str(error))
            continue
        tally.clicks += 1
        yield Click(user, text, time_s)
    progress.clear()


def _places(
    path: Path, header: Sequence[str], columns: LogColumns | None, with_times: bool
) -> tuple[int, int, int, int]:
    """Return the columns' places in the header; an unused time has place 0."""
    for names in (columns,) if columns else (AOL_COLUMNS, PLAIN_COLUMNS):
        wanted = names[: 4 if with_times else 3]
        if all(name and name in header for name in wanted):
            user, query, url = (header.index(name) for name in names[:3])
            return user, query, url, header.index(names.time) if with_times else 0
    known = f"{', '.join(AOL_COLUMNS)} (the AOL release) or {', '.join(PLAIN_COLUMNS)}"
    asked = ", ".join(filter(None, columns)) if columns else known
    times = ", and the time is needed here" if with_times else ""
    raise ParameterError(
        f"the first line of {path} must name the columns {asked}{times}; it has {len(header)} "
        "columns with other names. Name the file's own columns: --log-columns USER,QUERY,URL[,TIME]"
    )


def _text(query: str, url: str) -> str:
    """Return the result of `normalise` as `query<TAB>url`, in a third of the time."""
    if (
        len(query) <= MAX_QUERY_BYTES
        and len(url) <= MAX_URL_BYTES
        and query.isascii()
        and url.isascii()
        and query.isprintable()
        and url.isprintable()
    ):
        clean_query, clean_url = " ".join(query.lower().split()), url.strip()
        if clean_query and clean_url:
            return f"{clean_query}\t{clean_url}"
    return "\t".join(normalise(query, url))


def _seconds(text: str) -> float:
    """Read a time: seconds since 1970 or ISO 8601 (UTC unless it states an offset).

    >>> _seconds("2006-03-01 00:01:00") - _seconds("1141171200")
    60.0
    """
    try:
        return float(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ParameterError(
            "its time must be ISO 8601, as in 2006-03-01 07:17:12, or seconds since 1970"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _tab_rows(file: IO[str]) -> Iterator[tuple[int, list[str]]]:
    # In a TSV a quote is a character like any other: a query may begin with one.
    for number, line in enumerate(_lines(file), start=1):
        yield number, line.rstrip("\r\n").split("\t")


def _csv_rows(file: IO[str]) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(_lines(file))
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error:  # a quote that is never closed: one row without columns
            cells = [""] * 64 + ["not CSV"]
        yield reader.line_num, cells


def _lines(file: IO[str]) -> Iterator[str]:
    """Yield every line, cut to `MAX_LINE_CHARACTERS`."""
    while line := file.readline(MAX_LINE_CHARACTERS):
        rest = line
        while len(rest) == MAX_LINE_CHARACTERS and not rest.endswith("\n"):
            rest = file.readline(MAX_LINE_CHARACTERS)
        yield line


@contextmanager
def _open_log(path: Path) -> Iterator[tuple[IO[str], Callable[[], int]]]:
    """Open for reading; also return a function for the position in the (perhaps gzipped) file."""
    try:
        raw = path.open("rb")
    except OSError as error:
        raise ParameterError(f"cannot read the log {path}: {error.strerror}") from error
    with raw:
        binary = io.BufferedReader(gzip.GzipFile(fileobj=raw)) if path.suffix == ".gz" else raw
        # Invalid UTF-8 makes only its own row malformed.
        with io.TextIOWrapper(binary, "utf-8", errors="surrogateescape", newline="\n") as text:
            yield text, raw.tell


def _suffix(path: Path) -> str:
    return (path.with_suffix("") if path.suffix == ".gz" else path).suffix


def _grouped(number: int) -> str:
    return f"{number:,}".replace(",", " ")
