"""Verdicts on the paper's sentences: made-up lines that a lenient check would wave through."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from blendstream.evaluation.list_checks import (
    aol_five_percent,
    begins,
    declines,
    declines_alike,
    five_hundred,
    l1_under,
    longer_lists_are_less_accurate,
    ndcg_everywhere,
    ndcg_for_all_but,
    yandex_above_aol,
)
from blendstream.evaluation.measurements import Measurement, Unit, Value
from blendstream.evaluation.paper_checks import (
    Check,
    blend_beats_ingredients,
    blend_is_closest,
    blend_is_similar_to_truth,
    blend_ndcg_flat,
    client_ndcg_peaks,
    epsilon_text,
    l1_falls_with_query_budget,
    one_regression,
    query_beats_urls,
)
from blendstream.evaluation.populations import AOL
from blendstream.evaluation.simulated_epochs import draw_optin, parameters_of, run_epoch
from blendstream.evaluation.summary import Summary

#: (experiment, population, metric, series) → x → (mean, standard error)
Lines = Mapping[tuple[str, str, str, str], Mapping[float, tuple[float, float]]]


def made_up(lines: Lines) -> Summary:
    """Two runs, one standard error above and below the mean, have just that mean and error."""
    return Summary(
        Measurement(Unit(experiment, population, x, run), Value(series, x, metric, value))
        for (experiment, population, metric, series), points in lines.items()
        for x, (mean, error) in points.items()
        for run, value in enumerate((mean - error, mean + error))
    )


def verdict(check: Check, lines: Lines) -> str:
    shown = check(made_up(lines))
    assert shown is not None
    return shown.verdict


def paper_lines(
    experiment: str, metric: str, lines: Mapping[tuple[str, int], Mapping[float, float]]
) -> dict[tuple[str, str, str, str], dict[float, tuple[float, float]]]:
    """Lines of `paper` with an error of 0.01 whose lists are reached wherever they have a point."""
    made = {}
    for (population, size), points in lines.items():
        series = f"paper, M = {size}"
        made[experiment, population, metric, series] = {x: (y, 0.01) for x, y in points.items()}
        made[experiment, population, "reached", series] = dict.fromkeys(points, (1.0, 0.0))
    return made


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ({1: 0.4, 2: 0.3, 3: 0.2, 4: 0.1}, "yes"),
        ({1: 0.4, 2: 0.31, 3: 0.32, 4: 0.1}, "yes"),  # a rise that chance explains
        ({1: 0.4, 2: 0.2, 3: 0.3, 4: 0.1}, "no"),  # the ends alone would say yes
        ({1: 0.4, 2: 0.4, 3: 0.4, 4: 0.1}, "no"),  # flat for most of the way
        ({1: 0.4, 2: 0.1, 3: 0.1, 4: 0.1}, "no"),
        ({1: 0.4, 2: 0.39}, "no"),
    ],
)
def test_a_steady_decline_is_more_than_two_ends(line: dict[float, float], expected: str) -> None:
    """A line that goes up on its way down was once called steady."""
    check = declines("epsilon", "l1", epsilon_text, steadily=True)

    assert verdict(check, paper_lines("epsilon", "l1", {("aol", 10): line})) == expected


def test_a_decline_is_partly_shown_if_some_lists_have_it() -> None:
    """One line that falls must not speak for one that does not."""
    falling, flat = {0.01: 0.4, 0.1: 0.2}, {0.01: 0.1, 0.1: 0.1}
    check = declines("optin_share", "l1", epsilon_text, steadily=False)
    lines = paper_lines("optin_share", "l1", {("aol", 10): flat, ("yandex", 100): falling})

    assert verdict(check, lines) == "partly"


def test_declines_are_alike_for_as_many_more_people() -> None:
    """One line that begins later and so ends higher has not fallen less; a flat one has."""
    steep = {0.01: 0.8, 0.1: 0.3}
    for first, expected in (
        ({0.05: 0.45, 0.1: 0.34}, "yes"),
        ({0.05: 0.45, 0.1: 0.41}, "partly"),
        ({0.05: 0.45, 0.1: 0.45}, "partly"),
    ):
        lines = {("aol", 50): first, ("yandex", 500): steep}
        assert verdict(declines_alike, paper_lines("optin_share", "l1", lines)) == expected


def test_on_both_data_sets_means_on_each() -> None:
    """A list that dips below 95 % at one ε is not made up for by the other data set."""
    for first, expected in ({1.0: 0.99, 4.0: 0.99}, "yes"), ({1.0: 0.93, 4.0: 0.99}, "partly"):
        lines = {("aol", 10): first, ("yandex", 10): {1.0: 0.99, 4.0: 0.99}}
        assert verdict(ndcg_everywhere, paper_lines("epsilon", "ndcg", lines)) == expected


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ({0.5: 0.90, 0.75: 0.94, 0.85: 0.97, 0.95: 0.90}, "yes"),
        ({0.5: 0.90, 0.75: 0.97, 0.85: 0.96, 0.95: 0.90}, "yes"),  # within chance of the best
        ({0.5: 0.90, 0.75: 0.99, 0.85: 0.94, 0.95: 0.85}, "partly"),  # the peak is elsewhere
        ({0.5: 0.96, 0.75: 0.96, 0.85: 0.96, 0.95: 0.96}, "partly"),  # no drop on either side
        ({0.5: 0.99, 0.75: 0.97, 0.85: 0.90, 0.95: 0.99}, "no"),
    ],
)
def test_best_at_085_means_there(points: dict[float, float], expected: str) -> None:
    """Any peak from 0.75 on was once near enough."""
    line = {x: (y, 0.005) for x, y in points.items()}

    key = ("budget_split", "aol", "ndcg", "paper, clients")
    assert verdict(client_ndcg_peaks, {key: line}) == expected


def test_the_more_the_better_is_judged_at_every_step() -> None:
    """L1 over records ends no higher than it began if the budget's middle is looked past."""
    falling = {0.5: (0.4, 0.01), 0.7: (0.3, 0.01), 0.95: (0.2, 0.01)}
    rising = {0.5: (0.4, 0.01), 0.7: (0.2, 0.01), 0.95: (0.3, 0.01)}
    for blend, expected in ((falling, "yes"), (rising, "partly")):
        lines = {
            ("budget_split", "aol", "l1", "paper, clients"): falling,
            ("budget_split", "aol", "l1", "paper"): blend,
        }
        assert verdict(l1_falls_with_query_budget("l1"), lines) == expected


