"""What others do with the same people: each baseline is private, unbiased, and scored alike.

Statistical tests use fixed seeds; bounds are at five standard errors, which one seed in a million
would miss for each number compared.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from blendstream.blender.sharp.stable_histogram import below_threshold_heads, stable_threshold
from blendstream.blender.values.errors import ParameterError
from blendstream.blender.values.parameters import PrivacyParameters
from blendstream.blender.values.record import Record
from blendstream.evaluation.baselines.frequency_oracles import local_hashing, unary_encoding
from blendstream.evaluation.baselines.given_candidates import estimate_candidates
from blendstream.evaluation.baselines.held_items import HeldItems, held_queries, held_records
from blendstream.evaluation.baselines.ldp_miner import PaddedReports, publish_by_ldp_miner
from blendstream.evaluation.baselines.prefix_extension import (
    discover,
    prefix_lengths,
    publish_by_prefixes,
)
from blendstream.evaluation.baselines.published_list import NOBODY, PublishedList, score_list
from blendstream.evaluation.baselines.trusted_curator import publish_by_curator
from blendstream.evaluation.populations import AOL, Setting, TablePeople, ZipfPeople
from tests.evaluation.test_frequency_oracles import encoding_reports, hashing_reports

TABLE = TablePeople(
    [Record("b", "y"), Record("a", "x"), Record("b", "x"), Record("c", "z")],
    np.array([10, 40, 30, 20]),
)
SMALL = replace(AOL, people=ZipfPeople(queries=300), users=20_000, list_size=5)
OF_TABLE = replace(SMALL, people=TABLE, list_size=3, is_table=True)


def everyone(setting: Setting, seed: int = 1) -> HeldItems:
    return held_records(setting, np.random.default_rng(seed))


def laplace_tail(j: int, scale: float) -> float:
    """P(X ≥ j), in plain Python."""
    return math.exp(-j / scale) / (1 + math.exp(-1 / scale))


# ---------------------------------------------------------------- the trusted curator


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-7])
def test_a_record_of_one_person_passes_the_curator_with_probability_delta_at_most(
    delta: float,
) -> None:
    """Of two neighbouring data sets only one may have it; computed from the noise's tail."""
    epsilon = 4.0
    theta, luck = stable_threshold(epsilon, delta), below_threshold_heads(epsilon, delta) / 2**32
    passes = (1 - luck) * laplace_tail(theta - 1, 2 / epsilon) + luck * laplace_tail(
        theta - 2, 2 / epsilon
    )
    broken = laplace_tail(theta - 2, 2 / epsilon)  # a threshold lower by one

    assert 0.5 * delta < passes <= delta < broken


def test_the_curators_estimates_are_unbiased_and_vary_as_sampling_and_noise_do() -> None:
    """p(1−p)/n and the noise's 2e^{−1/b}/(1−e^{−1/b})²/n², over 2 000 runs."""
    parameters = PrivacyParameters(epsilon=1.0, delta=1e-5, head_list_cells=4)
    users, runs = 200, 2_000
    estimates = np.zeros((runs, 4))
    rng = np.random.default_rng(5)
    for run in range(runs):
        published = publish_by_curator(TABLE.draw(users, rng), parameters, rng)
        estimates[run, published.numbers] = published.probability
    frequent = TABLE.top(1)
    p = TABLE.probability(frequent)[0]
    e = math.exp(-1 / 2)
    variance = p * (1 - p) / users + 2 * e / (1 - e) ** 2 / users**2
    shown = estimates[:, frequent[0]]

    assert abs(shown.mean() - p) <= 5 * math.sqrt(variance / runs)
    assert abs(shown.var() / variance - 1) <= 5 * math.sqrt(2 / runs)


def test_the_curator_publishes_no_more_than_asked_for_and_nothing_from_nobody() -> None:
    parameters = PrivacyParameters(head_list_cells=2)
    rng = np.random.default_rng(1)

    assert len(publish_by_curator(TABLE.draw(5_000, rng), parameters, rng).numbers) == 2
    assert len(publish_by_curator(TABLE.draw(0, rng), parameters, rng).numbers) == 0


# ---------------------------------------------------------------- given candidates


def test_estimates_of_given_candidates_are_unbiased_in_any_order() -> None:
    """A candidate that nobody holds is estimated as 0 on average; 600 runs of 2 000 devices."""
    parameters = PrivacyParameters(epsilon=2.0, head_list_cells=4)
    candidates = np.array([3, NOBODY, 0, 2])
    held = TABLE.draw(2_000, np.random.default_rng(2))
    truth = np.array([np.mean(held == c) if c != NOBODY else 0.0 for c in candidates])
    rng = np.random.default_rng(3)
    runs = np.stack(
        [estimate_candidates(held, candidates, parameters, rng).probability for _ in range(600)]
    )
    error = runs.std(axis=0) / math.sqrt(600)

    assert (np.abs(runs.mean(axis=0) - truth) <= 5 * error).all()


