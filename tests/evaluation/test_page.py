"""Every number that docs/evaluation.md states in a sentence is what its CSV files say.

Each test computes the numbers, writes the sentence with them and looks for it on the page: figures
that are measured anew and prose that is not written anew cannot stand side by side. Here: what the
page says in short, and what the paper does not show; test_page_paper.py has the paper's figures.
"""

from __future__ import annotations

import numpy as np
import pytest

from blendstream.blender.noise.exact_noise import GRID
from blendstream.blender.profiles import choose_selector
from blendstream.blender.values.parameters import PrivacyParameters
from blendstream.evaluation.simulated_noise import SimulatedNoise
from blendstream.evaluation.summary import Summary
from tests.evaluation.page import EVERYWHERE, TABLES, At, Says, points, span

LIST_SIZE = {"aol": 50, "yandex": 500, **dict.fromkeys(TABLES, 50)}
FIRST, PAPER_LIST, KNOWN = (
    "keeps its counts (sharp)", "threshold (paper)", "and known keys, epoch 12"
)  # fmt: skip


def test_how_much_closer_sharp_is(at: At, says: Says) -> None:
    def ratio(population: str) -> float:
        size = LIST_SIZE[population]
        paper, sharp = (
            at("epsilon", population, "l1", f"{profile}, M = {size}", 4).mean
            for profile in ("paper", "sharp")
        )
        return paper / sharp

    aol, yandex, votes, names = map(ratio, EVERYWHERE)
    says(
        f"`sharp` is {aol:.1f} and {yandex:.1f} times closer to the truth than `paper` on the "
        f"generated populations and {votes:.1f} and {names:.1f} times on the tables"
    )


def test_what_sampling_alone_would_leave(at: At, says: Says) -> None:
    shares = {}
    for profile in ("sharp", "paper"):
        shares[profile] = [
            at("epsilon", p, "limit_l1_plain", f"sharp, M = {LIST_SIZE[p]}", 4).mean
            / at("epsilon", p, "l1_plain", f"{profile}, M = {LIST_SIZE[p]}", 4).mean
            for p in EVERYWHERE
        ]
    assert (min(shares["sharp"]), max(shares["sharp"])) == pytest.approx((0.2, 0.4), abs=0.03)
    assert shares["sharp"][1] == min(shares["sharp"])
    assert (1 / max(shares["paper"]), 1 / min(shares["paper"])) == pytest.approx((8, 25), abs=0.5)
    says("would leave between a fifth (500 records) and two fifths of what `sharp` leaves")
    says("it is an eighth to a twenty-fifth of what `paper` leaves")


def test_ndcg_in_short(summary: Summary, says: Says) -> None:
    axes = ("epsilon", "list_of_ten")
    lowest = min(y for e in axes for _, y in points(summary, e, "ndcg", "sharp", EVERYWHERE))
    few = min(y for x, y in points(summary, "optin_share", "ndcg", "sharp", EVERYWHERE) if x < 0.02)
    assert lowest >= 0.97
    assert few >= 0.93
    says("NDCG of `sharp` is 0.97 and above at every ε from 1 to 5, and 0.93 and above with only 1")
    at_four = [
        y for e in axes for x, y in points(summary, e, "ndcg", "paper", EVERYWHERE) if x == 4
    ]
    at_one = [y for x, y in points(summary, "list_of_ten", "ndcg", "paper", TABLES) if x == 1]
    says(
        f"`paper` lies between {min(at_four):.2f} and {max(at_four):.0f} at ε = 4 and falls to "
        f"{min(at_one):.2f} on names at ε = 1"
    )


def test_how_much_longer_lists_are(at: At, says: Says) -> None:
    def ratios(series: str, *epsilons: float) -> list[float]:
        return [
            at("head_list", p, "found", series, e).mean
            / at("head_list", p, "found", PAPER_LIST, e).mean
            for p in EVERYWHERE
            for e in epsilons
        ]

    four, elsewhere = (span(ratios(FIRST, *e), ".2f") for e in ((4,), (1, 2, 3, 5)))
    says(
        f"Its head list is as long in the first epoch ({four} times as many records at ε = 4, "
        f"{elsewhere} times at other ε)"
    )
    says(f"{four} times as many at ε = 4, and {elsewhere} times at ε = 1, 2, 3 and 5")
    says(f"{span(ratios(KNOWN, 4), '.1f')} times as long once known records are remembered")
    says(
        f"{span(ratios(KNOWN, 4), '.1f')} times as many after a dozen epochs at ε = 4 "
        f"({span(ratios(KNOWN, 1, 2, 3, 5), '.1f')} times elsewhere), nine in ten"
    )
    on_top = [at("head_list", p, "in_true_top", KNOWN, e).mean for p in EVERYWHERE for e in (1, 4)]
    assert 0.87 <= min(on_top) <= max(on_top) <= 0.95
    ten, thirty = (ratios(f"{n} records a user", 1, 2, 3, 4, 5) for n in (10, 30))
    assert (round(min(ten)), round(max(ten))) == (2, 3)
    assert (round(min(thirty)), round(max(thirty))) == (3, 5)
    says("find two to three times as many as the paper at every ε, thirty three to five times")


def test_what_all_of_delta_does_to_the_threshold(says: Says) -> None:
    thresholds = {}
    for epsilon in (1.0, 3.0, 4.0, 5.0):
        parameters = PrivacyParameters(epsilon=epsilon, delta=1e-5)
        noise = SimulatedNoise(np.random.default_rng(1))
        nobody, unknown = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.bool_)
        thresholds[epsilon] = [
            choose_selector(profile, parameters)
            .select(nobody, unknown, parameters, noise)
            .threshold
            for profile in ("paper", "sharp")
        ]
    one, three, four, five = (
        f"{paper / GRID:.2f} and {sharp}" for paper, sharp in thresholds.values()
    )
    says(f"{four} people at ε = 4, {three} at ε = 3, {one} at ε = 1, {five} at ε = 5")


