"""Opt-in and client estimates and their blend over many cells, compared with numpy ratios."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bench._measured import measure, show, timings
from bench._page import Table
from blendstream.blender.epoch_estimates import OptinRelease, estimate_epoch
from blendstream.blender.noise.exact_noise import ExactNoise
from blendstream.blender.paper.blend import VarianceBlender, project_onto_simplex
from blendstream.blender.paper.optin import add_noise, estimate_noisy_counts
from blendstream.blender.paper.two_stage_estimates import TwoStageEstimator
from blendstream.blender.profiles import build_head_list
from blendstream.blender.registry import randomizer_for
from blendstream.blender.sharp.agreement import measure_agreement
from blendstream.blender.sharp.difference_blend import blend_groups
from blendstream.blender.values.cells import Cells, RandomizerSpec
from blendstream.blender.values.interfaces import OptinCounts
from blendstream.blender.values.parameters import PrivacyParameters
from blendstream.blender.values.record import Record

TITLE = "Estimates of an epoch"
TEXT = """
The time to compute an epoch's estimates; an epoch runs each row once. The baseline computes only
proportions: two divisions and an average.

- All rows: 4.9 million clients, and 6 250 users in T (the opt-in users who estimate).
- `sharp` at M = 500: 125 000 opt-in users.
- `sharp` at M = 50 000: the 10 million opt-in users that so long a list needs.

The blend of `sharp` weighs the groups by how far they differ
([0026](decisions/0026-groups-may-differ.md)): it sums over sixteen τ and ten η, at up to 147 shares
per record. This is the largest part of an epoch's estimates.
"""

SIZES = (500, 50_000)
CLIENTS, OPTIN = 4_875_000, 6_250


class Epoch:
    """Counts of one epoch over M records, three URLs a query."""

    def __init__(self, size: int) -> None:
        """Zipf, with half of everything in ⟨⋆,⋆⟩."""
        rng = np.random.default_rng(3)
        self.cells = Cells(
            tuple(Record(f"query {i // 3}", f"https://example/{i}") for i in range(size)), True
        )
        self.randomizer = TwoStageEstimator(self.cells, RandomizerSpec("two-stage", 4.0, 1e-7))
        p = 1 / np.arange(1, len(self.cells) + 1)
        p[-1] = p[:-1].sum()
        p /= p.sum()
        self.optin = rng.multinomial(OPTIN, p)
        self.client = rng.multinomial(CLIENTS, self.randomizer.expected_shares(p))
        self.noisy = add_noise(
            self.optin, users=OPTIN, parameters=PrivacyParameters(), noise=ExactNoise()
        )


def bare(size: int) -> Callable[[], float]:
    """p̂ alone: two divisions and an average."""
    e = Epoch(size)
    return lambda: float((e.optin / OPTIN * 0.5 + e.client / CLIENTS * 0.5).sum())


def build(size: int) -> Callable[[], float]:
    """Cells and channel from the records."""
    e = Epoch(size)
    return lambda: len(TwoStageEstimator(Cells(e.cells.records, True), e.randomizer.spec).cells)


def optin(size: int) -> Callable[[], float]:
    """p̂_O, σ̂²_O and exact intervals of cells and queries."""
    e = Epoch(size)
    estimate_noisy_counts(e.noisy, e.cells)  # loads SciPy
    return lambda: float(estimate_noisy_counts(e.noisy, e.cells).cells.probability.sum())


def client(size: int) -> Callable[[], float]:
    """p̂_C, σ̂²_C and intervals of cells and queries."""
    e = Epoch(size)
    return lambda: float(e.randomizer.estimate(e.client, CLIENTS).cells.probability.sum())


def blend(size: int) -> Callable[[], float]:
    """Figure 7 with its variance and the projection."""
    e = Epoch(size)
    o, c = estimate_noisy_counts(e.noisy, e.cells), e.randomizer.estimate(e.client, CLIENTS)
    blender = VarianceBlender()
    return lambda: float(project_onto_simplex(blender.blend(o, c, e.cells).cells.probability).sum())


#: Opt-in users for a head list of so many records: S must be large enough to find them.
SHARP_OPTIN = {500: 125_000, 50_000: 10_000_000}


class SharpEpoch:
    """One epoch of the profile `sharp` whose head list holds M records and more."""

    def __init__(self, size: int) -> None:
        """Zipf over a third more records than are listed."""
        rng = np.random.default_rng(4)
        p = 1 / np.arange(1, size + size // 3 + 1) ** 0.9
        p /= p.sum()
        users = SHARP_OPTIN[size]
        s, t = rng.multinomial(users * 9 // 10, p), rng.multinomial(users // 10, p)
        records = [Record(f"query {i // 3}", f"https://example/{i}") for i in range(len(p))]
        self.counts = OptinCounts(records, s, t, users * 9 // 10, users // 10)
        self.parameters = PrivacyParameters(head_list_cells=size, selection_share=0.9)
        few = OptinCounts(records[:50], s[:50], t[:50], int(s.sum()), int(t.sum()))
        build_head_list("sharp", few, PrivacyParameters(), ExactNoise())  # loads SciPy

    def release(self) -> OptinRelease:
        """The head list and what the opt-in users say."""
        return build_head_list("sharp", self.counts, self.parameters, ExactNoise())


def sharp_head_list(size: int) -> Callable[[], float]:
    """`build_head_list` of `sharp`: noise, ranking, choice of randomizer."""
    e = SharpEpoch(size)
    return lambda: float(e.release().head_list.listed)


def sharp_optin(size: int) -> Callable[[], float]:
    """The opt-in group's estimates of the above."""
    release = SharpEpoch(size).release()
    return lambda: float(release.optin.cells.probability.sum())


