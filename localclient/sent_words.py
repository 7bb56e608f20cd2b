"""Describe the record of sent data in plain sentences, for the device's owner.

Promises: every bound is rounded against the device, so no sentence promises more than ε and δ do.
Symbols: e^ε is the factor by which a report can change anybody's odds between two sets of searches.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

from blendstream.localclient.limits import Limits
from blendstream.localclient.sent_log import DROPPED, PENDING, SentLog
from blendstream.localclient.state import BudgetEntry, Mode, ScheduledSend, SentCell, Submission

__all__ = ["describe_log", "odds_in_words", "posterior_in_words"]

#: Larger odds are only stated as "more than" this, because their exact value helps nobody.
_LARGEST_ODDS = 1e6
_PRIOR = 0.01

_RESULTS = {
    PENDING: "not yet confirmed by the service",
    DROPPED: "withdrawn before the service confirmed it",
    "sent": "accepted by the service",
    "nothing new": "not counted, because another group of people took part",
    "refused by server": "refused by the service; what it cost stays spent",
    "expired": "given up: the service did not confirm it in time; what it cost stays spent",
}


def describe_log(log: SentLog, *, limits_known: bool = True) -> str:
    """Return the whole log as text; without limits, omit the sentences that depend on them."""
    lines = ["What this device sent", ""]
    if not log.entries:
        lines += ["Nothing.", ""]
    for entry in reversed(log.entries):
        lines += [*_entry(entry), ""]
    lines += _budget(log) if limits_known else _budget_unknown(log)
    lines += _next(log.scheduled_send, log.limits if limits_known else None)
    return "\n".join(lines)


def odds_in_words(epsilon: float) -> str:
    """Return e^ε as odds, rounded up.

    >>> odds_in_words(4.0), odds_in_words(0.5), odds_in_words(20.0)
    ('55 to 1', '1.7 to 1', 'more than 1 000 000 to 1')
    """
    odds = math.exp(epsilon) if epsilon < 700 else math.inf
    if odds > _LARGEST_ODDS:
        return "more than 1 000 000 to 1"
    digits = 0 if odds >= 10 else 1
    return f"{math.ceil(odds * 10**digits) / 10**digits:.{digits}f} to 1"


def posterior_in_words(epsilon: float, prior: float = _PRIOR) -> str:
    """Return the highest probability that a report can raise `prior` to, rounded up.

    >>> posterior_in_words(4.0), posterior_in_words(0.1), posterior_in_words(20.0)
    ('36 %', '1.2 %', 'almost 100 %')
    """
    odds = math.exp(min(epsilon, 700.0)) * prior / (1 - prior)
    percent = 100 * odds / (1 + odds)
    digits = 0 if percent >= 10 else 1
    rounded = math.ceil(percent * 10**digits) / 10**digits
    return "almost 100 %" if rounded >= 100 else f"{rounded:.{digits}f} %"


def _entry(entry: BudgetEntry) -> Iterator[str]:
    sent = entry.submission
    result = _RESULTS.get(sent.result, sent.result) if sent else "no details are kept"
    yield f"{_moment(entry.at_s)}, epoch {entry.epoch}: {result}"
    start, end = _moment(entry.window_start_s), _moment(entry.window_end_s)
    yield f"  About your searches from {start} to {end}."
    if sent is None:
        return
    if entry.mode is Mode.OPT_IN:
        yield from _unchanged(sent)
        return
    yield from _answers(sent)
    yield from _bound(entry)


def _unchanged(sent: Submission) -> Iterator[str]:
    if sent.searches:
        many = "1 search" if sent.searches == 1 else f"{sent.searches} searches"
        yield f"  Sent: {many}, unchanged and with your user id. Their text is not kept here."
        yield "  It reveals these searches to the operator of the service."
    else:
        yield "  Sent: with your user id, that you had no search to send."


def _answers(sent: Submission) -> Iterator[str]:
    if sent.answers is None:
        yield "  Sent: a randomised answer. Its text was removed from this device."
        return
    for number, answer in enumerate(sent.answers, 1):
        which = "" if len(sent.answers) == 1 else f" {number} of {len(sent.answers)}"
        if _is_none(sent, answer):
            yield f"  Sent{which}: “none of the {sent.listed} listed records”, drawn at random."
            continue
        many = f"these {len(answer)}" if len(answer) > 1 else "this one"
        yield f"  Sent{which}: {many} of {sent.cells} possible answers, drawn at random:"
        for cell in answer:
            yield f"    {cell_in_words(cell)}"
    yield "  Your searches themselves were not sent. Chance adds and replaces answers, so none of"
    yield "  these need be yours."


def _is_none(sent: Submission, answer: tuple[SentCell, ...]) -> bool:
    """Return True if the answer is *none*, which fills up with the first records."""
    return sent.randomizer == "subset-or-none" and answer[-1][1] is None


def cell_in_words(cell: SentCell) -> str:
    """Describe a cell by the text from the list, in a form that is harmless on a terminal."""
    _, query, url = cell
    if query is None:
        return "(anything that is not listed, or no search)"
    return f"{plain(query)} → {plain(url) if url is not None else '(a result that is not listed)'}"


def _bound(entry: BudgetEntry) -> Iterator[str]:
    odds = odds_in_words(entry.epsilon)
    yield f"  It can shift the odds about your searches by at most {odds} (ε = {entry.epsilon:g})."
    yield (
        "  Example: someone who thinks it 1 % likely that you searched for one thing rather than "
        "another"
    )
    yield f"  can think it at most {posterior_in_words(entry.epsilon)} likely after seeing it."
    if entry.delta:
        yield f"  With a probability of at most {entry.delta:g} (δ) it can shift them further."


def _budget(log: SentLog) -> Iterator[str]:
    limits = log.limits
    yield (
        f"Left of your budget: ε {log.left[0]:g} of {limits.epsilon_per_period:g}, δ "
        f"{log.left[1]:g} of {limits.delta_per_period:g} (in {_days(limits.period_s)})."
    )
    yield from _together(log)
    fits = "now" if log.next_fit_s <= log.at_s else f"from {_moment(log.next_fit_s)} on"
    yield f"Another report at your limit of ε {limits.epsilon_per_report:g} fits {fits}."


def _budget_unknown(log: SentLog) -> Iterator[str]:
    period = _days(log.limits.period_s)
    yield f"Spent in {period}: ε {log.spent[0]:g}, δ {log.spent[1]:g}."
    yield from _together(log)
    yield "To see what is left, add the limits that you report with: --epsilon, --period-epsilon, …"


def _together(log: SentLog) -> Iterator[str]:
    if log.spent[0]:
        yield (
            f"All reports of these {_days(log.limits.period_s)} together can shift them by at most "
            f"{odds_in_words(log.spent[0])}."
        )


def _next(scheduled: ScheduledSend | None, limits: Limits | None) -> Iterator[str]:
    if scheduled is None:
        yield "Next: nothing is scheduled. This device asks the service again later."
        if limits:
            yield f"A question may cost at most ε {limits.epsilon_per_report:g}."
        return
    start, end = _moment(scheduled.window_start_s), _moment(scheduled.window_end_s)
    yield f"Next: at {_moment(scheduled.send_at_s)}, about your searches from {start} to {end}."
    if scheduled.mode is Mode.OPT_IN:
        yield f"Up to {scheduled.records} searches are sent unchanged, with your user id."
        return
    answers = "1 answer" if scheduled.records == 1 else f"{scheduled.records} answers"
    yield (
        f"The service asks which of {scheduled.listed} listed records they are; this device sends "
        f"{answers}, drawn at random."
    )
    yield (
        f"It will cost ε {scheduled.epsilon:g}: a shift of the odds by at most "
        f"{odds_in_words(scheduled.epsilon)}."
    )


def plain(text: str) -> str:
    """Return published text in a form that is harmless on a terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _moment(at_s: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_s))


def _days(seconds: int) -> str:
    days = seconds / 86_400
    return f"{days:g} day{'' if days == 1 else 's'}"
