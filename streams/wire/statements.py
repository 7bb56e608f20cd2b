"""Statements in publications: the estimated quantity and the privacy guarantee, for lay readers.

Promises: numbers are rounded towards the weaker guarantee. The standard terms follow in brackets,
with the neighbouring relation, without which an epsilon means nothing.
"""

from __future__ import annotations

import math

__all__ = [
    "ESTIMATES_QUANTITY",
    "click_graph_quantity",
    "click_graph_statement",
    "difference_statement",
    "disputed_statement",
    "head_list_quantity",
    "privacy_statement",
    "readers_statement",
]

#: The quantity that every number of an epoch's estimates measures, the same for both groups.
ESTIMATES_QUANTITY = (
    "Each probability is the share of participating people whose one record, drawn at random from "
    "the window, is this one, where people without a record take part and count for the wildcard: "
    "optin among opt-in users, client and blend among everyone else."
)

#: Factors above this are stated by their number of digits, since ten digits are hard to read.
_LONG_FACTOR = 1e9


def head_list_quantity(records_per_user: int) -> str:
    """Describe the quantity that a head list ranks and counts."""
    holding = (
        "whose one record, drawn at random from the window, is this one"
        if records_per_user == 1
        else f"who have this record among up to {records_per_user} different ones, drawn at random "
        "from the window"
    )
    return (
        f"Records are ranked by the share of participating opt-in users {holding}, where users "
        f"without a record take part and add to no count."
    )


def click_graph_quantity(records_per_user: int) -> str:
    """Describe the quantity that a click graph counts."""
    return (
        f"Each count is of records that hold this query, or this click, "
        f"{_most(records_per_user, 'record', 'different records')} of each participating opt-in "
        f"user, drawn at random from the window, where users without a record take part and add to "
        f"no count."
    )


def privacy_statement(
    *,
    optin: tuple[float, float],
    clients: tuple[float, float],
    cohorts: int,
    records_per_user: int,
    answers: int,
    click_graph: bool = False,
    optin_cohorts: int = 0,
    period_epochs: int = 0,
) -> str:
    """State the guarantee of the estimates: (ε, δ) as charged to an opt-in user and to a device.

    With `period_epochs`, that of the opt-in users is for that many epochs together. `optin_cohorts`
    0: as many as the devices' `cohorts`.
    """
    results, together = "any result of this epoch", ""
    if period_epochs:
        together = f" and all {period_epochs} epochs together"
        results = (
            f"in any or all of the {period_epochs} epochs of this budget period, all results of "
            "these epochs together"
        )
    shares = ""
    if click_graph and period_epochs:
        shares = (
            " Some opt-in users were in a share of their own for the whole period, for click "
            "graphs, and in no other release; each graph says what it costs them."
        )
    elif click_graph:
        shares = (
            " Some opt-in users were in a share of their own, for a click graph; the figure for "
            "opt-in users holds for them too."
        )
    turns = f"Each can take part {_turns(cohorts)}"
    if (optin_cohorts or cohorts) != cohorts:
        turns = f"An account can take part {_turns(optin_cohorts)}, a device {_turns(cohorts)}"
    return (
        f"Two kinds of people took part. Opt-in users trusted this service with "
        f"{_most(records_per_user, 'record', 'records')} each, or said that they had none; "
        f"exact whole-number noise was added to every count before anything left the service, and "
        f"only records that many people share could appear. Everyone else's device randomised "
        f"{_number(answers, 'answer', 'answers')} by itself, so that no one but the device ever "
        f"held what it really searched for. Had one opt-in account's records been different, or "
        f"none at all, {results} could have become more or less likely by "
        f"{_odds(*optin)}; had one device's been different, by "
        f"{_odds(*clients)}.{shares} (That is differential privacy between replace-one neighbours, "
        f"for all records of one account or device together: {_terms(*optin)} for opt-in users"
        f"{together}, {_terms(*clients)} for devices.) The promise is for each account and each "
        f"device: someone with two, or who moves from one group to the other, counts as two people "
        f"here, and what both reveal adds up. {turns}; what repeated epochs add up to "
        f"is in the operator's ledger. Not hidden: that someone takes part, how many do, and "
        f"anything about large groups of people, which is what this publication is for."
    )


