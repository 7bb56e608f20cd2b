"""Randomise millions of simulated clients, compared with numpy's choice; and one device's rate."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bench._measured import Measured, measure, show, timings
from bench._page import Table
from blendstream.blender.paper.local import local_alg
from blendstream.blender.paper.two_stage_estimates import TwoStageEstimator
from blendstream.blender.values.cells import Cells, RandomizerSpec
from blendstream.blender.values.random_source import SystemRandomSource
from blendstream.blender.values.record import Record

TITLE = "Simulated clients"
TEXT = """
The simulation of five million clients of the paper's two-stage randomizer, with M = 50 and 500
listed records, compared with numpy's choice of as many random cells. The third row of each size is
the device's own code: the time of 20 000 reports, scaled to five million.
"""

CLIENTS = 5_000_000
REPORTS = 20_000
SIZES = (50, 500)


def two_stage(size: int) -> TwoStageEstimator:
    """Two URLs a query."""
    cells = Cells(
        tuple(Record(f"query {i // 2}", f"https://example/{i}") for i in range(size)), True
    )
    return TwoStageEstimator(cells, RandomizerSpec("two-stage", 4.0, 1e-5))


def choice(size: int) -> Callable[[], float]:
    """A cell for each client, from numpy: what any simulation needs anyway."""
    rng, cells = np.random.default_rng(4), len(two_stage(size).cells)
    return lambda: float(rng.choice(cells, size=CLIENTS).mean())


def batch(size: int) -> Callable[[], float]:
    """Their answers, and the counts."""
    randomizer = two_stage(size)
    rng, cells = np.random.default_rng(4), len(randomizer.cells)
    held = rng.choice(cells, size=CLIENTS)
    return lambda: float(
        np.bincount(randomizer.answer_batch(held, rng)[:, 0], minlength=cells).mean()
    )


def device(size: int) -> Callable[[], float]:
    """A device's own code on the operating system's dice, many times over."""
    randomizer, dice = two_stage(size), SystemRandomSource()
    record = [randomizer.cells.records[0]]
    return lambda: float(sum(local_alg(record, randomizer, dice)[0][0] for _ in range(REPORTS)))


def main() -> list[Table]:
    """5 M clients at M = 50 and 500, two-stage."""
    table = timings()
    for size in SIZES:
        baseline = measure(choice, size)
        show(table, f"M = {size:>3}, {CLIENTS:,} numpy choices", baseline, baseline)
        show(table, f"M = {size:>3}, {CLIENTS:,} simulated clients", measure(batch, size), baseline)
        alone = measure(device, size)
        times = CLIENTS / REPORTS
        for_all = Measured(
            alone.seconds * times, alone.cpu_seconds * times, alone.peak_mib, alone.result
        )
        what = f"M = {size:>3}, the device's code, {CLIENTS:,} times (scaled)"
        show(table, what, for_all, baseline)
    return [table]


if __name__ == "__main__":
    main()
