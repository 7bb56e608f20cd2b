"""What the paper says about each of its figures, and whether the `paper` profile shows the same.

Sayings are in our words, with the section they come from; where ours differs, `why` tells what is
behind it. Populations here are drawn (`agents.evaluation.populations`), not the paper's logs, so
trends and thresholds are compared, not third digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agents.evaluation.checks import (
    Check,
    Shown,
    all_but,
    aol_five_percent,
    begins,
    blend_beats_ingredients,
    blend_is_closest,
    blend_ndcg_flat,
    client_ndcg_peaks,
    epsilon_text,
    falls,
    five_hundred,
    l1_falls_with_query_budget,
    l1_under,
    list_of_ten,
    longer_lists_are_less_accurate,
    one_regression,
    optin_ndcg_constant,
    percent,
    query_beats_urls,
    yandex_above_aol,
)
from agents.evaluation.summary import Summary

__all__ = ["CLAIMS", "Claim", "check_claims"]


@dataclass(frozen=True, slots=True)
class Claim:
    """One saying of the paper; `why` explains a difference, should there be one."""

    figure: str
    section: str
    says: str
    check: Check
    why: str = ""


def check_claims(summary: Summary) -> Iterator[tuple[Claim, Shown]]:
    """Every claim for which something was measured."""
    for claim in CLAIMS:
        shown = claim.check(summary)
        if shown is not None:
            yield claim, shown


CLAIMS = (
    Claim(
        figure="9",
        section="4, data analysis",
        says="the blend's top ten has one estimate out of order",
        check=one_regression,
        why=(
            "the paper shows one run, this is a mean of many; in the lower half of our top ten "
            "neighbours differ by a tenth to a fifth, less than the error of either"
        ),
    ),
    Claim(
        figure="9",
        section="4, data analysis",
        says="each ingredient has several, the blend fewer",
        check=blend_beats_ingredients,
        why=(
            "in the lower half of our top ten neighbours differ by a tenth to a fifth, so that "
            "chance orders them in every column, the blend's too; one run can look either way"
        ),
    ),
    Claim(
        figure="9",
        section="4, data analysis",
        says="the blend is close to the truth and makes up for the weaknesses of both ingredients",
        check=blend_is_closest,
        why=(
            "the opt-in group's estimates are so much worse that a weight of a tenth still "
            "adds noise to the clients'"
        ),
    ),
    Claim(
        figure="9",
        section="4, data analysis",
        says="clients' URLs added up have many, the directly estimated query only one",
        check=query_beats_urls,
        why=(
            "in the lower half of our top ten neighbours differ by a tenth to a fifth, so one or "
            "two are out of order even when the error is small; that the sum has more is the same"
        ),
    ),
    Claim(
        figure="11a",
        section="4.2.1",
        says="the more budget for the query, the better L1 of clients and blend (over queries)",
        check=l1_falls_with_query_budget("l1_queries"),
    ),
    Claim(
        figure="11a",
        section="4.2.1",
        says="the same, if L1 is taken over records",
        check=l1_falls_with_query_budget("l1"),
        why=(
            "of the budget for the URL a twentieth is left at f_C = 0.95, so estimates of "
            "records get worse; the paper must mean queries (decision 0081)"
        ),
    ),
    Claim(
        figure="11b",
        section="4.2.1",
        says="clients' NDCG is best near f_C = 0.85 and drops on both sides",
        check=client_ndcg_peaks,
        why=(
            "we rank a query by the sum of its listed URLs, as a reader of published "
            "records would, and that sum suffers when the URL gets little budget; the paper "
            "may rank by p̂_q"
        ),
    ),
    Claim(
        figure="11b",
        section="4.2.1",
        says="the opt-in group's NDCG does not depend on f_C",
        check=optin_ndcg_constant,
        why="people are drawn anew at every point",
    ),
    Claim(
        figure="11b",
        section="4.2.1",
        says="the blend's NDCG does not depend on f_C and equals the opt-in group's",
        check=blend_ndcg_flat,
        why=(
            "T is 1 642 people; where clients know more, as they do here, the blend follows "
            "them and is better than the opt-in group"
        ),
    ),
    Claim(
        figure="13",
        section="4.2.1",
        says="the longer the list, the less accurate its estimates",
        check=longer_lists_are_less_accurate,
    ),
    Claim(
        figure="12",
        section="4.2.2",
        says="a list of 10 has NDCG above 95 % for ε from 1 to 5 (over the listed records)",
        check=list_of_ten("ndcg_listed"),
    ),
    Claim(
        figure="12",
        section="4.2.2",
        says="the same, if a true favourite that is missing from the list costs",
        check=list_of_ten("ndcg"),
        why=(
            "the ten are chosen by the noisy counts of the 1 642 people in T, which leaves out "
            "about three of the true ten; the paper does not say that this costs (decision 0081)"
        ),
    ),
    Claim(
        figure="13a",
        section="4.2.3",
        says="the line for 50 records begins at 4.5 % opt-in",
        check=begins("optin_share", 50, 0.04, 0.05, percent),
    ),
    Claim(
        figure="13",
        section="4.2.3",
        says="L1 declines as more people opt in (first data set: up to 10 %)",
        check=falls("optin_share", "l1"),
        why=(
            "a list of 10 is estimated well from the start, so its L1 hardly moves; the "
            "longer lists decline as in the paper"
        ),
    ),
    Claim(
        figure="13b",
        section="4.2.3",
        says="2.5 % opt-in is enough for lists of 500 and high utility",
        check=five_hundred,
    ),
    Claim(
        figure="14a",
        section="4.2.3",
        says="about 5 % opt-in gives an NDCG of 95 %",
        check=aol_five_percent,
    ),
    Claim(
        figure="14b",
        section="4.2.3",
        says="at 1.5 % NDCG is above 95 % for all but the largest list",
        check=all_but("optin_share", 0.015, 1),
    ),
    Claim(
        figure="15",
        section="4.2.3",
        says="L1 declines steadily with ε on both data sets",
        check=falls("epsilon", "l1"),
    ),
    Claim(
        figure="15b",
        section="4.2.3",
        says="L1 under 0.1 can be had from ε = 1 on",
        check=l1_under,
    ),
    Claim(
        figure="15a",
        section="4.2.3",
        says="the line for 50 records begins at ε = 3",
        check=begins("epsilon", 50, 2.5, 3.5, epsilon_text),
    ),
    Claim(
        figure="16",
        section="4.2.3",
        says="NDCG is higher on the second, larger data set",
        check=yandex_above_aol,
    ),
    Claim(
        figure="16b",
        section="4.2.3",
        says="at ε = 1 NDCG is 95 % and above for all but the two largest lists",
        check=all_but("epsilon", 1.0, 2),
    ),
)