def sharp_reports(release: OptinRelease) -> np.ndarray:
    """Counts that so many devices could have sent, none of them holding anything listed."""
    randomizer = randomizer_for(release.head_list)
    size, width = len(randomizer.cells), randomizer.cells_per_answer
    sample = randomizer.answer_batch(np.full(100_000, size - 1), np.random.default_rng(5))
    counts = np.bincount(sample.ravel(), minlength=size).astype(np.int64)
    assert counts.sum() == 100_000 * width
    return counts * (CLIENTS // 100_000)


def sharp_estimates(size: int) -> Callable[[], float]:
    """`estimate_epoch` of `sharp`: T, S's listed counts, clients, blend, intervals, totals."""
    release = SharpEpoch(size).release()
    counts, devices = sharp_reports(release), CLIENTS // 100_000 * 100_000
    return lambda: float(estimate_epoch(release, counts, devices).blended.cells.probability.sum())


def sharp_blend(size: int) -> Callable[[], float]:
    """The blend of the above alone, with its intervals."""
    release = SharpEpoch(size).release()
    counts, devices = sharp_reports(release), CLIENTS // 100_000 * 100_000
    client = randomizer_for(release.head_list).estimate(counts, devices)
    cells, shares, optin = release.head_list.cells, release.shares, release.optin

    def work() -> float:
        blend = blend_groups(shares, optin, client, cells, devices_admitted=True)
        return float(blend.estimates.cells.probability.sum())

    return work


def sharp_agreement(size: int) -> Callable[[], float]:
    """The agreement test of the above, 999 simulated epochs; a tenth of the opt-in users is T."""
    release = SharpEpoch(size).release()
    counts, devices = sharp_reports(release), CLIENTS // 100_000 * 100_000
    randomizer = randomizer_for(release.head_list)
    client = randomizer.estimate(counts, devices)

    def work() -> float:
        found = measure_agreement(
            release.head_list, release.noisy, client, randomizer, shares=release.shares,
            best_trimmed=release.best_trimmed, rng=np.random.default_rng(6),
        )  # fmt: skip
        assert found is not None
        return found.p_value

    return work


def main() -> list[Table]:
    """M = 500 and 50 000, 4.9 M clients, 6 250 users in T (for `sharp` see `SHARP_OPTIN`)."""
    table = timings()
    for size in SIZES:
        baseline = measure(bare, size)
        show(table, f"M = {size:>6,}, bare numpy shares", baseline, baseline)
        for what, work in (
            ("cells and channel", build),
            ("opt-in estimates, exact intervals", optin),
            ("client estimates", client),
            ("blend and projection", blend),
            ("sharp: head list", sharp_head_list),
            ("sharp: opt-in estimates", sharp_optin),
            ("sharp: blend with intervals", sharp_blend),
            ("sharp: all of an epoch's estimates", sharp_estimates),
            ("sharp: whether the groups agree", sharp_agreement),
        ):
            show(table, f"M = {size:>6,}, {what}", measure(work, size), baseline)
    return [table]


if __name__ == "__main__":
    main()
