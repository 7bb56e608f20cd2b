"""Check sentences of the paper against the measurements, one function per sentence.

A sentence may contain several statements; a check tests each, and "partly" means that some of them
hold. A difference counts only if it exceeds two standard errors (`evaluation.certainty`). A line
declines only if it does so from point to point, not merely from end to end.

A check returns `None` where nothing was measured. This module checks the claims about Figures 9 and
11 and formats the results; `evaluation.list_checks` checks the claims about the other figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from blendstream.evaluation.certainty import (
    falls_steadily,
    rises_between,
    surely_less,
    surely_over,
    surely_under,
)
from blendstream.evaluation.summary import Curve, Mean, Summary

__all__ = [
    "Check",
    "Shown",
    "blend_beats_ingredients",
    "blend_is_closest",
    "blend_is_similar_to_truth",
    "blend_ndcg_flat",
    "client_ndcg_peaks",
    "ends_text",
    "epsilon_text",
    "l1_falls_with_query_budget",
    "mean_text",
    "one_regression",
    "optin_ndcg_constant",
    "percent",
    "query_beats_urls",
]

#: The number that counts as "several" or "many", of nine pairs of neighbours that may be out of
#: order. A random order would have 4.5.
SEVERAL = 3


class Shown(NamedTuple):
    """A check's result: a sentence with our numbers, and True per part of the claim that holds."""

    text: str
    holds: tuple[bool, ...]

    @property
    def verdict(self) -> str:
        """Return "yes", "partly" or "no"."""
        if all(self.holds):
            return "yes"
        return "partly" if any(self.holds) else "no"


Check = Callable[[Summary], Shown | None]


def percent(value: float) -> str:
    """Format a proportion as a percentage with three digits."""
    return f"{100 * value:.3g} %"


def epsilon_text(x: float) -> str:
    """Format a value of ε."""
    return f"ε = {x:g}"


def mean_text(mean: Mean, digits: int = 3) -> str:
    """Format a mean with its standard error."""
    return f"{mean.mean:.{digits}f} ± {mean.error:.{digits}f}"


def ends_text(name: str, line: Curve, unit: Callable[[float], str]) -> str:
    """Describe a line by its ends and the steps at which it rises significantly."""
    up = [f"{unit(line.x[i])} to {unit(line.x[i + 1])}" for i in rises_between(line.means)]
    rises = f" (rises from {', '.join(up)})" if up else ""
    return f"{name}: {line.means[0].mean:.3g} → {line.means[-1].mean:.3g}{rises}"


# ---------------------------------------------------------------- Figure 9


def _regressions(summary: Summary, *names: str) -> list[Mean] | None:
    means = [summary.at("top_ten", "aol", "regressions", f"paper/{n}", 0) for n in names]
    return [mean for mean in means if mean] if all(means) else None


def one_regression(summary: Summary) -> Shown | None:
    """Check that the blend has on average at most one estimate out of order."""
    counted = _regressions(summary, "blended")
    if counted is None:
        return None
    return Shown(f"{mean_text(counted[0], 1)} on average", (not surely_over(counted[0], 1),))


def blend_beats_ingredients(summary: Summary) -> Shown | None:
    """Check that the blend has fewer regressions than each group, which has more than one."""
    counted = _regressions(summary, "blended", *_INGREDIENTS)
    if counted is None:
        return None
    blend, *others = counted
    text = f"blend {mean_text(blend, 1)}, " + ", ".join(
        f"{name} {mean_text(mean, 1)}"
        for name, mean in zip(_INGREDIENTS.values(), others, strict=True)
    )
    added_up = others[:2]
    several = (surely_over(mean, 1) for mean in added_up)
    return Shown(text, (*several, *(surely_less(blend, mean) for mean in added_up)))


#: Figure 9's columns 4, 6 and 5, by series. The paper counts one regression in column 5, as many as
#: in the blend.
_INGREDIENTS = {
    "optin": "opt-in",
    "client_urls": "clients (URLs added up)",
    "client_query": "clients (query itself)",
}


def blend_is_similar_to_truth(summary: Summary) -> Shown | None:
    """Check Σ|p̂ − p| < Σp/10, which the paper calls a small L1 elsewhere (Section 4.2.3)."""
    whole = summary.at("top_ten", "aol", "deviation", "paper/blended", 0)
    last = _square_error(summary, "blended", ranks=[10])
    truth = summary.at("top_ten", "aol", "p", "paper/truth", 10)
    if whole is None or last is None or truth is None:
        return None
    text = (
        f"off by {100 * whole.mean:.1f} ± {100 * whole.error:.1f} % of their sum; "
        f"the tenth query, typically, by {100 * last.mean**0.5 / truth.mean:.0f} %"
    )
    return Shown(text, (surely_under(whole, 0.1),))


