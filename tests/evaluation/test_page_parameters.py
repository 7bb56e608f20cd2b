"""What docs/evaluation.md says of the paper's parameters is what the CSV files say."""

from __future__ import annotations

from blendstream.evaluation.certainty import surely_less
from blendstream.evaluation.parameter_experiments import ANSWERS, HELD, SELECTION_SHARES
from blendstream.evaluation.summary import Summary
from tests.evaluation.page import EVERYWHERE, At, Says, span

PROFILES = ("paper", "sharp")
SIZE = dict.fromkeys(EVERYWHERE, 50) | {"yandex": 500}


def answers(at: At, metric: str, series: str, x: float, population: str) -> float:
    return at("answers_per_client", population, metric, series, x).mean


def test_one_answer_per_client_is_best(at: At, says: Says) -> None:
    """The paper: one record per client always has the greatest utility."""
    for profile in PROFILES:
        for held in HELD:
            of = f"{profile}, {held} held"
            for population in EVERYWHERE:
                for who in (of, f"{of}, clients"):
                    one = answers(at, "l1", who, 1.0, population)
                    assert all(one < answers(at, "l1", who, x, population) for x in ANSWERS[1:]), (
                        who,
                        population,
                    )
    two = {
        (profile, who): [
            answers(at, "l1", f"{profile}, 10 held{who}", 2.0, p)
            / answers(at, "l1", f"{profile}, 10 held{who}", 1.0, p)
            for p in EVERYWHERE
        ]
        for profile in PROFILES
        for who in ("", ", clients")
    }
    says(
        "With two answers in place of one, L1 of the clients alone is "
        f"{span(two['paper', ', clients'], '.1f')} times as large in `paper` and "
        f"{span(two['sharp', ', clients'], '.1f')} times in `sharp`, that of the blend "
        f"{span(two['paper', ''], '.1f')} and {span(two['sharp', ''], '.1f')} times"
    )


def found(at: At, x: float, population: str) -> float:
    series = f"paper, M = {SIZE[population]}"
    return at("selection_share", population, "found", series, x).mean


def test_what_a_larger_share_finds(at: At, says: Says) -> None:
    """The paper: past 95 % the list hardly gets longer."""
    before, after = (
        [found(at, b, p) / found(at, a, p) - 1 for p in EVERYWHERE]
        for a, b in ((0.8, 0.9), (0.95, 1.0))
    )

    assert max(after) < min(before) + 0.05
    says(
        f"from 80 to 90 % the list of `paper` gets {span([100 * x for x in before], '.0f')} % "
        f"longer, from 95 to 100 % {span([100 * x for x in after], '.0f')} %"
    )


def test_a_few_who_estimate_help_the_paper_and_are_not_needed_by_sharp(at: At, says: Says) -> None:
    """The paper: using a small part for estimation is a significant gain in NDCG and L1."""

    def of(profile: str, metric: str, x: float) -> list[float]:
        return [
            at("selection_share", p, metric, f"{profile}, M = {SIZE[p]}", x).mean
            for p in EVERYWHERE
        ]

    for profile in PROFILES:
        for metric in ("l1", "ndcg"):
            usual = " | ".join(f"{v:.3f}" for v in of(profile, metric, 0.95))
            none = " | ".join(f"{v:.3f}" for v in of(profile, metric, 1.0))
            label = "L1" if metric == "l1" else "NDCG"
            says(f"| `{profile}`, {label}, f_O = 0.95 | {usual} |")
            says(f"| `{profile}`, {label}, f_O = 1 | {none} |")
    for population in EVERYWHERE:
        series = f"paper, M = {SIZE[population]}"
        usual, none = (at("selection_share", population, "l1", series, x) for x in (0.95, 1.0))
        assert surely_less(usual, none), population


def test_which_share_leaves_the_least_error(summary: Summary, says: Says) -> None:
    """Not the paper's 95 %: more people who estimate help, as long as the list gets long enough."""
    best = []
    for population in EVERYWHERE:
        curve = summary.reached(
            "selection_share", population, "l1", f"paper, M = {SIZE[population]}"
        )
        assert set(curve.x) <= set(SELECTION_SHARES)
        best.append(min(zip((m.mean for m in curve.means), curve.x, strict=True))[1])
    texts = " | ".join(f"{x:g}" for x in best)
    says(f"| `paper`, f_O with the least L1 | {texts} |")


def test_longer_lists_are_less_accurate(at: At, summary: Summary, says: Says) -> None:
    """The paper: accuracy drops as M grows, most notably by what clients do for privacy."""
    for profile in PROFILES:
        rows = []
        for population in EVERYWHERE:
            curve = summary.reached("list_length", population, "relative", profile)
            assert surely_less(curve.means[0], curve.means[-1]), (profile, population)
            rows.append(
                f"{100 * curve.means[0].mean:.1f} → {100 * curve.means[-1].mean:.0f} "
                f"({curve.x[0]:g} → {curve.x[-1]:g})"
            )
        says(f"| `{profile}`, error in % (M) | {' | '.join(rows)} |")
    for population in EVERYWHERE:
        curve = summary.reached("list_length", population, "l1", "paper")
        clients = at("list_length", population, "l1", "paper, clients", curve.x[-1])
        assert surely_less(curve.means[-1], clients), population