def test_the_blend_must_be_alike_and_equal_to_the_optin_group() -> None:
    """High is one thing, constant another, equal a third."""
    for blend, optin, expected in (
        ((0.97, 0.97), (0.97, 0.97), "yes"),
        ((0.97, 0.99), (0.97, 0.97), "partly"),
        ((0.80, 0.94), (0.90, 0.70), "no"),
    ):
        lines = {
            ("budget_split", "aol", "ndcg", series): {
                0.5: (values[0], 0.001), 0.9: (values[1], 0.001)
            }
            for series, values in (("paper", blend), ("paper, opt-in", optin))
        }  # fmt: skip
        assert verdict(blend_ndcg_flat, lines) == expected


def regressions(**means: float) -> Lines:
    return {
        ("top_ten", "aol", "regressions", f"paper/{name}"): {0: (mean, 0.1)}
        for name, mean in means.items()
    }


def test_one_out_of_order_is_not_two_and_many_are_not_two_either() -> None:
    """Words for numbers, read the way a reader would."""
    assert verdict(one_regression, regressions(blended=1.1)) == "yes"
    assert verdict(one_regression, regressions(blended=1.5)) == "no"
    assert verdict(query_beats_urls, regressions(client_query=1.1, client_urls=3.5)) == "yes"
    assert verdict(query_beats_urls, regressions(client_query=1.1, client_urls=2.3)) == "partly"


def test_the_blend_is_held_against_the_columns_that_add_up_urls() -> None:
    """The paper's column 5 has as few out of order as the blend, there and here."""
    for optin, urls, expected in ((2.4, 2.3, "yes"), (2.4, 1.15, "partly"), (1.1, 1.1, "no")):
        lines = regressions(blended=1.1, optin=optin, client_urls=urls, client_query=1.2)
        assert verdict(blend_beats_ingredients, lines) == expected


def top_ten_column(name: str, spread: float, p: float = 0.01) -> Lines:
    points = {float(rank): (p, spread) for rank in range(1, 11)}
    return {("top_ten", "aol", "p", f"paper/{name}"): points}


def test_closer_than_both_ingredients_means_surely() -> None:
    """Six per cent of an error that is itself known to a tenth are no difference."""
    others = {
        **top_ten_column("truth", 0.0),
        **top_ten_column("optin", 0.03),
        **top_ten_column("blended", 0.001),
        **top_ten_column("client_query", 0.001),
    }
    for clients, expected in ((0.03, "yes"), (0.00105, "partly")):
        lines = {**others, **top_ten_column("client_urls", clients)}
        assert verdict(blend_is_closest, lines) == expected


