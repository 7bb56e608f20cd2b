"""Release-Data (Korolova et al.): the release, its limits, and where URLs may come from."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from blendstream.blender import (
    ClickGraphParameters,
    HeadList,
    ParameterError,
    PublicUrlTable,
    RandomizerSpec,
    Record,
    get_click_counts,
    get_query_counts,
    release_data,
    select_queries,
)
from blendstream.blender.paper.click_graph import best_threshold
from tests.doubles import NoNoise, ScriptedNoise
from tests.output_distributions import GONE, distribution, divergence

PARAMETERS = ClickGraphParameters(
    queries_per_user=2,
    clicks_per_user=3,
    selection_scale=0.5,
    query_scale=1.0,
    click_scale=2.0,
    threshold=10,
)
URLS = PublicUrlTable.from_outside_source("a crawl", {"cats": ["c1", "c2"], "dogs": ["d1"]})


def test_the_release_itself():
    """Selection, fresh noise on the counts, and every public URL of a selected query."""
    noise = ScriptedNoise([0, 3, -1], [5, -2], [1, 0, -4])
    queries = {"dogs": 7, "cats": 10, "rare": 10, "gone": 0}
    clicks = {Record("cats", "c1"): 6, Record("dogs", "d1"): 3, Record("rare", "r1"): 9}

    graph = release_data(queries, clicks, URLS, PARAMETERS, noise)

    assert dict(graph.queries) == {"cats": 15, "dogs": 5}
    assert dict(graph.clicks) == {
        Record("cats", "c1"): 7,
        Record("cats", "c2"): 0,  # never clicked, published all the same
        Record("dogs", "d1"): -1,
    }
    assert noise.scales == [0.5, 1.0, 2.0]
    assert noise.sizes == [3, 2, 3], "a query nobody asked is not looked at"
    assert graph.url_source == "a crawl"


def test_a_selected_query_without_public_urls_shows_no_clicks():
    graph = release_data({"new": 20}, {Record("new", "u"): 20}, URLS, PARAMETERS, NoNoise())
    assert dict(graph.queries) == {"new": 20}
    assert dict(graph.clicks) == {}


def test_an_empty_log_makes_an_empty_graph():
    graph = release_data({}, {}, URLS, PARAMETERS, NoNoise())
    assert (dict(graph.queries), dict(graph.clicks)) == ({}, {})


def test_a_table_at_hand_cannot_be_passed():
    """The clicked URLs of the log are the likeliest thing at hand, and would reveal themselves."""
    log_table = {"cats": ["c1", "secret"]}
    with pytest.raises(ParameterError, match="outside the data"):
        release_data({"cats": 20}, {}, log_table, PARAMETERS, NoNoise())
    with pytest.raises(ParameterError, match="from_head_list"):
        PublicUrlTable()
    with pytest.raises(TypeError):
        PublicUrlTable(log_table)
    with pytest.raises(ParameterError, match="must be named"):
        PublicUrlTable.from_outside_source("  ", log_table)


def test_a_published_head_list_is_a_public_table():
    records = (Record("cats", "c2"), Record("dogs", "d1"), Record("cats", "c1"))
    head_list = HeadList(records, 1, RandomizerSpec("two-stage", 4.0), query_wildcards=True)
    table = PublicUrlTable.from_head_list(head_list)
    assert table.urls("cats") == ("c2", "c1")
    assert table.urls("fish") == ()


def test_a_query_has_ten_public_urls_at_most_and_each_once():
    many = [f"u{i // 2}" for i in range(40)]
    table = PublicUrlTable.from_outside_source("a crawl", {"q": many})
    assert table.urls("q") == tuple(f"u{i}" for i in range(10))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"threshold": 2}, r"Theorem 1 \(Release-Data\) holds for K ≥ d"),
        ({"queries_per_user": 0}, "queries_per_user must be an integer"),
        ({"click_scale": 0.0}, "click_scale must be finite and above 0"),
        ({"selection_scale": math.inf}, "selection_scale must be finite"),
    ],
)
def test_parameters_outside_the_theorem_are_refused(changed, message):
    values = {name: getattr(PARAMETERS, name) for name in PARAMETERS.__slots__}
    with pytest.raises(ParameterError, match=message):
        ClickGraphParameters(**{**values, **changed})


@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("epsilon", [0.05, 0.5, 2.0])
@pytest.mark.parametrize("delta", [0.2, 1e-3, 1e-8])
def test_parameters_for_a_budget_spend_no_more_than_it(d, epsilon, delta):
    parameters = ClickGraphParameters.for_budget(
        selection_epsilon=epsilon,
        query_epsilon=0.3,
        click_epsilon=0.2,
        delta=delta,
        queries_per_user=d,
        clicks_per_user=4,
    )
    assert parameters.epsilon <= (epsilon + 0.5) * (1 + 1e-12)
    assert parameters.delta <= delta * (1 + 1e-12)


def test_a_budget_outside_its_range_is_refused():
    budget = {"query_epsilon": 1.0, "click_epsilon": 1.0, "queries_per_user": 1}
    with pytest.raises(ParameterError, match=r"delta must lie in \(0, 1\)"):
        ClickGraphParameters.for_budget(
            selection_epsilon=1.0, delta=0.0, clicks_per_user=1, **budget
        )
    with pytest.raises(ParameterError, match="selection_epsilon must be finite"):
        ClickGraphParameters.for_budget(
            selection_epsilon=0.0, delta=0.1, clicks_per_user=1, **budget
        )


@pytest.mark.parametrize(
    ("d", "epsilon", "delta"), [(1, 1.0, 1e-2), (2, 1.0, 1e-2), (3, 2.0, 1e-3)]
)
def test_selecting_queries_keeps_its_promise_for_every_small_log(d, epsilon, delta):
    """Enumerated: one user with up to d queries, spread in every way, is added or removed.

    A query's probability of selection depends on its own count alone, so a log is a list of counts,
    and a set of outputs factorises over queries.
    """
    scale, theta = best_threshold(epsilon=epsilon, delta=delta, queries_per_user=d)
    spreads = {1: [(1,)], 2: [(2,), (1, 1)], 3: [(3,), (2, 1), (1, 1, 1)]}[d]
    with localcontext() as context:
        context.prec = 50
        r = (-1 / Decimal(scale)).exp()
        alpha_d = max(Decimal(epsilon).exp(), Decimal(0))

        def selected(n):
            j = theta - n
            if n == 0:
                return Decimal(0)
            return r**j / (1 + r) if j >= 1 else 1 - r ** (1 - j) / (1 + r)

        worst = Decimal(0)
        starts = [0, 1, theta - d, theta - 1, theta + 2]
        for spread in spreads:
            for base in np.ndindex(*(len(starts),) * len(spread)):
                without = [selected(starts[i]) for i in base]
                with_user = [selected(starts[i] + n) for i, n in zip(base, spread, strict=True)]
                for p, q in ((without, with_user), (with_user, without)):
                    divergence = Decimal(0)
                    for output in np.ndindex(*(2,) * len(spread)):
                        chance_p = math.prod(
                            x if o else 1 - x for o, x in zip(output, p, strict=True)
                        )
                        chance_q = math.prod(
                            x if o else 1 - x for o, x in zip(output, q, strict=True)
                        )
                        divergence += max(Decimal(0), chance_p - alpha_d * chance_q)
                    worst = max(worst, divergence)
        assert 0 < worst <= Decimal(delta)


def test_repeating_one_query_is_what_the_threshold_fears():
    """One user may ask the same query d times, so θ lies d above the rare noise."""
    _, theta = best_threshold(epsilon=2.0, delta=1e-4, queries_per_user=4)
    parameters = ClickGraphParameters(4, 1, 2.0, 1.0, 1.0, theta)
    assert parameters.delta <= 1e-4
    assert ClickGraphParameters(4, 1, 2.0, 1.0, 1.0, theta - 1).delta > 1e-4
    assert Fraction(parameters.delta) > 0
    assert select_queries({"q": 4}, parameters, NoNoise()) == ()


def released_distribution(
    asked: int, clicks: int, parameters: ClickGraphParameters, factors
) -> dict:
    """P(what the whole release shows of one query with one public URL), by the code's own noise.

    `factors` break the noise of selection, query counts and click counts, one each.
    """
    if asked == 0:
        return {GONE: 1.0}  # not looked at: `test_the_release_itself`

    def names(copies):
        return [f"q{i:06d}" for i in range(copies)]

    def select(copies, noise):
        kept = set(select_queries(dict.fromkeys(names(copies), asked), parameters, noise))
        return [name in kept for name in names(copies)]

    def count(copies, noise):
        counts = dict.fromkeys(names(copies), asked)
        return list(get_query_counts(names(copies), counts, parameters, noise).values())

    def click(copies, noise):
        urls = PublicUrlTable.from_outside_source("a crawl", {q: ["u"] for q in names(copies)})
        counts = {Record(q, "u"): clicks for q in names(copies)}
        return list(get_click_counts(names(copies), counts, urls, parameters, noise).values())

    scales = (parameters.selection_scale, parameters.query_scale, parameters.click_scale)
    selected, counted, clicked = (
        distribution(show, reach=math.ceil(34 * scale) + 12, factor=factor)
        for show, scale, factor in zip((select, count, click), scales, factors, strict=True)
    )
    shown = {
        (y, z): selected[True] * p_y * p_z
        for y, p_y in counted.items()
        for z, p_z in clicked.items()
    }
    return {GONE: selected[False], **shown}


def worst_release(parameters: ClickGraphParameters, factors=(1.0, 1.0, 1.0)) -> float:
    """One user with up to two queries and two clicks, spread in every way, is added or removed."""
    theta = parameters.threshold
    d, d_c = parameters.queries_per_user, parameters.clicks_per_user
    spreads = [((d, d_c),), ((1, 1),)]
    if d == d_c == 2:
        spreads.append(((1, 1), (1, 1)))
    starts = [(0, 0), (theta - d, 3)]
    distributions = {
        (n, c): released_distribution(n, c, parameters, factors)
        for n, c in {
            (n + more, c + clicks)
            for n, c in starts
            for spread in spreads
            for more, clicks in ((0, 0), *spread)
        }
    }
    worst = 0.0
    for spread in spreads:
        for places in itertools.combinations_with_replacement(starts, len(spread)):
            without = [distributions[place] for place in places]
            with_user = [
                distributions[n + more, c + clicks]
                for (n, c), (more, clicks) in zip(places, spread, strict=True)
            ]
            for p, q in ((without, with_user), (with_user, without)):
                worst = max(worst, divergence(p, q, parameters.epsilon))
    return worst


def release_parameters(d: int) -> ClickGraphParameters:
    return ClickGraphParameters.for_budget(
        selection_epsilon=1.5,
        query_epsilon=1.0,
        click_epsilon=1.2,
        delta=1e-3,
        queries_per_user=d,
        clicks_per_user=d,
    )


@pytest.mark.parametrize("d", [1, 2])
def test_the_whole_release_keeps_its_promise_with_counts_and_clicks(d):
    """Add or remove one user: (ε_alg, δ_alg), by the noise that each of three steps asks for."""
    parameters = release_parameters(d)
    assert parameters.delta / 100 < worst_release(parameters) <= parameters.delta + 1e-11


@pytest.mark.parametrize("factor", [0.5, 0.9])
@pytest.mark.parametrize("step", [0, 1, 2])
def test_noise_understated_by_a_tenth_is_caught_in_each_step(step, factor):
    """Deliberately broken, one step at a time: selection, query counts, click counts."""
    parameters = release_parameters(1)
    factors = [1.0, 1.0, 1.0]
    factors[step] = factor
    assert worst_release(parameters, factors) > 2 * parameters.delta
