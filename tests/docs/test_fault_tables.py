"""The tables of fault runs say what their files say."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

from tests.faults.fault_matrix import cases
from tests.faults.fault_times import table

DOCS = Path(__file__).parents[2] / "docs"


def spaced(number: int) -> str:
    """As the pages write it: 1 023."""
    return f"{number:,}".replace(",", " ")


def test_the_table_of_lost_machines_is_that_of_its_file_and_lacks_no_case() -> None:
    page, lines = (DOCS / "faults.md").read_text(), list(table(DOCS / "fault-times.csv"))

    assert "\n".join(lines) in page
    measured = sum(cell.strip().count(" · ") == 2 for line in lines for cell in line.split("|"))
    assert measured == len(cases("cluster")) + len(cases("sentinel"))


def test_the_table_of_random_schedules_adds_up() -> None:
    page = (DOCS / "faults.md").read_text()
    sums: dict[str, Counter[str]] = {}
    with (DOCS / "chaos-runs.csv").open(newline="") as file:
        for run in csv.DictReader(file):
            for kind in (run["kind"], "all"):
                of = sums.setdefault(kind, Counter())
                of.update({name: int(run[name]) for name in ("schedules", "steps", "wrong")})
    for kind, of in sums.items():
        name = kind if kind == "all" else f"`{kind}`"
        wrong = of["wrong"]
        assert f"| {name} | {spaced(of['schedules'])} | {spaced(of['steps'])} | {wrong} |" in page
    on_three = sum(
        of["schedules"] for kind, of in sums.items() if kind not in ("counting", "releasing", "all")
    )
    assert f"{on_three} of them on three brokers" in page