def readers_statement(
    *, epsilon: float, delta: float, honest_reports: int, epochs: int, period_epsilon: float
) -> str:
    """State the stronger guarantee of a device against readers of publications only."""
    period = ""
    if epochs > 1:
        period = (
            f", and all publications of {epochs} epochs of a period in which it reports, if each "
            f"has as many reports, by {_odds(period_epsilon, delta)}"
        )
    return (
        f"Who sees nothing but publications learns less of one device, because they tell only how "
        f"many reports said what: had its records been different, any publication of this epoch "
        f"could have become more or less likely by {_odds(epsilon, delta)}{period}. This holds if "
        f"at least {honest_reports:,} of the reports are honest. It does not hold against this "
        f"service, those who see its traffic or its measurements: against them a device has what "
        f"its own report promises."
    )


def click_graph_statement(
    *,
    released: tuple[float, float],
    charged: tuple[float, float],
    queries_per_user: int,
    clicks_per_user: int,
) -> str:
    """State the guarantee of a click graph: (ε, δ) for adding or removing a person, and charged."""
    return (
        f"This graph was made from a share of the opt-in users who are in no other release of the "
        f"epoch. {_most(queries_per_user, 'query', 'queries').capitalize()} and "
        f"{_most(clicks_per_user, 'click', 'clicks')} of each were used; exact whole-number noise "
        f"was added to every count, and only queries that many people share could appear, with "
        f"URLs from a table that was public before. Had one of these people not taken part, any "
        f"graph could have become more or less likely by {_odds(*released)}; had their records "
        f"been different, by {_odds(*charged)}. (That is differential privacy with "
        f"{_terms(*released)} between data sets that differ by adding or removing one person, and "
        f"{_terms(*charged)}, as the ledger charges it, between replace-one neighbours.) The "
        f"promise is for each account: someone with two counts as two people here."
    )


def difference_statement(typical: float, low: float, high: float) -> str:
    """State the groups' difference, with the 95 % interval."""
    return (
        f"Opt-in users' shares differ from other people's by about {_percent(typical)} "
        f"(95 % interval: {_percent(low)} to {_percent(high)})."
    )


def disputed_statement(records: int, *, devices_admitted: bool) -> str:
    """Explain why records are disputed, and which group's value is published and why."""
    shown = (
        "clients say, because their devices were checked before reports were taken"
        if devices_admitted
        else "opt-in users say, because they are authenticated and devices are not"
    )
    return (
        f"In {_number(records, 'record', 'records')} the two groups differ far more than in the "
        f"others: opt-in users may be unlike other people there, or reports may be forged. Shown "
        f"is what {shown}; the interval spans both groups."
    )


def _percent(part: float) -> str:
    return f"{100 * part:.{0 if part >= 0.01 else 1}f} %"


def _turns(cohorts: int) -> str:
    return "in every epoch" if cohorts == 1 else f"in one epoch out of {cohorts}, by turns"


def _most(number: int, one: str, many: str) -> str:
    return f"one {one}" if number == 1 else f"up to {number} {many}"


def _number(number: int, one: str, many: str) -> str:
    return f"one {one}" if number == 1 else f"{number} {many}"


def _odds(epsilon: float, delta: float) -> str:
    """Express P[A] ≤ e^ε·P′[A] + δ in words."""
    factor = f"a factor of at most about {_factor(epsilon)}"
    return factor if delta == 0 else f"{factor}, give or take a chance of 1 in {_one_in(delta)}"


def _factor(epsilon: float) -> str:
    """Format e^ε to two digits, rounded up."""
    if epsilon > math.log(_LONG_FACTOR):
        return f"1 followed by {math.ceil(epsilon / math.log(10))} zeros"
    factor = math.exp(epsilon)
    unit = 10.0 ** (math.floor(math.log10(factor)) - 1)
    rounded = math.ceil(factor / unit * (1 - 1e-12)) * unit
    return f"{rounded:.2g}" if rounded < 10 else _spaced(round(rounded))


def _one_in(delta: float) -> str:
    """Format 1/δ to two digits, rounded down."""
    times = math.floor(1 / delta * (1 + 1e-12))
    unit = 10 ** max(0, len(str(times)) - 2)
    return _spaced(times // unit * unit)


def _terms(epsilon: float, delta: float) -> str:
    return f"epsilon {epsilon:g} and delta {delta:g}"


def _spaced(number: int) -> str:
    return f"{number:,}".replace(",", " ")
