"""Two groups that may differ: what the blend covers, and its error beside simpler estimators.

    python -m bench.blend_grid [--runs 40] [--quick] [--csv FILE]

A grid of activity (share of people with a record) × difference between the groups × list size M ×
number of people, ε = 4, δ = 1e-5, 5 % opt-in, the population of `bench/_sharp_settings.py`. Within
a run all differences share the opt-in users and their head list, all estimators the reports. Truth
is the share of participating clients. For each cell: coverage of 95 % intervals (of disputed
records the spanning ones), squared error over the listed records over that of the clients, L1.
By tenths of the published list, pooled over activity and size: bias and coverage.
Devices are admitted, so disputed records show the clients' number.
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

from bench._sharp_settings import PEOPLE
from blender.cell_estimates import Estimates, FloatArray, GroupEstimates
from blender.difference_blend import blend_groups, optin_group
from blender.evaluation.two_groups import DIFFERENCES, Groups, draw_release, draw_reports
from blender.intervals import Z_95
from blender.noise import laplace_variance
from blender.optin import estimate_noisy_counts
from blender.optin_shares import optin_shares
from blender.profiles import OptinRelease, estimate_epoch

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
    """Sums over the runs of one cell, by estimator."""

    covered: int = 0
    records: int = 0
    square: float = 0.0
    distance: float = 0.0
    runs: int = 0
    #: By tenths of the list that this estimator would publish: Σ(p̂ − p), Σp, Σ covered, records.
    tenths: FloatArray = field(default_factory=lambda: np.zeros((4, TENTHS)))

    def add(self, found: Estimates, truth: FloatArray) -> None:
        """One run."""
        m = len(truth)
        p, low, high = found.probability[:m], found.low[:m], found.high[:m]
        covered = (low <= truth) & (truth <= high)
        self.covered += int(covered.sum())
        self.records += m
        self.square += float(((p - truth) ** 2).sum())
        self.distance += float(np.abs(p - truth).sum())
        self.runs += 1
        order = np.argsort(-p, kind="stable")
        tenth = np.arange(m) * TENTHS // m
        for row, values in enumerate((p - truth, truth, covered, np.ones(m))):
            self.tenths[row] += np.bincount(tenth, values[order], minlength=TENTHS)


def one_epoch(
    groups: Groups,
    differences: Sequence[str],
    rng: np.random.Generator,
    scores: dict[tuple[str, str], Scores],
) -> None:
    """All differences and estimators on one head list."""
    release, listed = draw_release(groups, rng)
    cells = release.head_list.cells
    m = len(listed)
    shares = optin_shares(release.selection_counts, release.noisy, m)
    optin = optin_group(shares, estimate_noisy_counts(release.noisy, cells), cells)
    for difference in differences:
        reports = draw_reports(groups, release, listed, DIFFERENCES[difference], rng)
        estimates = estimate_epoch(release, reports.counts, reports.devices)
        client = estimates.client
        blend = blend_groups(shares, optin, client, cells, devices_admitted=True)
        found = {
            "clients": client.cells,
            "plain": plain_blend(release, client),
            "conditional": estimates.blended.cells,
            "blend": blend.estimates.cells,
        }
        for name, of in found.items():
            scores.setdefault((difference, name), Scores()).add(of, reports.truth[:m])


def main(words: Sequence[str] = ()) -> None:
    """Run and print; `words` are the command line's."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=40, help="epochs a cell")
    parser.add_argument("--quick", action="store_true", help="two activities, the smaller size")
    parser.add_argument("--no-t", action="store_true", help="f_O = 1: nobody is in T")
    parser.add_argument("--seed", type=int, default=16)
    parser.add_argument("--csv", type=Path, help="write every cell here too")
    arguments = parser.parse_args(words)
    activities = ACTIVITIES[::3] if arguments.quick else ACTIVITIES
    sizes = USERS[:1] if arguments.quick else USERS
    began = time.perf_counter()
    rows = []
    for list_size in LIST_SIZES:
        pooled: dict[tuple[str, str], FloatArray] = {}
        for users in sizes:
            for activity in activities:
                groups = Groups(
                    PEOPLE, users, activity, list_size=list_size,
                    selection_share=1.0 if arguments.no_t else 0.9,
                )  # fmt: skip
                scores: dict[tuple[str, str], Scores] = {}
                rng = np.random.default_rng(
                    (arguments.seed, list_size, users, round(activity * 10))
                )
                for _ in range(arguments.runs):
                    one_epoch(groups, GRID, rng, scores)
                rows += _cell_rows(list_size, users, activity, scores)
                for key, score in scores.items():
                    pooled[key] = pooled.get(key, np.zeros((4, TENTHS))) + score.tenths
                took = time.perf_counter() - began
                print(f"M={list_size} {users} people, activity {activity}: {took:.0f} s",
                      file=sys.stderr, flush=True)  # fmt: skip
        _print_tenths(list_size, pooled)
    _print_cells(rows)
    if arguments.csv:
        with arguments.csv.open("w", newline="") as out:
            table = csv.DictWriter(out, rows[0], lineterminator="\n")
            table.writeheader()
            table.writerows(rows)


def _cell_rows(
    list_size: int, users: int, activity: float, scores: dict[tuple[str, str], Scores]
) -> list[dict[str, object]]:
    rows = []
    for (difference, name), score in scores.items():
        rows.append(
            {
                "M": list_size, "people": users, "activity": activity, "difference": difference,
                "estimator": name, "epochs": score.runs, "records": score.records,
                "coverage": round(score.covered / score.records, 4),
                "error": round(score.square / scores[difference, "clients"].square, 4),
                "L1": round(score.distance / score.runs, 6),
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


def _print_tenths(list_size: int, pooled: dict[tuple[str, str], FloatArray]) -> None:
    for (difference, name), (off, p, covered, records) in pooled.items():
        if difference == "none" or name == "blend":
            print(f"M={list_size} {difference}, {name}: bias by tenth "
                  + " ".join(f"{x:+.3f}" for x in off / p) + "; coverage "
                  + " ".join(f"{x:.3f}" for x in covered / records)
                  + f" of {int(records.min())}")  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
