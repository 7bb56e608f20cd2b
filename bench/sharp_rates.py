"""Speed of each randomizer and estimator, compared with the paper's in the same run.

python -m bench.sharp_rates [--devices 200000] [--cells 501]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np

from bench._page import Table
from blendstream.blender.epoch_estimates import estimate_epoch
from blendstream.blender.noise.exact_noise import ExactNoise
from blendstream.blender.profiles import PROFILES, build_head_list
from blendstream.blender.registry import RANDOMIZERS, randomizer_for
from blendstream.blender.values.cells import Cells, RandomizerSpec
from blendstream.blender.values.interfaces import OptinCounts
from blendstream.blender.values.parameters import PrivacyParameters
from blendstream.blender.values.random_source import SystemRandomSource
from blendstream.blender.values.record import Record

TITLE = "Rates of the randomizers"
TEXT = """
The speed of each randomizer, on one core with 501 cells and ε = 4, the best of three
rounds. A device responds once per epoch, so its 30 µs do not matter. A simulation draws the
answers of many devices together, at the rate under *simulated answers/s*. The last table has the
time of an epoch's computation in each profile: the list from 5 000 records, and the estimates of
both groups with their blend.
"""


def seconds(work: Callable[[], object], rounds: int = 3) -> float:
    """The best of some rounds: what the work takes when nothing else disturbs it."""
    best = float("inf")
    for _ in range(rounds):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return best


def main(words: Sequence[str] = ()) -> list[Table]:
    """Each randomizer, then each profile; `words` are the command line's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=200_000)
    parser.add_argument("--cells", type=int, default=501)
    arguments = parser.parse_args(words)
    records = tuple(Record(f"q{i // 4}", f"u{i}") for i in range(arguments.cells - 1))
    rng = np.random.default_rng(1)
    dice = SystemRandomSource()
    table = Table(["randomizer", "cells per answer", "device's answers/s", "time of the paper's",
                   "simulated answers/s", "estimate"])  # fmt: skip
    baseline = 0.0
    for name in ("two-stage", *sorted(set(RANDOMIZERS) - {"two-stage"})):
        build = RANDOMIZERS[name]
        wildcards = bool(getattr(build, "query_wildcards", False))
        cells = Cells(records, query_wildcards=wildcards)
        randomizer = build(cells, RandomizerSpec(name, 4.0))
        held = rng.integers(0, len(cells), size=arguments.devices)
        few = held[:2000].tolist()
        device = seconds(lambda r=randomizer, f=few: [r.answer(c, dice) for c in f]) / len(few)
        batch = seconds(lambda r=randomizer, h=held: r.answer_batch(h, rng)) / len(held)
        shown = np.bincount(randomizer.answer_batch(held, rng).ravel(), minlength=len(cells))
        devices = len(held)
        estimate = seconds(lambda r=randomizer, s=shown, n=devices: r.estimate(s, n))
        baseline = baseline or device
        table.add(
            f"`{name}`", str(randomizer.cells_per_answer), f"{1 / device:,.0f}",
            f"{device / baseline:.2f}", f"{1 / batch:,.0f}", f"{estimate * 1e3:.2f} ms",
        )  # fmt: skip
    return [table, whole_epochs(arguments.cells - 1, arguments.devices, rng)]


def whole_epochs(listed: int, devices: int, rng: np.random.Generator) -> Table:
    """Compute both groups' estimates and their blend, as an epoch job does after counting."""
    share = 1 / np.arange(1, 10 * listed + 1)
    share /= share.sum()
    selection, estimation = (rng.multinomial(users, share) for users in (450_000, 50_000))
    records = [Record(f"q{i // 4}", f"u{i}") for i in range(len(share))]
    counts = OptinCounts(records, selection, estimation, 450_000, 50_000)
    parameters = PrivacyParameters(head_list_cells=listed)
    table = Table(["profile", "records listed", "head list", "both groups and their blend"])
    for profile in PROFILES:
        select = seconds(lambda p=profile: build_head_list(p, counts, parameters, ExactNoise()), 1)
        release = build_head_list(profile, counts, parameters, ExactNoise())
        randomizer = randomizer_for(release.head_list)
        cells = release.head_list.cells
        answers = randomizer.answer_batch(rng.integers(0, len(cells), size=devices), rng)
        shown = np.bincount(answers.ravel(), minlength=len(cells))
        blend = seconds(lambda r=release, s=shown: estimate_epoch(r, s, devices))
        times = f"{select:.2f} s", f"{blend * 1e3:.1f} ms"
        table.add(f"`{profile}`", str(len(cells.records)), *times)
    return table


if __name__ == "__main__":
    main(sys.argv[1:])
