"""Coverage of the blend when the groups differ, and its error compared with simpler estimators.

    python -m bench.blend_grid [--runs 50] [--quick] [--no-t] [--epsilon 4] [--out DIR]

A grid of activity (proportion of people with a record) × difference between the groups × list size
M × number of people, ε = 4, δ = 1e-5, 5 % opt-in, the population of `bench/_sharp_settings.py`.
Within a run all differences share the opt-in users and their head list, all estimators the reports.
Truth is the share of participating clients. For each cell: coverage of 95 % intervals (of disputed
records the spanning ones), squared error over the listed records divided by that of the clients
alone, L1. By tenths of the published list, pooled over activity and size: bias and coverage.
Devices are admitted, so disputed records show the clients' number. With `--out DIR` every cell goes
to DIR/blend-grid.csv, the tenths to DIR/blend-grid-tenths.csv, and figures of both to
DIR/evaluation, in both themes; docs/evaluation.md shows them.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench._grid_figures import draw_grid
from bench._sharp_settings import PEOPLE
from bench._two_groups import DIFFERENCES, Groups, draw_release, draw_reports
from blendstream.blender.epoch_estimates import OptinRelease, estimate_epoch
from blendstream.blender.noise.exact_noise import laplace_variance
from blendstream.blender.values.arrays import FloatArray
from blendstream.blender.values.cell_estimates import Estimates, GroupEstimates
from blendstream.blender.values.intervals import Z_95

TITLE = "Groups that differ"
TEXT = """
Coverage and error of the blend, compared with simpler estimators. Activity, the difference between
the groups, list size and the number of people vary.
"""
SHOWN_IN = "evaluation.md#groups-that-differ"

ACTIVITIES = (1.0, 0.9, 0.7, 0.5)
LIST_SIZES = (50, 500)
USERS = (400_000, 2_000_000)
#: The grid that is asked for; `DIFFERENCES` has two more.
GRID = tuple(DIFFERENCES)[:7]
TENTHS = 10


def plain_blend(release: OptinRelease, client: GroupEstimates) -> Estimates:
    """S, T and clients by inverse variances at the common p, selection ignored."""
    m = release.head_list.listed
    assert release.head_list.noisy_counts is not None
    y = np.array(release.head_list.noisy_counts[:m]) / release.selection_users
    noise = laplace_variance(release.selection_scale)
    users = [n for n in (release.selection_users, release.noisy.users) if n]
    told = [y, release.noisy.counts[:m] / max(release.noisy.users, 1)][: len(users)]
    told.append(client.cells.probability[:m])
    p = np.maximum(y, 0)
    for _ in range(30):
        at = np.append(np.clip(p, 0.0, 1.0), 0.5)
        precision = [1 / (at[:m] * (1 - at[:m]) / n + noise / n**2) for n in users]
        precision.append(1 / client.variance_at(at)[:m])
        total = np.sum(precision, axis=0)
        p = np.sum([w * x for w, x in zip(precision, told, strict=True)], axis=0) / total
    margin = Z_95 / np.sqrt(total)
    low, high = np.clip(p - margin, 0, 1), np.clip(p + margin, 0, 1)
    return Estimates(p, 1 / total, low, high)


@dataclass
class Scores:
    """One estimator's results: per run the covered records, all records, squared error and L1."""

    runs: list[tuple[float, ...]] = field(default_factory=list)
    #: Of each run, by tenths of the list that would be published: Σ(p̂ − p), Σp, covered, records.
    tenths: list[FloatArray] = field(default_factory=list)

    def add(self, found: Estimates, truth: FloatArray) -> None:
        """One run."""
        m = len(truth)
        p, low, high = found.probability[:m], found.low[:m], found.high[:m]
        covered = (low <= truth) & (truth <= high)
        square, distance = ((p - truth) ** 2).sum(), np.abs(p - truth).sum()
        self.runs.append((float(covered.sum()), float(m), float(square), float(distance)))
        order = np.argsort(-p, kind="stable")
        tenth = np.arange(m) * TENTHS // m
        sums = (p - truth, truth, covered, np.ones(m))
        self.tenths.append(
            np.array([np.bincount(tenth, of[order], minlength=TENTHS) for of in sums])
        )


def ratio(above: FloatArray, below: FloatArray) -> tuple[float, float]:
    """Σ above/Σ below over runs, and its standard error (delta method, runs independent)."""
    value = above.sum() / below.sum()
    off = np.std(above - value * below, ddof=1) if len(above) > 1 else np.nan
    return float(value), float(off * np.sqrt(len(above)) / below.sum())


def one_epoch(
    groups: Groups,
    differences: Sequence[str],
    rng: np.random.Generator,
    scores: dict[tuple[str, str], Scores],
) -> None:
    """All differences and estimators on one head list."""
    release, listed = draw_release(groups, rng)
    m = len(listed)
    for difference in differences:
        reports = draw_reports(groups, release, listed, DIFFERENCES[difference], rng)
        estimates = estimate_epoch(release, reports.counts, reports.devices, devices_admitted=True)
        client = estimates.client
        found = {
            "clients": client.cells,
            "plain": plain_blend(release, client),
            "blend": estimates.blended.cells,
        }
        for name, of in found.items():
            scores.setdefault((difference, name), Scores()).add(of, reports.truth[:m])


