"""Opt-in histograms of existing libraries on the same people, ε and δ as ours: list length, δ.

S of the AOL- and Yandex-shaped populations, one record per user, ε = 4, neighbouring: replace-one.

- OpenDP's `make_laplace_threshold` gets the smallest threshold whose privacy map stays within
  (ε, δ) for a user who changes one record (two keys change, by one each). Its release at that
  threshold is then compared with the exact tail: the δ that it states is too small.
- Google's library (python-dp) selects partitions for adding or removing a user. Replacing is
  removing and adding, so (ε, δ) here is (ε/2, δ/(1 + e^(ε/2))) there. It selects and shows no
  counts; ours keeps the noisy counts at no further cost.

  pip install -r bench/libraries.txt && python -m bench libraries_histogram
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

from blendstream.blender.noise.exact_noise import ExactNoise, laplace_tail
from blendstream.blender.paper.head_list import ThresholdSelector
from blendstream.blender.sharp.stable_histogram import StableHistogram
from blendstream.blender.values.arrays import IntArray
from blendstream.blender.values.interfaces import HeadListSelector
from blendstream.blender.values.parameters import PrivacyParameters
from blendstream.evaluation.populations import AOL, YANDEX, Setting

TITLE = "Histograms of other libraries"
TEXT = """
List length and δ of other libraries' opt-in histograms on the same people, ε and δ. It needs
`pip install -r bench/libraries.txt`.
"""
SHOWN_IN = "evaluation.md#beside-existing-libraries"

RUNS, SEED, EPSILON = 5, 7, 4.0


def main() -> None:
    """Print a table for each population."""
    if find_spec("pydp") is None:
        print("python-dp is not installed: pip install -r bench/libraries.txt")
        return
    for setting in (AOL, YANDEX):
        _table(setting)


def _table(setting: Setting) -> None:
    rng = np.random.default_rng(SEED)
    users = round(0.95 * setting.optin_share * setting.users)
    data: list[IntArray] = []
    for _ in range(RUNS):
        data.append(np.unique(setting.people.draw(users, rng), return_counts=True)[1])
    print(f"\n{setting.title}: {users} users in S, ε = {EPSILON:g}, δ = {setting.delta:g}")
    print(f"{'':44}{'records':>9}{'/ paper':>9}   δ")
    baseline = 0.0
    for name, (select, delta) in _candidates(setting).items():
        found = float(np.mean([select(counts) for counts in data]))
        baseline = baseline or found
        print(f"{name:44}{found:9.1f}{found / baseline:9.2f}   {delta}")


Select = Callable[[IntArray], int]


def _candidates(setting: Setting) -> dict[str, tuple[Select, str]]:
    threshold = opendp_threshold(EPSILON, setting.delta)
    true_delta = laplace_tail(threshold - 1, scale=2 / EPSILON)
    stated = opendp_delta(threshold)
    return {
        "ours, paper (threshold, no counts)": (_ours(ThresholdSelector(), setting), "exact"),
        "ours, sharp (counts too)": (_ours(StableHistogram(), setting), "exact"),
        f"OpenDP make_laplace_threshold at {threshold} (counts too)": (
            _opendp(threshold),
            f"states {stated:.2g}, a count of 1 passes with {true_delta:.2g}",
        ),
        "Google, truncated geometric (no counts)": (_google("truncated_geometric", setting), ""),
        "Google, Laplace (no counts)": (_google("laplace", setting), ""),
    }


def _ours(selector: HeadListSelector, setting: Setting) -> Select:
    parameters = PrivacyParameters(epsilon=EPSILON, delta=setting.delta)

    def select(counts: IntArray) -> int:
        known = np.zeros(len(counts), dtype=np.bool_)
        return len(selector.select(counts, known, parameters, ExactNoise()).kept)

    return select


def _opendp_histogram(threshold: int) -> Any:
    import opendp.prelude as dp  # noqa: PLC0415

    dp.enable_features("contrib")
    space: Any = (
        dp.map_domain(dp.atom_domain(T="i64"), dp.atom_domain(T="i64")),
        dp.l01inf_distance(dp.absolute_distance(T="i64")),
    )
    return dp.m.make_laplace_threshold(*space, scale=2 / EPSILON, threshold=threshold)


def opendp_delta(threshold: int) -> float:
    """δ as OpenDP states it when two keys change by one each."""
    _, delta = _opendp_histogram(threshold).map((2, 2, 1))
    return float(delta)


def opendp_threshold(epsilon: float, delta: float) -> int:
    """The least threshold whose stated δ is small enough."""
    del epsilon  # the scale, 2/ε, has it
    return next(t for t in range(2, 100) if opendp_delta(t) <= delta)


def _opendp(threshold: int) -> Select:
    histogram = _opendp_histogram(threshold)

    def select(counts: IntArray) -> int:
        return len(histogram(dict(enumerate(counts.tolist()))))

    return select


def _google(strategy: str, setting: Setting) -> Select:
    from pydp.algorithms.partition_selection import create_partition_strategy  # noqa: PLC0415

    delta = setting.delta / (1 + math.exp(EPSILON / 2))
    chosen: Any = create_partition_strategy(strategy, EPSILON / 2, delta, 1)
    return lambda counts: sum(chosen.should_keep(int(count)) for count in counts)


if __name__ == "__main__":
    main()
