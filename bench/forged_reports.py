"""Forged reports: how often forged records are marked disputed, their shown value, false alarms.

    python -m bench.forged_reports [--runs 40]

M = 50, 400 000 people and M = 500, 2 000 000 people; ε = 4, 5 % opt-in, population of
`bench/_sharp_settings.py`. A proportion of all devices is invented and names one record (of about
0.7 %) or ten, spread evenly over the list. Honest clients are like the opt-in users, or differ by
e^(N(0, .2²)) per record. "Shown" is the median of the published value over the true one: with
devices admitted (clients' number first) and without (opt-in users' first). "Covered": the truth
lies in the published interval of a forged record. "Others": honest records marked, per epoch.
"Noticed": epochs in which the agreement test has p < 0.01. The last lines are epochs in which
nobody forges; there "twofold" is how often the interval of a record holds the truth that clients
have twice as often as opt-in users, or half as often, and more.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import numpy as np

from bench._sharp_settings import PEOPLE
from bench._two_groups import (
    DIFFERENCES,
    Groups,
    Reports,
    draw_release,
    draw_reports,
    forge,
)
from blendstream.blender.epoch_estimates import EpochEstimates, OptinRelease, estimate_epoch
from blendstream.blender.registry import randomizer_for
from blendstream.blender.sharp.agreement import measure_agreement
from blendstream.blender.values.arrays import FloatArray, IntArray

TITLE = "Forged reports"
TEXT = """
How often the publication marks a forged record as disputed, which value it shows for the record,
and how often it marks a record that nobody forged.
"""
SHOWN_IN = "privacy-forged-reports.md"

SETTINGS = ((50, 400_000), (500, 2_000_000))
SHARES = (0.005, 0.01, 0.02, 0.05)
HONEST = ("none", "lognormal .2")
USUAL = 0.007


class Tally:
    """Results for forged and for honest records, over some epochs."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.marked: list[float] = []
        self.shown: dict[bool, list[float]] = {True: [], False: []}
        self.covered: list[float] = []
        self.others: list[int] = []
        self.noticed: list[bool] = []

    def add(
        self,
        release: OptinRelease,
        reports: Reports,
        targets: IntArray,
        rng: np.random.Generator,
    ) -> None:
        """One epoch."""
        for admitted in (True, False):
            found = estimate_epoch(
                release, reports.counts, reports.devices, devices_admitted=admitted
            )
            cells, truth = found.blended.cells, reports.truth[targets]
            self.shown[admitted] += (cells.probability[targets] / truth).tolist()
        self.marked += found.disputed[targets].tolist()
        low, high = cells.low[targets], cells.high[targets]
        self.covered += ((low <= truth) & (truth <= high)).tolist()
        self.others.append(int(found.disputed.sum() - found.disputed[targets].sum()))
        self.noticed.append(noticed(release, found, rng))

    def row(self) -> str:
        """Percentages and medians."""
        shown = [float(np.median(self.shown[admitted])) for admitted in (True, False)]
        return (
            f"{np.mean(self.marked):.0%} | {shown[0]:.2f} | {shown[1]:.2f} | "
            f"{np.mean(self.covered):.0%} | {np.mean(self.others):.2f} | "
            f"{np.mean(self.noticed):.0%}"
        )


def noticed(release: OptinRelease, found: EpochEstimates, rng: np.random.Generator) -> bool:
    """Return True if the agreement test finds that the groups differ."""
    verdict = measure_agreement(
        release.head_list, release.noisy, found.client, randomizer_for(release.head_list),
        shares=release.shares, rng=rng, rounds=199,
    )  # fmt: skip
    assert verdict is not None
    return verdict.p_value < 0.01


def main(words: Sequence[str] = ()) -> None:
    """Run and print; `words` are the command line's."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=40, help="epochs a line")
    parser.add_argument("--seed", type=int, default=26)
    arguments = parser.parse_args(words)
    print("| M | honest people | forged | records | marked | shown, admitted | shown, not "
          "| covered | others | noticed |\n|---|---|---|---|---|---|---|---|---|---|")  # fmt: skip
    quiet = []
    for list_size, users in SETTINGS:
        groups = Groups(PEOPLE, users, list_size=list_size)
        tallies: dict[tuple[str, float, int], Tally] = {}
        marks: dict[str, list[tuple[int, bool]]] = {}
        twofold: dict[str, list[bool]] = {}
        rng = np.random.default_rng((arguments.seed, list_size))
        for _ in range(arguments.runs):
            release, listed = draw_release(groups, rng)
            for honest in HONEST:
                reports = draw_reports(groups, release, listed, DIFFERENCES[honest], rng)
                for share in SHARES:
                    for records in (1, 10):
                        targets = _targets(reports.truth[:-1], records)
                        tally = tallies.setdefault((honest, share, records), Tally())
                        tally.add(
                            release, forge(release, reports, share, targets, rng), targets, rng
                        )
            for name, factor in DIFFERENCES.items():
                reports = draw_reports(groups, release, listed, factor, rng)
                found = estimate_epoch(release, reports.counts, reports.devices)
                marks.setdefault(name, []).append(
                    (int(found.disputed.sum()), noticed(release, found, rng))
                )
                truth, cells = reports.truth[:-1], found.blended.cells
                ratio = truth / (groups.activity * groups.people.probability(listed))
                held = (cells.low[:-1] <= truth) & (truth <= cells.high[:-1])
                twofold.setdefault(name, []).extend(held[(ratio <= 0.5) | (ratio >= 2)].tolist())
        for (honest, share, records), tally in tallies.items():
            print(f"| {list_size} | {honest} | {share:.1%} | {records} | {tally.row()} |")
        for name, marked in marks.items():
            disputed, seen = np.array(marked).T
            held = f"{np.mean(twofold[name]):.0%} of {len(twofold[name])}" if twofold[name] else ""
            quiet.append(
                f"| {list_size} | {name} | {disputed.mean():.2f} | {(disputed > 0).mean():.0%} | "
                f"{seen.mean():.0%} | {held} |"
            )
    print("\n| M | difference, nothing forged | records marked an epoch | epochs with a mark | "
          "noticed | twofold |\n|---|---|---|---|---|---|")  # fmt: skip
    print("\n".join(quiet))


def _targets(truth: FloatArray, records: int) -> IntArray:
    """The record nearest the usual share, or ten spread evenly over the list."""
    order = np.argsort(-truth, kind="stable")
    if records == 1:
        return np.array([int(np.argmin(np.abs(truth - USUAL)))])
    return order[np.linspace(0, len(order) - 1, records + 2).astype(int)[1:-1]]


if __name__ == "__main__":
    main(sys.argv[1:])