def main(words: Sequence[str] = ()) -> None:
    """Run and print; `words` are the command line's."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=50, help="epochs a cell, at least 2")
    parser.add_argument("--quick", action="store_true", help="two activities, the smaller size")
    parser.add_argument("--no-t", action="store_true", help="f_O = 1: nobody is in T")
    parser.add_argument("--epsilon", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=16)
    parser.add_argument("--out", type=Path, help="write CSVs and figures into this folder too")
    arguments = parser.parse_args(words)
    activities = ACTIVITIES[::3] if arguments.quick else ACTIVITIES
    sizes = USERS[:1] if arguments.quick else USERS
    began = time.perf_counter()
    rows, tenths = [], []
    for list_size in LIST_SIZES:
        pooled: dict[tuple[str, str], list[FloatArray]] = {}
        for users in sizes:
            for activity in activities:
                groups = Groups(
                    PEOPLE, users, activity, list_size=list_size,
                    selection_share=1.0 if arguments.no_t else 0.9, epsilon=arguments.epsilon,
                )  # fmt: skip
                scores: dict[tuple[str, str], Scores] = {}
                rng = np.random.default_rng(
                    (arguments.seed, list_size, users, round(activity * 10))
                )
                for _ in range(arguments.runs):
                    one_epoch(groups, GRID, rng, scores)
                rows += _cell_rows(list_size, users, activity, scores)
                for key, score in scores.items():
                    pooled.setdefault(key, []).extend(score.tenths)
                took = time.perf_counter() - began
                print(f"M={list_size} {users} people, activity {activity}: {took:.0f} s",
                      file=sys.stderr, flush=True)  # fmt: skip
        tenths += _tenth_rows(list_size, pooled)
    _print_tenths(tenths)
    _print_cells(rows)
    if arguments.out:
        cells, by_tenth = (arguments.out / f"blend-grid{name}.csv" for name in ("", "-tenths"))
        _write(cells, rows)
        _write(by_tenth, tenths)
        draw_grid(cells, by_tenth, arguments.out / "evaluation")


def _write(path: Path, rows: Sequence[dict[str, object]]) -> None:
    with path.open("w", newline="") as out:
        table = csv.DictWriter(out, rows[0], lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def _cell_rows(
    list_size: int, users: int, activity: float, scores: dict[tuple[str, str], Scores]
) -> list[dict[str, object]]:
    rows = []
    for (difference, name), score in scores.items():
        covered, records, square, distance = np.array(score.runs).T
        coverage, coverage_off = ratio(covered, records)
        clients = np.array(scores[difference, "clients"].runs).T[2]
        error, error_off = ratio(square, clients)
        rows.append(
            {
                "M": list_size, "people": users, "activity": activity, "difference": difference,
                "estimator": name, "epochs": len(score.runs), "records": int(records.sum()),
                "coverage": round(coverage, 4), "coverage_se": round(coverage_off, 4),
                "error": round(error, 4), "error_se": round(error_off, 4),
                "L1": round(float(distance.mean()), 6),
                "L1_se": round(float(distance.std(ddof=1) / np.sqrt(len(distance))), 6),
            }
        )  # fmt: skip
    return rows


def _print_cells(rows: Sequence[dict[str, object]]) -> None:
    names = list(dict.fromkeys(row["estimator"] for row in rows))
    print("\nM, people, activity, difference: coverage | squared error / clients' | L1, of "
          + ", ".join(map(str, names)))  # fmt: skip
    keys = list(dict.fromkeys((r["M"], r["people"], r["activity"], r["difference"]) for r in rows))
    for key in keys:
        of = {r["estimator"]: r for r in rows if
              (r["M"], r["people"], r["activity"], r["difference"]) == key}  # fmt: skip
        print(
            f"{key[0]:>4} {key[1]:>8} {key[2]:<4} {key[3]:22} "
            + " ".join(f"{of[n]['coverage']:.3f}" for n in names) + " | "
            + " ".join(f"{of[n]['error']:.3f}" for n in names) + " | "
            + " ".join(f"{of[n]['L1']:.5f}" for n in names)
        )  # fmt: skip
    for name in names:
        mine = [row for row in rows if row["estimator"] == name]
        print(f"{name}: lowest coverage {min(float(str(r['coverage'])) for r in mine):.3f}, "
              f"largest error {max(float(str(r['error'])) for r in mine):.3f}")  # fmt: skip


def _tenth_rows(
    list_size: int, pooled: dict[tuple[str, str], list[FloatArray]]
) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for (difference, name), runs in pooled.items():
        off, p, covered, records = np.array(runs).transpose(1, 2, 0)
        for tenth in range(TENTHS):
            bias, bias_off = ratio(off[tenth], p[tenth])
            coverage, coverage_off = ratio(covered[tenth], records[tenth])
            rows.append(
                {
                    "M": list_size, "difference": difference, "estimator": name,
                    "tenth": tenth + 1, "records": int(records[tenth].sum()),
                    "bias": round(bias, 5), "bias_se": round(bias_off, 5),
                    "coverage": round(coverage, 4), "coverage_se": round(coverage_off, 4),
                }
            )  # fmt: skip
    return rows


def _print_tenths(rows: Sequence[dict[str, object]]) -> None:
    lines: dict[tuple[object, ...], list[dict[str, object]]] = {}
    for row in rows:
        lines.setdefault((row["M"], row["difference"], row["estimator"]), []).append(row)
    for (list_size, difference, name), of in lines.items():
        if difference == "none" or name == "blend":
            print(f"M={list_size} {difference}, {name}: bias by tenth "
                  + " ".join(f"{row['bias']:+.3f}" for row in of) + "; coverage "
                  + " ".join(f"{row['coverage']:.3f}" for row in of)
                  + f" of {of[0]['records']}")  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