def test_similar_numbers_are_off_by_less_than_a_tenth() -> None:
    """A tenth is what the paper calls small of L1; chance must not decide."""
    columns = {**top_ten_column("truth", 0.0), **top_ten_column("blended", 0.001)}
    for off, expected in ((0.06, "yes"), (0.09, "no"), (0.2, "no")):
        whole = {("top_ten", "aol", "deviation", "paper/blended"): {0: (off, 0.01)}}
        assert verdict(blend_is_similar_to_truth, {**columns, **whole}) == expected


def test_where_a_line_begins_is_a_point_not_a_region() -> None:
    """4 % is not 4.5 %, nor is 5 %."""
    for before, there, expected in ((0.0, 1.0, "yes"), (0.9, 1.0, "no"), (0.0, 0.2, "no")):
        reached = {0.04: (before, 0.1), 0.045: (there, 0.1), 0.05: (1.0, 0.0)}
        lines = {("optin_share", "aol", "reached", "paper, M = 50"): reached}
        assert verdict(begins("optin_share", 50, 0.045, epsilon_text), lines) == expected


def test_longer_lists_are_held_against_each_other_at_every_share() -> None:
    """The usual share alone would hide a crossing elsewhere."""
    short, long = {0.05: 0.1, 0.1: 0.1}, {0.05: 0.3, 0.1: 0.1}
    lines = paper_lines("optin_share", "l1", {("aol", 10): short, ("aol", 25): long})

    assert verdict(longer_lists_are_less_accurate, lines) == "partly"


def test_a_threshold_is_passed_by_more_than_chance() -> None:
    """0.095 ± 0.01 is not under 0.1."""
    for first, expected in ((0.07, "yes"), (0.095, "partly"), (0.2, "partly")):
        lines = paper_lines("epsilon", "l1", {("yandex", 10): {1.0: first, 2.0: 0.05}})
        assert verdict(l1_under("l1"), lines) == expected


def test_all_but_the_largest_says_something_of_the_largest_too() -> None:
    """If every list is above 95 %, the paper's sentence is not what is seen."""
    check = ndcg_for_all_but("epsilon", 1.0, 1)
    high, low = {1.0: 0.99}, {1.0: 0.90}
    for largest, expected in ((low, "yes"), (high, "partly")):
        lines = paper_lines("epsilon", "ndcg", {("yandex", 10): high, ("yandex", 500): largest})
        assert verdict(check, lines) == expected


def test_every_line_of_the_second_must_lie_above_every_line_of_the_first() -> None:
    """One list length that both have is not the whole figure."""
    lists = {("aol", 10): {1.0: 0.94}, ("yandex", 10): {1.0: 0.99}, ("yandex", 100): {1.0: 0.93}}

    assert verdict(yandex_above_aol, paper_lines("epsilon", "ndcg", lists)) == "no"


def test_enough_is_not_needed() -> None:
    """5 % that give what 1 % gave are enough, not what it takes."""
    for earlier, expected in ((0.90, "yes"), (0.99, "partly")):
        lines = paper_lines("optin_share", "ndcg", {("aol", 10): {0.01: earlier, 0.05: 0.96}})
        assert verdict(aol_five_percent, lines) == expected


def test_high_utility_is_judged_by_the_measure_that_the_figure_shows() -> None:
    """Good order with a large L1 is half of it."""
    for l1, expected in ((0.02, "yes"), (0.3, "partly")):
        lines = {
            **paper_lines("optin_share", "ndcg", {("yandex", 500): {0.025: 0.99}}),
            **paper_lines("optin_share", "l1", {("yandex", 500): {0.025: l1}}),
        }
        assert verdict(five_hundred, lines) == expected


def test_the_opt_in_group_cannot_depend_on_how_devices_split_their_budget() -> None:
    """The report calls this given; then it must be so to the last digit."""
    setting = AOL.scaled(0.2)
    epochs = []
    for share in (0.5, 0.95):
        rng = np.random.default_rng(11)
        parameters = parameters_of(setting, query_budget_share=share)
        epochs.append(run_epoch("paper", setting, draw_optin(setting, rng), parameters, rng))
    first, second = (epoch.estimates.optin.cells.probability for epoch in epochs)

    assert len(first) > 5
    assert first.tolist() == second.tolist()
