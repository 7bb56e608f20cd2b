"""A small search log in the AOL release's format, with everything that real ones contain."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

HEADER = "AnonID\tQuery\tQueryTime\tItemRank\tClickURL"
#: Users who each click a few times, and one with this many rows.
USERS, ROWS_OF_ONE = 2_000, 10_000
#: The one user's id.
BUSY = "7"


def row(user: object, query: str, rank: str = "", url: str = "", at: str = "07:17:12") -> str:
    return f"{user}\t{query}\t2006-03-01 {at}\t{rank}\t{url}"


def write_aol_log(path: Path, *, users: int = USERS) -> dict[str, int]:
    """Write the log; returns what a reader must count, `first` being the first malformed lines.

    A third of the rows has no click. Three rows are malformed: too many columns, no query, bytes
    that are not UTF-8. The header stands twice, as in files that were joined.
    """
    rng = np.random.default_rng(5)
    lines: list[bytes] = [HEADER.encode()]
    without = clicks = 0
    for user in range(100, 100 + users):
        for _ in range(int(rng.integers(1, 5))):
            query = min(int(rng.zipf(1.6)), 400)
            if rng.random() < 1 / 3:
                lines.append(row(user, f"question {query}").encode())
                without += 1
            else:
                lines.append(
                    row(user, f"Question  {query}", "1", f"http://q{query}.example/").encode()
                )
                clicks += 1
        # Everybody clicks at least once, in another script and with other capitals.
        lines.append(row(user, "ΟΔΌΣ Straße", "2", "http://straße.example/ä").encode())
        clicks += 1
    malformed = [
        row(99, "too\tmany", "1", "http://a.example/").encode(),
        row(99, "  ", "1", "http://a.example/").encode(),
        row(99, "latin", "1", "http://a.example/").encode() + b"\xe9",
    ]
    first = len(lines) + 1
    lines += malformed
    lines.append(HEADER.encode())
    for i in range(ROWS_OF_ONE):
        lines.append(row(BUSY, f"busy {i}", "1", "http://busy.example/").encode())
    text = b"\n".join(lines) + b"\n"
    path.write_bytes(gzip.compress(text, 1) if path.suffix == ".gz" else text)
    return {
        "clicks": clicks + ROWS_OF_ONE, "without_click": without, "malformed": 3,
        "users": users + 1, "first": first,
    }  # fmt: skip
