"""Opt-in and client estimates and their blend over many cells, beside bare numpy ratios."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bench._measured import measure, show
from blender.blend import VarianceBlender, project_onto_simplex
from blender.cells import Cells, RandomizerSpec
from blender.local import TwoStage
from blender.noise import ExactNoise
from blender.optin import add_noise, estimate_noisy_counts
from blender.parameters import PrivacyParameters
from blender.record import Record

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
        self.randomizer = TwoStage(self.cells, RandomizerSpec("two-stage", 4.0, 1e-7))
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
    return lambda: len(TwoStage(Cells(e.cells.records, True), e.randomizer.spec).cells)


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
    return lambda: float(project_onto_simplex(blender.blend(o, c).cells.probability).sum())


def main() -> None:
    """M = 500 and 50 000, 4.9 M clients, 6 250 users in T."""
    for size in SIZES:
        baseline = measure(bare, size)
        show(f"M = {size:>6,}, bare numpy shares", baseline, baseline)
        for what, work in (
            ("cells and channel", build),
            ("opt-in estimates, exact intervals", optin),
            ("client estimates", client),
            ("blend and projection", blend),
        ):
            show(f"M = {size:>6,}, {what}", measure(work, size), baseline)


if __name__ == "__main__":
    main()