def blend_is_closest(summary: Summary) -> Shown | None:
    """Check that the blend has the least mean square error over the ten queries."""
    squares = {name: _square_error(summary, name) for name in ("blended", *_INGREDIENTS)}
    means = [mean for mean in squares.values() if mean]
    if len(means) < len(squares):
        return None
    blend, *others = means
    text = f"typical error in 1/10 000: blend {1e4 * blend.mean**0.5:.1f}, " + ", ".join(
        f"{name} {1e4 * mean.mean**0.5:.1f}"
        for name, mean in zip(_INGREDIENTS.values(), others, strict=True)
    )
    return Shown(text, tuple(surely_less(blend, mean) for mean in others[:2]))


def _square_error(summary: Summary, name: str, ranks: Sequence[int] = range(1, 11)) -> Mean | None:
    """Return the mean of bias² + s² over the queries, where s² is the variance of single runs.

    The standard error of this mean follows from each query's variance of bias² + s², which is
    2s⁴/(n−1) for s² plus 4·bias²·s²/n for bias². The columns of one run are computed from the same
    people. Treating columns as independent makes the comparison of their errors conservative.
    """
    squares, variance = [], 0.0
    for rank in ranks:
        truth = summary.at("top_ten", "aol", "p", "paper/truth", rank)
        estimate = summary.at("top_ten", "aol", "p", f"paper/{name}", rank)
        if truth and estimate and estimate.runs > 1:
            bias, spread = estimate.mean - truth.mean, estimate.runs * estimate.error**2
            squares.append(bias**2 + spread)
            variance += 2 * spread**2 / (estimate.runs - 1) + 4 * bias**2 * spread / estimate.runs
    if not squares:
        return None
    return Mean(sum(squares) / len(squares), variance**0.5 / len(squares), len(squares))


def query_beats_urls(summary: Summary) -> Shown | None:
    """Check for at most one regression in the clients' query estimate, and many in the URLs'."""
    counted = _regressions(summary, "client_query", "client_urls")
    if counted is None:
        return None
    query, urls = counted
    text = f"query itself {mean_text(query, 1)}, URLs added up {mean_text(urls, 1)}"
    return Shown(
        text, (not surely_over(query, 1), surely_less(query, urls), not surely_under(urls, SEVERAL))
    )


# ---------------------------------------------------------------- Figure 11


def _split(summary: Summary, metric: str, series: str) -> Curve:
    return summary.curve("budget_split", "aol", metric, series)


def l1_falls_with_query_budget(metric: str) -> Check:
    """Check that L1 of clients and blend falls as the query gets more of the budget."""

    def check(summary: Summary) -> Shown | None:
        lines = [_split(summary, metric, series) for series in ("paper, clients", "paper")]
        if any(len(line.x) < 2 for line in lines):
            return None
        text = "; ".join(
            ends_text(name, line, lambda x: f"f_C = {x:g}")
            for name, line in zip(("clients", "blend"), lines, strict=True)
        )
        return Shown(text, tuple(falls_steadily(line.means) for line in lines))

    return check


def client_ndcg_peaks(summary: Summary) -> Shown | None:
    """Check that the clients' NDCG is best at f_C = 0.85 and lower at both ends."""
    line = _split(summary, "ndcg", "paper, clients")
    points = dict(zip(line.x, line.means, strict=True))
    if 0.85 not in points:
        return None
    wanted, first, last = points[0.85], line.means[0], line.means[-1]
    best = max(points, key=lambda x: points[x].mean)
    text = (
        f"{mean_text(wanted)} at 0.85, {mean_text(first)} at {line.x[0]:g}, {mean_text(last)} at "
        f"{line.x[-1]:g}; highest at {best:g}: {mean_text(points[best])}"
    )
    peak = not any(surely_less(wanted, mean) for mean in line.means)
    return Shown(text, (surely_less(first, wanted), surely_less(last, wanted), peak))


def blend_ndcg_flat(summary: Summary) -> Shown | None:
    """Check that NDCG is above 95 %, constant in f_C, and equal to the opt-in group's."""
    blend, optin = (_split(summary, "ndcg", s) for s in ("paper", "paper, opt-in"))
    if not blend.x or not optin.x:
        return None
    pairs = list(zip(blend.means, optin.means, strict=True))
    apart = max(abs(b.mean - o.mean) for b, o in pairs)
    low, high = min(blend.means), max(blend.means)
    text = (
        f"between {low.mean:.3f} and {high.mean:.3f} over all f_C; "
        f"at most {apart:.3f} from the opt-in group's"
    )
    equal = not any(surely_less(o, b) or surely_less(b, o) for b, o in pairs)
    return Shown(text, (surely_over(low, 0.95), _alike(blend.means), equal))


def optin_ndcg_constant(summary: Summary) -> Shown | None:
    """Check that the opt-in group's NDCG does not depend on f_C."""
    optin = _split(summary, "ndcg", "paper, opt-in").means
    if len(optin) < 2:
        return None
    low, high = min(optin), max(optin)
    text = f"between {mean_text(low)} and {mean_text(high)}"
    return Shown(text, (_alike(optin),))


def _alike(means: list[Mean]) -> bool:
    """Return True if the means are consistent with one common value.

    The largest of eight equal means exceeds the smallest by five standard errors one time in a
    hundred (the studentized range).
    """
    variance = sum(mean.error**2 for mean in means) / len(means)
    return max(means).mean - min(means).mean <= 5 * math.sqrt(variance)
