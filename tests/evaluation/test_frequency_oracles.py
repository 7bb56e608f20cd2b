"""Counts of local reports are drawn from their exact distribution, and the reports are private.

Statistical tests use fixed seeds; bounds are at five standard errors, which one seed in a million
would miss for each number compared. Small cases are enumerated, report by report.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import product

import numpy as np
import pytest
from scipy.stats import binom

from blendstream.blender.values.errors import ParameterError
from blendstream.evaluation.baselines.frequency_oracles import (
    FrequencyOracle,
    draw_best,
    local_hashing,
    unary_encoding,
)

Channel = dict[object, float]
#: Every report that a device can send, its probability for each of three held values, and which
#: of the values it supports.
Reports = tuple[list[Channel], dict[object, tuple[int, ...]]]

VALUES = 3


def hashing_reports(epsilon: float, buckets: int) -> Reports:
    """Enumerate all hash functions of three values, and the bucket reported with each."""
    odds = math.exp(epsilon)
    channels: list[Channel] = [{} for _ in range(VALUES)]
    supports = {}
    for function in product(range(buckets), repeat=VALUES):
        for bucket in range(buckets):
            report = (function, bucket)
            supports[report] = tuple(int(b == bucket) for b in function)
            for value in range(VALUES):
                tells = odds if function[value] == bucket else 1.0
                channels[value][report] = tells / (odds + buckets - 1) / buckets**VALUES
    return channels, supports


def encoding_reports(epsilon: float) -> Reports:
    """Enumerate all bit strings; each bit is flipped with probability 1/(e^(ε/2)+1)."""
    flip = 1 / (math.exp(epsilon / 2) + 1)
    strings = list(product((0, 1), repeat=VALUES))
    channels: list[Channel] = [
        {
            bits: math.prod(
                1 - flip if bit == (place == value) else flip for place, bit in enumerate(bits)
            )
            for bits in strings
        }
        for value in range(VALUES)
    ]
    return channels, {bits: bits for bits in strings}


CASES = {
    "local hashing, 2 buckets": (hashing_reports(1.0, 2), local_hashing(1.0, 2)),
    "local hashing, 4 buckets": (hashing_reports(1.0, 4), local_hashing(1.0)),
    "unary encoding": (encoding_reports(1.0), unary_encoding(1.0)),
}


def worst_ratio(channels: list[Channel]) -> float:
    """The largest factor by which a report is likelier for one value than for another."""
    return max(a[r] / b[r] for a in channels for b in channels for r in a)


@pytest.mark.parametrize("name", CASES)
def test_no_report_is_likelier_for_one_value_than_the_budget_allows(name: str) -> None:
    """ε = 1 for the device, enumerated over every report; and no less: the budget is used."""
    (channels, _), _ = CASES[name]

    assert all(sum(channel.values()) == pytest.approx(1) for channel in channels)
    assert worst_ratio(channels) == pytest.approx(math.e)


def test_flipping_each_bit_with_all_of_the_budget_is_seen_to_cost_twice() -> None:
    """The classic mistake: one value's bit is cleared and another's set, so two bits tell."""
    broken, _ = encoding_reports(2.0)  # flips with 1/(e^ε + 1) for ε = 1

    assert worst_ratio(broken) == pytest.approx(math.e**2)


def law_of_counts(reports: Reports, holders: tuple[int, ...]) -> dict[tuple[int, ...], float]:
    """P(supports of the three values) by going through every device's reports."""
    channels, supports = reports
    law: dict[tuple[int, ...], float] = {(0,) * VALUES: 1.0}
    for value, devices in enumerate(holders):
        one: Counter[tuple[int, ...]] = Counter()
        for report, p in channels[value].items():
            one[supports[report]] += p
        for _ in range(devices):
            after: Counter[tuple[int, ...]] = Counter()
            for counts, p in law.items():
                for supported, chance in one.items():
                    seen = tuple(n + s for n, s in zip(counts, supported, strict=True))
                    after[seen] += p * chance
            law = dict(after)
    return law


@pytest.mark.parametrize("name", CASES)
def test_supports_are_independent_binomials_exactly(name: str) -> None:
    """The whole simulation rests on it: every outcome's probability is compared."""
    reports, oracle = CASES[name]
    holders = (2, 1, 0)
    law = law_of_counts(reports, holders)

    for counts, p in law.items():
        assert math.prod(
            _law_of_one(oracle, held, 3)[n] for held, n in zip(holders, counts, strict=True)
        ) == pytest.approx(p)


