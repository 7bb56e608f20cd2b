"""What docs/evaluation.md says of the paper's figures in a sentence is what its CSV files say."""

from __future__ import annotations

import pytest

from blendstream.evaluation.certainty import surely_less
from blendstream.evaluation.claims import CLAIMS, check_claims
from blendstream.evaluation.summary import Mean, Summary
from tests.evaluation.page import GENERATED, At, Says, span


def test_where_lines_begin(summary: Summary, says: Says) -> None:
    late = []
    begin = {
        profile: summary.reached("optin_share", "aol", "l1", f"{profile}, M = 50").x[0]
        for profile in ("paper", "sharp")
    }
    says(f"the line for 50 begins at {100 * begin['paper']:g} % (4.5 % in the paper)")
    says(f"({100 * begin['sharp']:g} % for 50)")
    for population in GENERATED:
        for series in summary.series("optin_share", population, "l1"):
            if series.startswith("sharp"):
                other = series.replace("sharp", "paper")
                sharp, paper = (
                    summary.reached("optin_share", population, "l1", s) for s in (series, other)
                )
                assert sharp.x[0] <= paper.x[0]
                assert sharp.means[0].mean < paper.means[-1].mean
                sharp, paper = (
                    summary.reached("epsilon", population, "l1", s) for s in (series, other)
                )
                first, aim = sharp.means[0].mean, paper.means[paper.x.index(4)].mean
                if first > aim:
                    late.append((population, series, f"{first:.3f} against {aim:.3f}"))
    says("Where each of its lines begins, its L1 is already below that of `paper` with 10 %.")
    says(
        "The first point of each line of `sharp` has an L1 that `paper` reaches at ε = 4 or later."
    )
    ((population, series, numbers),) = late
    assert (population, series) == ("yandex", "sharp, M = 10")
    says(f"ten records on the second population, at ε = 1 ({numbers})")


def test_what_the_budget_split_costs(summary: Summary, says: Says) -> None:
    clients = summary.curve("budget_split", "aol", "l1", "paper, clients")
    means = dict(zip(clients.x, (m.mean for m in clients.means), strict=True))
    best = sorted(sorted(means, key=lambda x: means[x])[:3])
    assert best == [0.7, 0.75, 0.8]
    says("over records L1 is lowest at 0.7 to 0.8 and rises after")
    says("Their estimates of records are best between 0.7 and 0.8")
    ndcg = summary.curve("budget_split", "aol", "ndcg", "paper, clients")
    highest = ndcg.x[ndcg.means.index(max(ndcg.means))]
    says(f"Clients' NDCG is best at f_C = {highest:g}, not 0.85")


def test_where_the_best_split_lies_depends_on_the_clicks(summary: Summary, says: Says) -> None:
    """Surely worse at 0.85 where clicks spread; a drop on both sides where they gather."""
    for exponent, surely_worse, drops_before in (
        (1, True, False), (2, False, False), (3, False, False), (5, False, True)
    ):  # fmt: skip
        experiment, series = "click_shapes", f"URL of rank j ∝ j^−{exponent}"
        if exponent == 2:  # our populations': Figure 11 itself
            experiment, series = "budget_split", "paper, clients"
        line = summary.curve(experiment, "aol", "ndcg", series)
        wanted = line.means[line.x.index(0.85)]
        assert surely_less(wanted, max(line.means)) == surely_worse, exponent
        assert surely_less(line.means[0], wanted) == drops_before, exponent
        assert surely_less(line.means[-1], wanted)
    says("With 34 % of a query's clicks on its first URL, 0.85 is surely worse than the best")
    says(
        "With the 65 % of our populations, or with 84 %, no other is surely better, and NDCG drops"
    )
    says("With 96 % there it is as good as any, and NDCG drops before and after")


def test_where_a_list_of_fifty_begins(summary: Summary, at: At, says: Says) -> None:
    share, found = (at("epsilon", "aol", m, "paper, M = 50", 3).mean for m in ("reached", "found"))
    begins = summary.reached("epsilon", "aol", "l1", "paper, M = 50").x[0]
    says(f"The line for 50 begins at ε = {begins:g} in Figure 15, as in the paper")
    says(f"({found:.0f} records on average, {100 * share:.0f} % of the lists get that long)")


def test_the_list_of_ten(summary: Summary, at: At, says: Says) -> None:
    first = at("list_of_ten", "aol", "ndcg", "paper, M = 10", 1).mean
    says(f"Against the true top ten NDCG is {first:.2f} at ε = 1")
    left_out = summary.curve("list_of_ten", "aol", "missing", "paper, M = 10").means
    assert {round(mean.mean) for mean in left_out} <= {3, 4}
    says("and three or four of the true ten are left out")
    why = next(claim.why for claim in CLAIMS if claim.says.startswith("the same, if a true fav"))
    assert "leaves out three or four of the true ten" in why


