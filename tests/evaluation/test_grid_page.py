"""What docs/evaluation.md says of groups that differ is what the grid's CSV files say.

`python -m bench.blend_grid --out docs` writes them; the musts of the blend are asserted here too.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence

from tests.evaluation.page import PAGE, Says

CELLS = list(csv.DictReader((PAGE.parent / "blend-grid.csv").open(newline="")))
TENTHS = list(csv.DictReader((PAGE.parent / "blend-grid-tenths.csv").open(newline="")))
DIFFERENCES = list(dict.fromkeys(row["difference"] for row in CELLS))


def blended(rows: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    return [row for row in rows if row["estimator"] == "blend"]


def lines() -> set[str]:
    return set(PAGE.read_text(encoding="utf-8").splitlines())


def test_every_cell_covers_and_is_no_worse_than_the_clients_alone(says: Says) -> None:
    """112 cells of at least 40 epochs."""
    cells = blended(CELLS)
    assert len(cells) == 4 * 7 * 2 * 2
    assert min(int(row["epochs"]) for row in cells) >= 40
    lowest = min(cells, key=lambda row: float(row["coverage"]))
    assert float(lowest["coverage"]) >= 0.93
    says(
        f"cover at least {100 * float(lowest['coverage']):.1f} % in every cell (standard error "
        f"{100 * float(lowest['coverage_se']):.1f} %)"
    )
    largest = max(cells, key=lambda row: float(row["error"]))
    assert float(largest["error"]) <= 1.0
    says(
        f"is at most {float(largest['error']):.2f} ± {float(largest['error_se']):.2f} of that of "
        "the clients alone"
    )
    says(f"{lowest['epochs']} epochs were simulated: 112 cells")


def test_every_tenth_of_the_list_covers_and_is_centred(says: Says) -> None:
    """At least 2 000 intervals each; 93 % must not lie above the 99 % bound, and bias stays below
    10 % of p where the groups agree."""
    tenths = blended(TENTHS)
    assert min(int(row["records"]) for row in tenths) >= 2000
    for row in tenths:
        assert float(row["coverage"]) + 2.33 * float(row["coverage_se"]) >= 0.93
        if row["difference"] == "none":
            assert abs(float(row["bias"])) <= 0.05
    lowest = min(100 * float(row["coverage"]) for row in tenths)
    says(f"With every difference the lowest coverage of any tenth is {lowest:.1f} %")
    long = min(int(row["records"]) for row in tenths if row["M"] == "500")
    says(f"at least 2 000 intervals each at M = 50, {long} at M = 500")


def cell_line(difference: str, size: str) -> str:
    def span(estimator: str, metric: str, digits: int) -> str:
        values = [
            float(row[metric])
            for row in CELLS
            if (row["difference"], row["M"], row["estimator"]) == (difference, size, estimator)
        ]
        return f"{min(values):.{digits}f} to {max(values):.{digits}f}"

    covered = " | ".join(span(name, "coverage", 3) for name in ("blend", "plain", "clients"))
    off = " | ".join(span(name, "error", 2) for name in ("blend", "plain"))
    return f"| {difference} | {size} | {covered} | {off} |"


def tenths_line(size: str, metric: str, estimator: str) -> str:
    sign = "+" if metric == "bias" else ""
    values = [
        f"{100 * float(row[metric]):{sign}.1f} %"
        for row in TENTHS
        if (row["M"], row["difference"], row["estimator"]) == (size, "none", estimator)
    ]
    return f"| {size} | {metric}, {estimator} | {' | '.join(values)} |"


def test_the_pages_tables_are_the_csv_files() -> None:
    shown = lines()
    for size in ("50", "500"):
        for difference in DIFFERENCES:
            assert cell_line(difference, size) in shown
        for metric, estimator in (("bias", "blend"), ("bias", "plain"), ("coverage", "blend")):
            assert tenths_line(size, metric, estimator) in shown


def test_the_grids_figures_are_there_in_both_themes_and_shown() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for figure in ("groups-that-differ", "groups-that-agree-by-rank"):
        for theme in ("light", "dark"):
            name = f"evaluation/{figure}-{theme}.svg"
            assert (PAGE.parent / name).stat().st_size > 5_000
            assert name in text
