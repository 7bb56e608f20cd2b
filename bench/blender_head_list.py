"""Head list from many distinct records with exact noise, compared with numpy's float noise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bench._measured import measure, show, timings
from bench._page import Table
from blendstream.blender.noise.exact_noise import ExactNoise
from blendstream.blender.paper.head_list import ThresholdSelector
from blendstream.blender.values.parameters import PrivacyParameters

TITLE = "Head list of `paper`"
TEXT = """
The time to build a head list of the profile `paper`, at ε = 4 and δ = 1e-5: exact noise on every
count, the threshold and the choice of records. The baseline is numpy's float noise, which no
release may use.
"""

SIZES = (1_000_000, 10_000_000)


def zipf_counts(size: int) -> np.ndarray:
    """Mostly ones, as search records are."""
    return np.random.default_rng(1).zipf(1.8, size=size).clip(max=1_000_000)


def exact(size: int) -> Callable[[], float]:
    """The paper's selector as a release runs it."""
    counts, known = zipf_counts(size), np.zeros(size, dtype=np.bool_)
    selector, parameters, noise = ThresholdSelector(), PrivacyParameters(), ExactNoise()
    noise.discrete_laplace(counts[:1], scale=0.5)  # makes the table
    return lambda: len(selector.select(counts, known, parameters, noise).kept)


def floats(size: int) -> Callable[[], float]:
    """Build a list with numpy's float Laplace: fast, but unfit for releases."""
    counts, rng = zipf_counts(size), np.random.default_rng(2)
    return lambda: int((counts + rng.laplace(scale=0.5, size=size) > 7).sum())


def main() -> list[Table]:
    """1 M and 10 M distinct records at ε = 4, δ = 1e-5."""
    table = timings()
    for size in SIZES:
        baseline, found = measure(floats, size), measure(exact, size)
        show(table, f"{size:>10,} records, numpy float noise", baseline, baseline)
        show(table, f"{size:>10,} records, exact noise", found, baseline)
    return [table]


if __name__ == "__main__":
    main()
