"""Randomizers of existing libraries on the same people, ε and cells as ours: error and speed.

Every device holds one of K cells of the AOL-shaped population (the M most frequent records, and ⋆).
Libraries are used unchanged: their clients, their aggregators. multi-freq-LDPy clips its estimates
at 0 and rescales them to sum to 1, so ours is shown both without and with that step; L1 is over the
M records, against the population's truth, and is the mean over runs.

OLH is omitted: multi-freq-LDPy 0.2.5 passes text to a hash that no longer accepts it (xxhash 4),
and its variance is that of OUE. All libraries here draw from numpy's or Python's ordinary
generators with floating-point probabilities; ours on a device draws integers from the operating
system (bench/blender_clients.py has its speed), and this benchmark runs its vectorised version for
simulations.

  pip install -r bench/libraries.txt && python -m bench libraries_clients
  python -m bench.libraries_clients --ours --runs 100   only ours, with more runs
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from blendstream.blender.registry import RANDOMIZERS
from blendstream.blender.values.arrays import IntArray
from blendstream.blender.values.cells import Cells, RandomizerSpec
from blendstream.evaluation.populations import AOL

TITLE = "Randomizers of other libraries"
TEXT = """
Error and speed of other libraries' randomizers on the same people, ε and cells. It needs
`pip install -r bench/libraries.txt`.
"""
SHOWN_IN = "evaluation.md#beside-existing-libraries"

DEVICES, SEED = 20_000, 7

Estimator = Callable[[IntArray, int, float], Any]


def main(words: Sequence[str] = ()) -> None:
    """Print a table for each (K, ε)."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--ours", action="store_true", help="needs no other library")
    chosen = parser.parse_args(words)
    missing = [name for name in ("multi_freq_ldpy", "pure_ldp") if find_spec(name) is None]
    if missing and not chosen.ours:
        print(f"{', '.join(missing)} not installed: pip install -r bench/libraries.txt")
        return
    for records, epsilon in ((50, 1.0), (50, 4.0), (500, 4.0)):
        _table(records, epsilon, chosen.runs, ours_alone=chosen.ours)


def _table(records: int, epsilon: float, runs: int, *, ours_alone: bool) -> None:
    top = AOL.people.top(records)
    listed = tuple(AOL.people.records(top))
    truth = AOL.people.probability(top)
    cells = np.append(truth, 1 - truth.sum())
    rng = np.random.default_rng(SEED)
    people = [rng.choice(len(cells), size=DEVICES, p=cells) for _ in range(runs)]
    wildcards = _with_query_wildcards(listed, truth)

    print(f"\nM = {records}, ε = {epsilon:g}, {DEVICES} devices, {runs} runs")
    print(f"{'':46}{'L1':>8}{'/ ours':>8}{'k reports/s':>13}")
    baseline = 0.0
    candidates = _ours(listed, rng)
    if not ours_alone:
        candidates |= _libraries()
    for name, estimate in candidates.items():
        if name.startswith("multi_freq"):  # compiled at the first call, which is not timed
            estimate(people[0][:5], len(cells), epsilon)
        if not ours_alone:
            _seed()
        errors, began = [], time.perf_counter()
        for held in people:
            held_cells = (
                rng.choice(len(wildcards), size=DEVICES, p=wildcards) if "two" in name else held
            )
            shown = np.asarray(estimate(held_cells, len(cells), epsilon), dtype=np.float64)
            errors.append(float(np.abs(shown[:records] - truth).sum()))
        rate = runs * DEVICES / (time.perf_counter() - began)
        error = float(np.mean(errors))
        baseline = baseline or error
        print(f"{name:46}{error:8.4f}{error / baseline:8.2f}{rate / 1e3:13.1f}")


def _with_query_wildcards(listed: tuple[Any, ...], truth: Any) -> Any:
    """Cell probabilities for the two-stage report, which counts ⟨q,⋆⟩ too."""
    cells = Cells(listed, query_wildcards=True)
    of_query = np.zeros(len(cells.queries))
    of_query[cells.query_of_cell[: len(listed)]] = AOL.people.query_probability(
        AOL.people.top(len(listed))
    )
    known = np.bincount(cells.query_of_cell[: len(listed)], weights=truth)
    return np.concatenate([truth, of_query - known, [1 - of_query.sum()]])


