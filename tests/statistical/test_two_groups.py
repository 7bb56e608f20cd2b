"""Opt-in users and clients that differ: intervals cover the clients' shares all the same.

The whole grid is `python -m bench.blend_grid` (docs/evaluation.md); here are its corners, a few
epochs of each. Coverage is bounded from below at odds of 1e-6 (4.75 standard errors below 94 %, of
intervals taken as independent; `bench` has ten times as many). Deliberately broken blends must fall
below: one that takes the groups as alike, one without a distribution of records. Seeds are fixed.
"""

from __future__ import annotations

import numpy as np
import pytest

import blendstream.blender.sharp.group_difference
from bench._sharp_settings import PEOPLE
from bench._staying_people import last_of_some_epochs
from bench._two_groups import DIFFERENCES, Groups, draw_release, draw_reports, forge
from blendstream.blender import measure_agreement, randomizer_for
from blendstream.blender.epoch_estimates import estimate_epoch

pytestmark = pytest.mark.statistical

ONE_IN_A_MILLION = 4.75
SMALL = Groups(PEOPLE, 400_000, activity=0.7)
LONG = Groups(PEOPLE, 400_000, activity=0.7, list_size=500)


class Found:
    """Of some epochs: covered or not, squared errors, and the last tenth's sums."""

    def __init__(self, groups, difference, runs, seed=20):
        rng = np.random.default_rng(seed)
        covered, self.errors, last = [], np.zeros(2), np.zeros(2)
        self.disputed = 0
        for _ in range(runs):
            release, listed = draw_release(groups, rng)
            reports = draw_reports(groups, release, listed, DIFFERENCES[difference], rng)
            found = estimate_epoch(release, reports.counts, reports.devices, devices_admitted=True)
            m, truth, cells = len(listed), reports.truth[: len(listed)], found.blended.cells
            p = cells.probability[:m]
            covered.append((cells.low[:m] <= truth) & (truth <= cells.high[:m]))
            client = found.client.cells.probability[:m]
            self.errors += [((p - truth) ** 2).sum(), ((client - truth) ** 2).sum()]
            tenth = np.argsort(-p)[-m // 10 :]
            last += [p[tenth].sum(), truth[tenth].sum()]
            self.disputed += int(found.disputed.sum())
        self.covered = np.concatenate(covered)
        self.last = last[0] / last[1]

    @property
    def least(self):
        return 0.94 - ONE_IN_A_MILLION * np.sqrt(0.94 * 0.06 / len(self.covered))


@pytest.mark.parametrize("difference", DIFFERENCES)
@pytest.mark.parametrize(
    "groups", [SMALL, pytest.param(LONG, marks=pytest.mark.more)], ids=["M=50", "M=500"]
)
def test_intervals_cover_and_nothing_is_worse_than_the_clients_alone(
    groups, difference, thorough, report
):
    found = Found(groups, difference, 200 if thorough else 12)
    ratio = found.errors[0] / found.errors[1]
    report(
        f"{difference}, M = {groups.list_size}: coverage {found.covered.mean():.3f} of "
        f"{len(found.covered)}, squared error {ratio:.2f} of the clients alone"
    )
    assert found.covered.mean() > found.least
    assert ratio < 1.0


def test_taking_the_groups_as_alike_is_caught(monkeypatch):
    """Deliberately broken: τ = 0, nothing stands out, no factor in general."""
    monkeypatch.setattr(
        blendstream.blender.sharp.group_difference, "TAUS", np.array([1e-3, 1.1e-3])
    )
    monkeypatch.setattr(
        blendstream.blender.sharp.group_difference, "ETAS", np.array([1e-12, 2e-12])
    )
    monkeypatch.setattr(blendstream.blender.sharp.group_difference, "TREND", np.array([1e-6, 1e-6]))
    for difference in ("lognormal .3", "five queries tripled"):
        found = Found(SMALL, difference, 12)
        assert found.covered.mean() < found.least
        assert found.errors[0] > 1.1 * found.errors[1]


def test_the_last_tenth_of_the_list_is_centred_and_is_not_without_the_law_of_records(monkeypatch):
    """|bias| ≤ 10 % of p: of 340 records in 20 epochs its standard error is 2.1 %.

    Deliberately broken: every share as common as every other (α = 1 per unit of log p).
    """
    assert abs(Found(LONG, "none", 20).last - 1) < 0.1
    monkeypatch.setattr(
        "blendstream.blender.sharp.optin_posterior._ZIPF", np.array([np.log(10), 0.0])
    )
    monkeypatch.setattr("blendstream.blender.sharp.optin_posterior._LOOSE", np.array([1e-4, 1e-4]))
    assert Found(LONG, "none", 20).last > 1.15


@pytest.mark.parametrize("staying", [0.0, 0.9, 1.0])
def test_people_who_stay_do_not_spoil_the_intervals_of_known_records(staying, report):
    """With nine in ten people the same small known records once covered 91 %, opt-in alone 89 %
    (`python -m bench.staying_people` prints them apart).

    All known records: odds of 1e-6 against 93 % of some thousand intervals.
    """
    groups = Groups(PEOPLE, 200_000, list_size=500)
    rng = np.random.default_rng(31)
    covered = {"blended": [], "optin": []}
    for _ in range(12):
        last = last_of_some_epochs(groups, staying, 4, rng)
        for group, rows in covered.items():
            cells = getattr(last.estimates, group).cells
            m = len(last.truth)
            inside = (cells.low[:m] <= last.truth) & (last.truth <= cells.high[:m])
            rows.append(inside[last.known])
    for group, rows in covered.items():
        of = np.concatenate(rows)
        report(f"{staying:.0%} stay, known records, {group}: coverage {of.mean():.3f} of {len(of)}")
        assert of.mean() > 0.93 - ONE_IN_A_MILLION * np.sqrt(0.93 * 0.07 / len(of))


def test_a_forged_record_is_marked_and_seldom_any_other():
    """2 % of all devices name one record of 0.7 %: it was shown at 3.7 %, unnoticed in 7 of 8."""
    rng = np.random.default_rng(40)
    groups = Groups(PEOPLE, 400_000)
    others = inside = 0
    for _ in range(8):
        release, listed = draw_release(groups, rng)
        honest = draw_reports(groups, release, listed, DIFFERENCES["lognormal .1"], rng)
        target = int(np.argmin(np.abs(honest.truth[:-1] - 0.007)))
        forged = forge(release, honest, 0.02, np.array([target]), rng)
        for admitted in (True, False):
            found = estimate_epoch(
                release, forged.counts, forged.devices, devices_admitted=admitted
            )
            assert found.disputed[target]
            shown = found.blended.cells
            inside += shown.low[target] <= honest.truth[target] <= shown.high[target]
            right = abs(shown.probability[target] / honest.truth[target] - 1) < 0.4
            assert right != admitted
        others += int(found.disputed.sum()) - 1
        verdict = measure_agreement(
            release.head_list, release.noisy, found.client, randomizer_for(release.head_list),
            shares=release.shares, rng=rng, rounds=199,
        )  # fmt: skip
        assert verdict.p_value < 0.01
    assert others <= 2
    assert inside >= 12, "of 16, at 95 % of 8 epochs: fewer than six come once in 6 000 seeds"


def test_honest_groups_that_agree_have_nothing_disputed():
    """Over 20 epochs of 50 records: at most one mark (`bench.forged_reports` counts them)."""
    assert Found(SMALL, "none", 20).disputed <= 1
