"""Tables of (query, url, count), read from a TSV or CSV with a heading, gzipped or not.

Promises: the result is the whole table, or an error that names the faulty line. No message contains
a cell's text, because a table may be a real log.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from blendstream.blender.values.arrays import IntArray
from blendstream.blender.values.errors import ParameterError
from blendstream.blender.values.record import Record, normalise

__all__ = ["read_table", "table_name"]


def table_name(path: Path) -> str:
    """Name a table's population by its file, without the extensions.

    >>> table_name(Path("clicks_2013.jan.tsv.gz"))
    'clicks-2013.jan'
    """
    return _without_gz(path).stem.replace("_", "-")


def _without_gz(path: Path) -> Path:
    return path.with_suffix("") if path.suffix == ".gz" else path


def read_table(path: Path, columns: Sequence[str]) -> tuple[list[Record], IntArray]:
    """Read a table's records and counts; cells of a CSV may be quoted, those of a TSV are literal.

    `columns` names the query, URL and count columns. The counts of rows whose records are equal
    after normalising are added up.
    """
    if len(columns) != 3:
        raise ParameterError(
            f"columns must name three columns, query,url,count, got {len(columns)}"
        )
    tally: dict[Record, int] = {}
    try:
        with _open(path) as lines:
            for record, count in _rows(path, lines, columns):
                tally[record] = tally.get(record, 0) + count
    except UnicodeDecodeError as error:
        raise ParameterError(f"cannot read the table {path}: it is not UTF-8") from error
    except csv.Error as error:
        raise ParameterError(f"cannot read the table {path}: {error}") from error
    except (OSError, EOFError, zlib.error) as error:  # reading detects a broken archive
        reason = getattr(error, "strerror", None) or "it is not a whole gzip file"
        raise ParameterError(f"cannot read the table {path}: {reason}") from error
    positive = {record: n for record, n in tally.items() if n > 0}
    if not positive:
        raise ParameterError(f"{path} has no rows with a count above 0")
    return list(positive), np.array(list(positive.values()), dtype=np.int64)


def _rows(path: Path, lines: Iterable[str], columns: Sequence[str]) -> Iterator[tuple[Record, int]]:
    # In a TSV a quote is a character like any other: a query may begin with one.
    if _without_gz(path).suffix == ".tsv":
        rows = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    else:
        rows = csv.DictReader(lines)
    missing = [c for c in columns if c not in (rows.fieldnames or [])]
    if missing:
        raise ParameterError(
            f"{path} must have the columns {', '.join(columns)}; "
            f"its first line has no {', '.join(missing)} "
            f"(columns there: {len(rows.fieldnames or [])})"
        )
    for line, row in enumerate(rows, start=2):
        query, url, count = (row[column] or "" for column in columns)
        try:
            record = normalise(query, url)
        except ParameterError as error:
            raise ParameterError(f"{path}, line {line}: {error}") from None
        if not count.strip().isdecimal():
            raise ParameterError(f"{path}, line {line}: a count must be a whole number, 0 or more")
        yield record, int(count)


def _open(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")