# ---------------------------------------------------------------- prefixes


def test_every_group_reports_a_longer_prefix_and_the_last_one_the_whole_code() -> None:
    """As few groups as the curator's work allows: each of them is smaller."""
    assert prefix_lengths(48, 50, 1 << 20) == [20, 34, 48]
    assert prefix_lengths(16, 50, 1 << 20) == [16]
    with pytest.raises(ParameterError, match="candidates must be at least 2·M"):
        prefix_lengths(48, 64, 64)


def test_with_much_budget_the_true_top_is_discovered_in_order() -> None:
    """Half, a quarter and an eighth of 60 000 people, in a code of 24 bits and four groups."""
    rng = np.random.default_rng(4)
    codes = np.array([0xABCDEF, 0x123456, 0xABC000, *rng.integers(0, 1 << 24, size=500)])
    weights = np.array([0.5, 0.25, 0.125, *[0.125 / 500] * 500])
    held = rng.choice(codes, size=60_000, p=weights)

    found = discover(held, 24, 3, 6.0, rng, candidates=1 << 8)

    assert found.tolist() == codes[:3].tolist()


def test_groups_of_people_are_disjoint() -> None:
    """A broken method in which everyone reports every prefix would spend ε once per group.

    The first group's people hold one code only. That the others hold another cannot be found any
    more, unless they were in the first group too, as in the broken method; mixed, both are found.
    """
    one, another = 0b1111_0000, 0b0000_1111
    held = np.repeat([one, another], [4_000, 8_000])
    rng = np.random.default_rng(6)
    apart = discover(held, 8, 2, 8.0, rng, candidates=1 << 4)
    mixed = discover(rng.permutation(held), 8, 2, 8.0, rng, candidates=1 << 4)

    assert prefix_lengths(8, 2, 1 << 4) == [4, 7, 8]
    assert another not in apart.tolist()
    assert set(mixed.tolist()) == {one, another}


def test_prefixes_that_nobody_holds_are_different_texts_of_nobody() -> None:
    """With hardly any budget the list is noise: it must not be taken for records."""
    items = everyone(SMALL)
    parameters = PrivacyParameters(epsilon=0.01, head_list_cells=5)
    published = publish_by_prefixes(items, parameters, np.random.default_rng(7))

    assert published.numbers.tolist().count(NOBODY) >= 4
    assert score_list(published, items, 5)["found"] <= 1


# ---------------------------------------------------------------- LDPMiner


def test_both_reports_together_spend_epsilon() -> None:
    """Enumerated: every pair of reports, for every pair of values; half of ε in each phase."""
    first, _ = hashing_reports(0.5, 2)
    second, _ = encoding_reports(0.5)
    ratios = [
        first[v][a] / first[w][a] * second[v][b] / second[w][b]
        for v, w in product(range(3), repeat=2)
        for a in first[v]
        for b in second[v]
    ]
    broken = [  # all of ε in each phase
        x[v][a] / x[w][a] * y[v][b] / y[w][b]
        for x, y in [(hashing_reports(1.0, 2)[0], encoding_reports(1.0)[0])]
        for v, w in product(range(3), repeat=2)
        for a in x[v]
        for b in y[v]
    ]

    assert max(ratios) == pytest.approx(math.e)
    assert max(broken) == pytest.approx(math.e**2)


@pytest.mark.parametrize("padding", [1, 6])
def test_padded_reports_are_unbiased_and_vary_as_the_formula_says(padding: int) -> None:
    """Over 4 000 runs of 800 devices; padding to ℓ costs about ℓ² times the variance."""
    reports = PaddedReports(unary_encoding(1.0), padding)
    p, users, runs = np.array([0.3, 0.0]), 800, 4_000
    rng = np.random.default_rng(2)
    held = rng.binomial(users, p, size=(runs, 2))
    drawn = np.stack([reports.draw_estimates(h, users, rng) for h in held])
    variance = reports.variance(p, users)

    assert (np.abs(drawn.mean(axis=0) - p) <= 5 * np.sqrt(variance / runs)).all()
    assert (np.abs(drawn.var(axis=0) / variance - 1) <= 5 * math.sqrt(2 / runs)).all()
    unpadded = PaddedReports(unary_encoding(1.0), 1).variance(p, users)
    assert variance[1] == pytest.approx(padding**2 * unpadded[1])


