"""Write the measurements of fault tests: one line per fault, and one per comparison.

Set FAULT_TIMES to a file's name. docs/faults.md has such a file as a table, made by

    python -m tests.faults.fault_times TIMES.csv
"""

from __future__ import annotations

import csv
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.faults.recovery_times import Recovery
from tests.faults.replicated_service import ReplicatedService

FIELDS = (
    "time", "session", "fault", "moment", "accepting_s", "counting_s", "releasing_s", "accepted",
    "again", "in_doubt", "restarts", "verdict",
)  # fmt: skip


def write_fault(
    session: str, fault: str, moment: str, recovery: Recovery, running: ReplicatedService
) -> None:
    """One fault, as soon as the service has recovered from it."""
    seconds = (recovery.accepting_s, recovery.counting_s, recovery.releasing_s)
    _write(session, fault, moment, *map(_rounded, seconds), running=running, verdict="")


def write_verdict(session: str, running: ReplicatedService, verdict: str) -> None:
    """Write the comparison with the model, after the last publication."""
    _write(session, "(all)", "", "", "", "", running=running, verdict=verdict)


def _rounded(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.1f}"


def _write(*columns: str, running: ReplicatedService, verdict: str) -> None:
    name = os.environ.get("FAULT_TIMES")
    if not name:
        return
    file, said = Path(name), running.people.verdicts
    again = sum(n for what, n in said.items() if what.startswith("again"))
    people = [said["accepted"], again, said["in doubt"], sum(running.restarts.values())]
    new = not file.exists()
    with file.open("a", newline="") as out:
        table = csv.writer(out)
        if new:
            table.writerow(FIELDS)
        now = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
        table.writerow([now, *columns, *people, verdict])


#: The columns of the table in docs/faults.md.
MOMENTS = ("under load", "sealing", "drawing", "commit")


def table(file: Path) -> Iterator[str]:
    """The file in Markdown: a line for each fault, seconds until accepting · counting · releasing.

    Only of services whose publications were right; what else the file has is for a reader of it.
    """
    with file.open(newline="") as rows:
        lines = list(csv.DictReader(rows))
    right = {line["session"] for line in lines if line["verdict"] == "right"}
    seconds = {
        (line["session"].split()[0], line["fault"], line["moment"]): " · ".join(
            line[name] for name in FIELDS[4:7]
        )
        for line in lines
        if line["session"] in right and line["fault"] != "(all)"
    }
    yield f"| Redis | fault | {' | '.join(MOMENTS)} |"
    yield "|---|---|" + "---|" * len(MOMENTS)
    for redis, fault in sorted({case[:2] for case in seconds}):
        at = " | ".join(seconds.get((redis, fault, moment), "") for moment in MOMENTS)
        yield f"| {redis} | {fault} | {at} |"


if __name__ == "__main__":
    print("\n".join(table(Path(sys.argv[1]))))