def test_how_many_records_the_tables_share(at: At, says: Says) -> None:
    found = [
        at("epsilon", table, "found", f"{profile}, M = 50", 4).mean
        for table in TABLES
        for profile in ("paper", "sharp")
    ]
    same_size = [
        at("epsilon", "aol", "found", f"{profile}, M = 50", 4).mean
        for profile in ("paper", "sharp")
    ]
    tables = f"{round(min(found), -1):.0f} to {round(max(found), -1):.0f}"
    assert {round(value, -1) for value in same_size} == {70}
    says(f"({tables} are found at ε = 4, against about 70)")


def test_coverage_and_width(summary: Summary, at: At, says: Says) -> None:
    whole = [100 * at("coverage", p, "covered", "sharp", 0).mean for p in EVERYWHERE]
    says(f"hold the truth {span(whole, '.0f')} % of the time")
    says(f"Over whole lists `sharp` holds the truth in {span(whole, '.0f')} % of the cases")
    by_place, of_paper, widths = [], [], []
    for p in EVERYWHERE:
        sharp, paper = (summary.curve("coverage", p, "covered", s) for s in ("sharp", "paper"))
        by_place += [100 * m.mean for x, m in zip(sharp.x, sharp.means, strict=True) if x > 0]
        of_paper += [100 * m.mean for m in paper.after(0).means]
        wide, narrow = (summary.curve("coverage", p, "width", s) for s in ("paper", "sharp"))
        widths += [n.mean / w.mean for w, n in zip(wide.means, narrow.means, strict=True)]
    says(f"By place it varies, from {min(by_place):.1f} to {max(by_place):.0f} %")
    whole = [100 * at("coverage", p, "covered", "paper", 0).mean for p in EVERYWHERE]
    says(
        f"holds the truth in {span(whole, '.0f')} % of the cases over whole lists and in "
        f"{span(of_paper, '.0f')} % by place"
    )
    assert (1 / min(widths), max(widths)) == (
        pytest.approx(9, abs=0.3),
        pytest.approx(1 / 3, abs=0.03),
    )
    says("intervals are between a ninth and a third as wide")
    narrower = [
        at("coverage", p, "width", "paper", 0).mean / at("coverage", p, "width", "sharp", 0).mean
        for p in EVERYWHERE
    ]
    says(f"Over whole lists its intervals are {span(narrower, '.1f')} times narrower")


def test_people_it_takes_to_match_a_sample(summary: Summary, says: Says) -> None:
    paper, sharp, limit = (
        [m.mean for m in summary.curve("limit", "aol", "l1_plain", series).means]
        for series in ("paper", "sharp", "no privacy")
    )
    for means, about in ((sharp, 12), (paper, 210)):
        times = [(mean / least) ** 2 for mean, least in zip(means, limit, strict=True)]
        assert sum(times) / len(times) == pytest.approx(about, rel=0.1)
    says("`sharp` needs about twelve times as many people, `paper` about two hundred times")


def test_the_agreement_test(at: At, says: Says) -> None:
    def rejected(profile: str, x: float) -> float:
        return 100 * at("agreement", "aol", "rejected", profile, x).mean

    says(
        f"it does in {rejected('paper', 0):.0f} (`paper`) and {rejected('sharp', 0):.0f} (`sharp`)"
    )
    says(
        f"`sharp` sees differences of three tenths in {rejected('sharp', 0.3):.0f} % of the epochs"
    )
    says(f"of a fifth in {rejected('sharp', 0.2):.0f} %, and mostly misses those of a tenth")
    assert rejected("sharp", 0.1) < 25
    says(
        f"`paper` sees a half in {rejected('paper', 0.5):.0f} % and four fifths in "
        f"{rejected('paper', 0.8):.0f} %"
    )


def test_several_records_a_user(summary: Summary, at: At, says: Says) -> None:
    alone, ten, thirty = (
        at("records_each", "aol", "found", "0% return to a query", m).mean for m in (1, 10, 30)
    )
    says(f"from {alone:.0f} records to {ten:.0f} with ten a user and {thirty:.0f} with")
    ones = [
        at("records_each", "aol", "found", series, 1).mean
        for series in summary.series("records_each", "aol", "found")
        if series != "paper"
    ]
    two, three, five, most = (
        at("records_each", "aol", "found", "90% return to a query", m).mean for m in (2, 3, 5, 30)
    )
    assert max(two, three, five) == five
    says(
        f"where 90 % return, five records a user find {five:.0f}, hardly more than one does "
        f"({span(ones, '.0f')}), and thirty find {most:.0f}"
    )
    ratios: dict[str, list[float]] = {"l1": [], "l1_plain": []}
    for metric, found in ratios.items():
        paper = at("records_each", "aol", metric, "paper", 1).mean
        for series in summary.series("records_each", "aol", metric):
            one, *more = summary.curve("records_each", "aol", metric, series).means
            found += [mean.mean / one.mean for mean in more]
            assert all(mean.mean < paper / 2 for mean in more)
    says(
        "At a fixed list of 50 L1 over the listed records (the figure's, nothing rescaled) is "
        f"{span(ratios['l1_plain'], '.1f')} times that with one record, the rescaled L1 "
        f"{span(ratios['l1'], '.1f')} times; both are still less than half of the paper's"
    )