def test_the_miner_finds_what_half_the_budget_in_each_phase_can_find() -> None:
    """Frequent queries at a large ε, and mostly texts of nobody at a small one."""
    items = held_queries(SMALL, np.random.default_rng(3))
    rng = np.random.default_rng(4)
    rich = score_list(publish_by_ldp_miner(items, 5, 12.0, rng), items, 5)
    poor = score_list(publish_by_ldp_miner(items, 5, 0.02, rng), items, 5)

    assert rich["found"] == 5
    assert rich["ndcg"] == pytest.approx(1, abs=1e-3)
    assert poor["found"] < rich["found"]
    assert poor["union_l1"] > 1 > rich["union_l1"]


def test_the_miner_uses_binary_hashing_with_half_of_epsilon() -> None:
    """Its first phase is the succinct histogram, one bit per person."""
    half = local_hashing(2.0, buckets=2)

    assert half.other == 0.5
    assert half.own == pytest.approx(math.exp(2) / (math.exp(2) + 1))


# ---------------------------------------------------------------- items and scores


@pytest.mark.parametrize("setting", [SMALL, OF_TABLE], ids=["generator", "table"])
def test_codes_tell_records_apart_and_share_their_querys_beginning(setting: Setting) -> None:
    """A prefix of 32 bits is a query: people who clicked different URLs support it together."""
    items = everyone(setting)
    numbers = np.unique(items.held)
    codes = items.codes(numbers)

    assert len(np.unique(codes)) == len(numbers)
    assert int(codes.max()) < 1 << 48
    queries = setting.people.query(numbers)
    assert len(np.unique(codes >> 16)) == len(np.unique(queries))


def test_queries_are_items_with_their_own_truth() -> None:
    """Worked by hand: of 100 people 40 hold a query a or b, 20 c."""
    items = held_queries(OF_TABLE, np.random.default_rng(1))
    top = items.top(3)

    assert items.domain == 3
    assert sorted(items.records(top)) == [("a", ""), ("b", ""), ("c", "")]
    assert items.probability(top).tolist() == pytest.approx([0.4, 0.4, 0.2])
    assert everyone(OF_TABLE).domain == 4


def test_scores_by_hand() -> None:
    """⟨a,x⟩ at 0.4 is estimated 0.3, ⟨b,x⟩ is missing, and one text is nobody's."""
    items = everyone(OF_TABLE)
    a = items.top(1)[0]
    published = PublishedList(np.array([a, NOBODY]), np.array([0.3, 0.05]))
    scored = score_list(published, items, 2)

    assert scored["top_l1"] == pytest.approx(0.1 + 0.3)
    assert scored["union_l1"] == pytest.approx(0.1 + 0.3 + 0.05)
    assert scored["found"] == 1
    assert scored["ndcg_listed"] == pytest.approx(1)
    assert scored["ndcg_ranks"] == pytest.approx(2 / (2 + 1 / math.log2(3)))
    nothing = PublishedList(np.zeros(0, dtype=np.int64), np.zeros(0))
    assert score_list(nothing, items, 2)["top_l1"] == pytest.approx(0.7)
    assert score_list(nothing, items, 2)["ndcg"] == 0


def test_a_list_that_is_too_short_costs_in_ndcg_at_both_levels() -> None:
    """The paper's NDCG compares k items with the best k, so a list of one could be perfect.

    The true top 3 are ⟨a,x⟩, ⟨b,x⟩ and ⟨c,z⟩ with 0.4, 0.3 and 0.2; by hand for ⟨a,x⟩ alone.
    """
    items = everyone(OF_TABLE)
    a, b, c = items.top(3)
    alone = score_list(PublishedList(np.array([a]), np.array([0.4])), items, 3)
    gains = [2 ** (p / 0.9) - 1 for p in (0.4, 0.3, 0.2)]
    ideal = sum(g / math.log2(i) for i, g in enumerate(gains, start=2))

    assert alone["ndcg_k"] == pytest.approx(1)
    assert alone["ndcg"] == pytest.approx(gains[0] / ideal)
    # ⟨b,x⟩ for the query b, whose other URL is in the true top 4.
    without = score_list(PublishedList(np.array([a, b, c]), np.array([0.4, 0.3, 0.2])), items, 4)
    whole = score_list(PublishedList(items.top(4), np.array([0.4, 0.3, 0.2, 0.1])), items, 4)
    assert without["ndcg_k"] > without["ndcg"]
    assert whole["ndcg"] == pytest.approx(1)