def test_where_ten_of_few_are_chosen_little_is_left_out(
    summary: Summary, at: At, says: Says
) -> None:
    ten, more = (summary.reached("optin_share", "aol", "ndcg", f"paper, M = {m}") for m in (10, 25))
    for line in (ten, more):
        assert line.means[0].mean > 0.95
        assert min(line.means).mean < 0.95
    says(f"({more.means[0].mean:.2f} for 25 records at {100 * more.x[0]:g} %)")

    def chosen(metric: str, share: float) -> float:
        return at("chosen_ten", "aol", metric, "paper", share).mean

    found = chosen("found", 0.01)
    assert chosen("not_found", 0.01) == pytest.approx(chosen("missing", 0.01) / 4, rel=0.15)
    assert chosen("not_found", 0.02) < 0.1
    says(
        f"With 1 % opting in S finds {found:.0f} records, and {chosen('missing', 0.01):.1f} of the "
        "true ten are not listed, a quarter of them because S did not find them; with 2 % it finds "
        f"{chosen('found', 0.02):.0f}, nearly all of the true ten among them, but "
        f"{0.05 * 0.02 * 657_000:.0f} people in T choose ten of these, and "
        f"{chosen('missing', 0.02):.1f} of the true ten are not listed"
    )
    listed = [
        mean.mean for mean in summary.curve("chosen_ten", "aol", "ndcg_listed", "paper").means
    ]
    says(
        f"NDCG falls to {chosen('ndcg', 0.02):.2f} and is back at {chosen('ndcg', 0.05):.2f} with "
        f"5 % and {chosen('ndcg', 0.1):.2f} with 10 %. The listed records are in order throughout "
        f"(NDCG over them alone is {span(listed, '.3f')})"
    )


def test_figure_nine(at: At, says: Says) -> None:
    def column(name: str) -> Mean:
        return at("top_ten", "aol", "regressions", f"paper/{name}", 0)

    off = at("top_ten", "aol", "deviation", "paper/blended", 0).mean
    says(
        f"the blend's ten numbers are off by {100 * off:.0f} % of their sum, "
        f"{column('blended').mean:.1f} of them out of order on average, against "
        f"{column('optin').mean:.1f} (opt-in) and {column('client_urls').mean:.1f} (clients, URLs "
        "added up)"
    )
    says(f"the clients' estimate of the query itself ({column('client_query').mean:.1f})")
    says(f"would have {column('blended_urls').mean:.1f}")


def test_ndcg_of_the_first_population(summary: Summary, says: Says) -> None:
    ten, more, fifty = (
        [mean.mean for mean in summary.reached("epsilon", "aol", "ndcg", f"paper, M = {m}").means]
        for m in (10, 25, 50)
    )
    low, high = (f"{value:.2f}" for value in (min(ten + more), max(ten + more)))
    says(f"lists of 10 and 25 lie between {low} and {high} (a list of 50 at {min(fifty):.2f})")
    assert f"{max(fifty):.2f}" == f"{min(fifty):.2f}"


def test_lists_of_five_hundred(at: At, says: Says) -> None:
    ndcg, l1 = (
        at("optin_share", "yandex", metric, "paper, M = 500", 0.025).mean
        for metric in ("ndcg", "l1")
    )
    says(f"have an NDCG of {ndcg:.2f}, but an L1 of {l1:.2f}")


def test_whom_the_blend_listens_to(at: At, says: Says) -> None:
    few, many = (at("weights", "aol", "weight", f"{n}% opt in", 4).mean for n in (1, 10))
    says(
        f"T's weight on ten records is {100 * few:.0f} to {100 * many:.0f} % (1 to 10 % opting in)"
    )
    usual = at("weights", "aol", "weight", "5% opt in", 1).mean
    one, four = (at("weights", "aol", "l1_optin", "5% opt in", e).mean for e in (1, 4))
    says(f"At ε = 1 T has {100 * usual:.0f} % of the weight on a list of ten")
    assert at("weights", "aol", "weight", "5% opt in", 2.5).mean > 0.5
    assert at("weights", "aol", "weight", "5% opt in", 3).mean < 0.5
    says("From ε = 3 on clients have more weight")
    says(f"(its own L1 is {one:.2f} at ε = 1 and {four:.2f} at ε = 4)")


def test_how_many_sentences_hold(summary: Summary, says: Says) -> None:
    verdicts = [shown.verdict for _, shown in check_claims(summary)]
    says(
        f"We tested {len(verdicts)} such claims and readings of the paper: "
        f"{verdicts.count('yes')} hold here, {verdicts.count('partly')} hold in part, "
        f"{verdicts.count('no')} do not."
    )