def test_supporting_others_as_rarely_as_a_wrong_bucket_is_reported_is_seen() -> None:
    """A broken oracle: q = (1−p)/(g−1), the probability of one wrong bucket, in place of 1/g."""
    reports, right = CASES["local hashing, 4 buckets"]
    broken = FrequencyOracle(own=right.own, other=(1 - right.own) / 3)
    law = law_of_counts(reports, (2, 1, 0))
    of_none = sum(p for counts, p in law.items() if counts[2] == 0)

    assert _law_of_one(right, 0, 3)[0] == pytest.approx(of_none)
    assert abs(_law_of_one(broken, 0, 3)[0] - of_none) > 0.05


def _law_of_one(oracle: FrequencyOracle, held: int, users: int) -> np.ndarray:
    own = binom.pmf(np.arange(held + 1), held, oracle.own)
    others = binom.pmf(np.arange(users - held + 1), users - held, oracle.other)
    return np.convolve(own, others)


@pytest.mark.parametrize("name", CASES)
def test_estimates_are_unbiased_and_vary_as_the_formula_says(name: str) -> None:
    """Means and variances over 4 000 runs of 500 devices."""
    _, oracle = CASES[name]
    p, users, runs = np.array([0.3, 0.1, 0.0]), 500, 4_000
    rng = np.random.default_rng(2)
    holders = rng.multinomial(users, [*p, 1 - p.sum()], size=runs)[:, :3]
    drawn = np.stack([oracle.estimate(oracle.draw_supports(h, users, rng), users) for h in holders])
    variance = oracle.variance(p, users)

    assert (np.abs(drawn.mean(axis=0) - p) <= 5 * np.sqrt(variance / runs)).all()
    assert (np.abs(drawn.var(axis=0) / variance - 1) <= 5 * math.sqrt(2 / runs)).all()


def test_the_variance_of_a_rare_value_is_the_published_one() -> None:
    """4e^ε/(n(e^ε−1)²) for local hashing with its best number of buckets (Wang et al., 2017)."""
    epsilon, users = math.log(55), 1_000  # e^ε + 1 is whole
    published = 4 * 55 / (users * 54**2)

    assert local_hashing(epsilon).variance(np.zeros(1), users) == pytest.approx(published)


def test_the_best_of_many_that_nobody_holds_are_those_of_drawing_all() -> None:
    """Supports of 3 of 200 empty candidates at once, against all 200 drawn: mean and spread."""
    oracle, users, runs = local_hashing(1.0), 300, 3_000
    rng = np.random.default_rng(4)
    kept = np.array(
        [[_supports(oracle, 200, users, 3, rng)] for _ in range(runs)], dtype=float
    ).reshape(runs, 3)
    everything = np.sort(rng.binomial(users, oracle.other, size=(runs, 200)), axis=1)[:, :-4:-1]
    spread = everything.std(axis=0)

    assert (np.diff(kept, axis=1) <= 0).all()
    apart = np.abs(kept.mean(axis=0) - everything.mean(axis=0))
    assert (apart <= 5 * spread * math.sqrt(2 / runs)).all()
    assert (np.abs(kept.std(axis=0) / spread - 1) <= 5 / math.sqrt(runs)).all()


def _supports(
    oracle: FrequencyOracle, number: int, users: int, keep: int, rng: np.random.Generator
) -> list[int]:
    from blendstream.evaluation.baselines.frequency_oracles import (
        _largest_of_empty,
    )

    return _largest_of_empty(oracle, number, users, keep, rng).tolist()


def test_a_held_value_wins_as_often_as_drawing_everything_says() -> None:
    """One value is held by 30 of 300; 500 others by nobody: how often is it among the best two?"""
    oracle, users, runs = local_hashing(1.0), 300, 3_000
    rng = np.random.default_rng(8)
    wins = np.mean(
        [0 in draw_best(oracle, np.array([30]), 501, users, 2, rng) for _ in range(runs)]
    )
    own = oracle.draw_supports(np.full(runs, 30), users, rng)
    others = np.sort(rng.binomial(users, oracle.other, size=(runs, 500)), axis=1)[:, -2:]
    expected = np.mean((own > others[:, 0]) + 0.5 * (own == others[:, 0]))
    margin = 5 * math.sqrt(2 * 0.25 / runs)

    assert abs(wins - expected) <= margin


def test_candidates_must_include_all_that_are_held() -> None:
    with pytest.raises(ParameterError, match="candidates must include all that are held, got 1"):
        draw_best(local_hashing(1.0), np.array([3, 4]), 1, 10, 1, np.random.default_rng(0))