def _ours(listed: tuple[Any, ...], rng: np.random.Generator) -> dict[str, Estimator]:
    def ours(name: str) -> Estimator:
        def estimate(held: IntArray, size: int, epsilon: float) -> Any:
            spec = RandomizerSpec(name, epsilon, 1e-5 if name == "two-stage" else 0.0)
            cells = Cells(listed, query_wildcards=name == "two-stage")
            randomizer = RANDOMIZERS[name](cells, spec)
            answers = randomizer.answer_batch(held, rng)
            counts = np.bincount(answers.ravel(), minlength=len(cells))
            return randomizer.estimate(counts, len(held)).cells.probability

        return estimate

    def rescaled(estimator: Estimator) -> Estimator:
        def estimate(held: IntArray, size: int, epsilon: float) -> Any:
            kept = np.maximum(estimator(held, size, epsilon), 0)
            return kept / kept.sum()

        return estimate

    return {
        "ours, subset or none": ours("subset-or-none"),
        "ours, subset or none, clipped and rescaled": rescaled(ours("subset-or-none")),
        "ours, subset selection": ours("subset-selection"),
        "ours, subset selection, clipped and rescaled": rescaled(ours("subset-selection")),
        "ours, randomized response": ours("randomized-response"),
        "ours, the paper's two stages": ours("two-stage"),
    }


def _libraries() -> dict[str, Estimator]:
    from multi_freq_ldpy.pure_frequency_oracles.GRR import (  # noqa: PLC0415
        GRR_Aggregator_MI,
        GRR_Client,
    )
    from multi_freq_ldpy.pure_frequency_oracles.SS import (  # noqa: PLC0415
        SS_Aggregator_MI,
        SS_Client,
    )
    from multi_freq_ldpy.pure_frequency_oracles.UE import (  # noqa: PLC0415
        UE_Aggregator_MI,
        UE_Client,
    )
    from pure_ldp.frequency_oracles.direct_encoding import DEClient, DEServer  # noqa: PLC0415
    from pure_ldp.frequency_oracles.unary_encoding import UEClient, UEServer  # noqa: PLC0415

    def multi(client: Any, aggregate: Any) -> Estimator:
        return lambda held, size, epsilon: aggregate(
            [client(int(cell), size, epsilon) for cell in held], size, epsilon
        )

    def unary(held: IntArray, size: int, epsilon: float) -> Any:
        return UE_Aggregator_MI([UE_Client(int(cell), size, epsilon) for cell in held], epsilon)

    def pure(client_type: Any, server_type: Any, **options: Any) -> Estimator:
        def estimate(held: IntArray, size: int, epsilon: float) -> Any:
            client = client_type(epsilon, size, index_mapper=int, **options)
            server = server_type(epsilon, size, index_mapper=int, **options)
            for cell in held:
                server.aggregate(client.privatise(int(cell)))
            shown = [server.estimate(cell, suppress_warnings=True) for cell in range(size)]
            return np.array(shown) / len(held)

        return estimate

    return {
        "multi_freq_ldpy SS": multi(SS_Client, SS_Aggregator_MI),
        "multi_freq_ldpy GRR": multi(GRR_Client, GRR_Aggregator_MI),
        "multi_freq_ldpy OUE": unary,
        "pure_ldp DE (randomized response)": pure(DEClient, DEServer),
        "pure_ldp OUE": pure(UEClient, UEServer, use_oue=True),
    }


def _seed() -> None:
    """Seed every generator the libraries draw from; numba has one of its own."""
    import numba  # noqa: PLC0415

    @numba.njit
    def seed_compiled(value: int) -> None:
        np.random.seed(value)

    seed_compiled(SEED)
    np.random.seed(SEED)
    random.seed(SEED)


if __name__ == "__main__":
    main(sys.argv[1:])
