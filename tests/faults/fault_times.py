"""Writes down what fault tests measure: a line for each fault, and one for what was published.

Set FAULT_TIMES to a file's name. docs/counting-faults.md has such a file as a table, made by

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
    """What came of everyone, once all was published."""
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


def table(file: Path) -> Iterator[str]:
    """The file in Markdown, by fault and moment; entries are those since the fault before."""
    with file.open(newline="") as rows:
        lines = list(csv.DictReader(rows))
    verdicts = {line["session"]: line["verdict"] for line in lines if line["verdict"]}
    before: dict[str, int] = {}
    found = []
    for line in lines:
        session, accepted = line["session"], int(line["accepted"])
        entries = accepted - before.get(session, 0)
        before[session] = accepted
        if line["fault"] != "(all)":
            columns = [line["fault"], line["moment"], *(line[name] for name in FIELDS[4:7])]
            redis, verdict = session.split()[0], verdicts.get(session, "not compared")
            found.append((redis, *columns, str(entries), verdict))
    yield "| Redis | fault | moment | accepting | counting | releasing | entries | verdict |"
    yield "|---|---|---|---:|---:|---:|---:|---|"
    for row in sorted(found):
        yield f"| {' | '.join(row)} |"


if __name__ == "__main__":
    print("\n".join(table(Path(sys.argv[1]))))
