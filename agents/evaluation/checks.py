"""Whether the measurements show what a sentence of the paper says: one small function each.

A check answers `None` where nothing was measured. Points at which fewer than half of the runs got a
list of the wanted length are not there, as in the paper's figures.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from agents.evaluation.summary import Mean, Summary

__all__ = [
    "Check",
    "Shown",
    "all_but",
    "aol_five_percent",
    "begins",
    "blend_beats_ingredients",
    "blend_is_closest",
    "blend_ndcg_flat",
    "client_ndcg_peaks",
    "epsilon_text",
    "falls",
    "five_hundred",
    "l1_falls_with_query_budget",
    "l1_under",
    "list_of_ten",
    "longer_lists_are_less_accurate",
    "one_regression",
    "optin_ndcg_constant",
    "percent",
    "query_beats_urls",
    "yandex_above_aol",
]

REACHED = 0.5


class Shown(NamedTuple):
    """What we see, in words with numbers, and whether it is what the paper says."""

    text: str
    same: bool


Check = Callable[[Summary], Shown | None]


def percent(value: float) -> str:
    return f"{100 * value:.3g} %"


# ---------------------------------------------------------------- Figure 9


def _regressions(summary: Summary, *names: str) -> list[float] | None:
    found = [summary.at("top_ten", "aol", "regressions", f"paper/{n}", 0) for n in names]
    return [mean.mean for mean in found if mean] if all(found) else None


def one_regression(summary: Summary) -> Shown | None:
    counted = _regressions(summary, "blended")
    if counted is None:
        return None
    return Shown(f"{counted[0]:.1f} on average", counted[0] <= 1.5)


def blend_beats_ingredients(summary: Summary) -> Shown | None:
    counted = _regressions(summary, "blended", "optin", "client_urls")
    if counted is None:
        return None
    blended, optin, client = counted
    text = f"blend {blended:.1f}, opt-in {optin:.1f}, clients (URLs added up) {client:.1f}"
    return Shown(text, blended < min(optin, client))


def blend_is_closest(summary: Summary) -> Shown | None:
    """Root mean square error over the ten queries and all runs: spread and shortfall together."""
    errors = {}
    for name in ("blended", "optin", "client_urls"):
        squares = []
        for rank in range(1, 11):
            truth = summary.at("top_ten", "aol", "p", "paper/truth", rank)
            found = summary.at("top_ten", "aol", "p", f"paper/{name}", rank)
            if truth and found and found.runs > 1:
                squares.append((found.mean - truth.mean) ** 2 + found.runs * found.error**2)
        if not squares:
            return None
        errors[name] = 1e4 * (sum(squares) / len(squares)) ** 0.5
    text = (
        f"typical error in 1/10 000: blend {errors['blended']:.1f}, opt-in {errors['optin']:.1f}, "
        f"clients (URLs added up) {errors['client_urls']:.1f}"
    )
    return Shown(text, errors["blended"] < min(errors["optin"], errors["client_urls"]))


def query_beats_urls(summary: Summary) -> Shown | None:
    counted = _regressions(summary, "client_query", "client_urls")
    if counted is None:
        return None
    query, urls = counted
    return Shown(
        f"query itself {query:.1f}, URLs added up {urls:.1f}", query <= 1.5 and urls > query
    )


# ---------------------------------------------------------------- Figure 11


def _split(summary: Summary, metric: str, series: str) -> dict[float, Mean]:
    curve = summary.curve("budget_split", "aol", metric, series)
    return dict(zip(curve.x, curve.means, strict=True))


def l1_falls_with_query_budget(metric: str) -> Check:
    def check(summary: Summary) -> Shown | None:
        clients, blend = (_split(summary, metric, s) for s in ("paper, clients", "paper"))
        if not clients or not blend:
            return None
        ends = [(c[min(c)].mean, c[max(c)].mean) for c in (clients, blend)]
        text = "; ".join(
            f"{name} {first:.2f} at {min(clients):g} → {last:.2f} at {max(clients):g}"
            for name, (first, last) in zip(("clients", "blend"), ends, strict=True)
        )
        return Shown(text, all(last < first for first, last in ends))

    return check


def client_ndcg_peaks(summary: Summary) -> Shown | None:
    clients = _split(summary, "ndcg", "paper, clients")
    if not clients:
        return None
    best = max(clients, key=lambda x: clients[x].mean)
    last = max(clients)
    text = (
        f"highest at f_C = {best:g} ({clients[best].mean:.3f}; "
        f"{clients[last].mean:.3f} at {last:g})"
    )
    return Shown(text, 0.75 <= best < max(clients))


def blend_ndcg_flat(summary: Summary) -> Shown | None:
    blend, optin = (_split(summary, "ndcg", s) for s in ("paper", "paper, opt-in"))
    if not blend or not optin:
        return None
    values = [m.mean for m in blend.values()]
    apart = max(abs(blend[x].mean - optin[x].mean) for x in blend)
    text = (
        f"between {min(values):.3f} and {max(values):.3f} over all f_C; "
        f"at most {apart:.3f} from the opt-in group's"
    )
    return Shown(text, max(values) - min(values) < 0.02 and apart < 0.02)


def optin_ndcg_constant(summary: Summary) -> Shown | None:
    optin = list(_split(summary, "ndcg", "paper, opt-in").values())
    if len(optin) < 2:
        return None
    low, high = min(optin), max(optin)
    text = f"between {low.mean:.3f} and {high.mean:.3f} (standard error {high.error:.3f})"
    # The largest of eight means lies within four standard errors of the smallest.
    return Shown(text, high.mean - low.mean <= 4 * max(low.error, high.error))


# ---------------------------------------------------------------- Figures 12 to 16


def _reached(summary: Summary, experiment: str, population: str, size: int) -> list[float]:
    curve = summary.curve(experiment, population, "reached", f"paper, M = {size}")
    return [x for x, m in zip(curve.x, curve.means, strict=True) if m.mean >= REACHED]


def _value(
    summary: Summary, experiment: str, population: str, metric: str, size: int, x: float
) -> float | None:
    """A point of a `paper` curve, if it is drawn: the list got that long in half of the runs."""
    if x not in _reached(summary, experiment, population, size):
        return None
    mean = summary.at(experiment, population, metric, f"paper, M = {size}", x)
    return mean.mean if mean else None


def _sizes(summary: Summary, experiment: str, population: str) -> list[int]:
    names = summary.series(experiment, population, "reached")
    return sorted({int(n.rsplit(" ", 1)[1]) for n in names if n.startswith("paper")})


def list_of_ten(metric: str) -> Check:
    def check(summary: Summary) -> Shown | None:
        curve = summary.curve("list_of_ten", "aol", metric, "paper, M = 10")
        sharp = summary.curve("list_of_ten", "aol", metric, "sharp, M = 10")
        if not curve.x or not sharp.x:
            return None
        lowest = min(curve.means, key=lambda m: m.mean)
        at = curve.x[curve.means.index(lowest)]
        text = (
            f"lowest {lowest.mean:.3f} at ε = {at:g}, {curve.means[-1].mean:.3f} at "
            f"ε = {curve.x[-1]:g} (sharp: lowest {min(m.mean for m in sharp.means):.3f})"
        )
        return Shown(text, lowest.mean > 0.95)

    return check


def begins(
    experiment: str, size: int, low: float, high: float, unit: Callable[[float], str]
) -> Check:
    def check(summary: Summary) -> Shown | None:
        if not summary.populations(experiment) or size not in _sizes(summary, experiment, "aol"):
            return None
        reached = _reached(summary, experiment, "aol", size)
        if not reached:
            return Shown(f"{size} records are never reached", False)
        return Shown(f"begins at {unit(reached[0])}", low <= reached[0] <= high)

    return check


def falls(experiment: str, metric: str) -> Check:
    def check(summary: Summary) -> Shown | None:
        parts, same = [], True
        for population in ("aol", "yandex"):
            for size in _sizes(summary, experiment, population):
                drawn = _reached(summary, experiment, population, size)
                if len(drawn) < 2:
                    continue
                first, last = (
                    _value(summary, experiment, population, metric, size, x)
                    for x in (drawn[0], drawn[-1])
                )
                if first is not None and last is not None:
                    parts.append(f"{population} {size}: {first:.2f} → {last:.2f}")
                    same = same and last < first
        return Shown("; ".join(parts), same) if parts else None

    return check


def longer_lists_are_less_accurate(summary: Summary) -> Shown | None:
    """L1 at the usual opt-in share, from the shortest list to the longest."""
    parts, same = [], True
    for population, share in (("aol", 0.05), ("yandex", 0.025)):
        found = [
            (size, value)
            for size in _sizes(summary, "optin_share", population)
            if (value := _value(summary, "optin_share", population, "l1", size, share)) is not None
        ]
        if len(found) > 1:
            parts.append(f"{population} " + ", ".join(f"{size}: {v:.3f}" for size, v in found))
            values = [value for _, value in found]
            same = same and values == sorted(values)
    return Shown("; ".join(parts), same) if parts else None


def l1_under(summary: Summary) -> Shown | None:
    parts, under = [], []
    for size in _sizes(summary, "epsilon", "yandex"):
        records, queries = (
            _value(summary, "epsilon", "yandex", metric, size, 1.0)
            for metric in ("l1", "l1_queries")
        )
        if records is not None and queries is not None:
            parts.append(f"M = {size}: {records:.3f} over records, {queries:.3f} over queries")
            under.append(min(records, queries) < 0.1)
    return Shown("at ε = 1 " + ", ".join(parts), any(under)) if parts else None


def five_hundred(summary: Summary) -> Shown | None:
    value = _value(summary, "optin_share", "yandex", "ndcg", 500, 0.025)
    if not summary.curve("optin_share", "yandex", "reached", "paper, M = 500").x:
        return None
    if value is None:
        return Shown("500 records are not reached at 2.5 %", False)
    return Shown(f"500 are found, NDCG {value:.3f}", value > 0.95)


def aol_five_percent(summary: Summary) -> Shown | None:
    parts = []
    for size in _sizes(summary, "optin_share", "aol"):
        value = _value(summary, "optin_share", "aol", "ndcg", size, 0.05)
        if value is not None:
            parts.append((size, value))
    if not parts:
        return None
    text = ", ".join(f"M = {size}: {value:.3f}" for size, value in parts)
    # "≈ 5 %" for "an NDCG level of 95 %": within a point of it.
    return Shown(f"at 5 % {text}", all(value > 0.94 for _, value in parts))


def all_but(experiment: str, x: float, left_out: int) -> Check:
    """NDCG above 95 % at x on the second data set, for all but the `left_out` largest lists."""

    def check(summary: Summary) -> Shown | None:
        sizes = _sizes(summary, experiment, "yandex")
        if not sizes:
            return None
        values = {s: _value(summary, experiment, "yandex", "ndcg", s, x) for s in sizes}
        text = ", ".join(
            f"M = {size}: " + ("not reached" if value is None else f"{value:.3f}")
            for size, value in values.items()
        )
        small = [values[size] for size in sizes[: len(sizes) - left_out]]
        return Shown(text, all(value is not None and value > 0.95 for value in small))

    return check


def yandex_above_aol(summary: Summary) -> Shown | None:
    parts, same = [], True
    for epsilon in (1.0, 2.0, 3.0, 4.0, 5.0):
        aol, yandex = (
            _value(summary, "epsilon", population, "ndcg", 10, epsilon)
            for population in ("aol", "yandex")
        )
        if aol is not None and yandex is not None:
            parts.append(f"ε = {epsilon:g}: {aol:.3f} and {yandex:.3f}")
            same = same and yandex > aol
    return Shown("M = 10, " + "; ".join(parts), same) if parts else None


def epsilon_text(x: float) -> str:
    return f"ε = {x:g}"
