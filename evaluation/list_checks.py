"""Check the paper's claims about Figures 12 to 16: several list lengths, by ε and by opt-in share.

Points at which fewer than half of the runs reach the list's length are left out, as in the paper's
figures. `evaluation.paper_checks` has the verdicts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from math import log2

from blendstream.evaluation.certainty import (
    falls,
    falls_steadily,
    surely_less,
    surely_over,
    surely_under,
)
from blendstream.evaluation.paper_checks import Check, Shown, ends_text, mean_text, percent
from blendstream.evaluation.summary import Curve, Mean, Summary

__all__ = [
    "aol_five_percent",
    "begins",
    "declines",
    "declines_alike",
    "five_hundred",
    "l1_under",
    "list_of_ten",
    "longer_lists_are_less_accurate",
    "ndcg_everywhere",
    "ndcg_for_all_but",
    "yandex_above_aol",
]

POPULATIONS = ("aol", "yandex")


def _line(summary: Summary, experiment: str, population: str, metric: str, size: int) -> Curve:
    """Return a line of `paper` as drawn: only points that half of the runs reached."""
    return summary.reached(experiment, population, metric, f"paper, M = {size}")


def _at(
    summary: Summary, experiment: str, population: str, metric: str, size: int, x: float
) -> Mean | None:
    line = _line(summary, experiment, population, metric, size)
    return line.means[line.x.index(x)] if x in line.x else None


def _sizes(summary: Summary, experiment: str, population: str) -> list[int]:
    names = summary.series(experiment, population, "reached")
    return sorted({int(n.rsplit(" ", 1)[1]) for n in names if n.startswith("paper")})


def _lines(summary: Summary, experiment: str, metric: str) -> Iterator[tuple[str, Curve]]:
    """Yield every line of both populations that has at least two points, with its name."""
    for population in POPULATIONS:
        for size in _sizes(summary, experiment, population):
            line = _line(summary, experiment, population, metric, size)
            if len(line.x) > 1:
                yield f"{population} {size}", line


def list_of_ten(metric: str) -> Check:
    """Check that NDCG of a list of ten is above 95 % at every ε."""

    def check(summary: Summary) -> Shown | None:
        curve = summary.curve("list_of_ten", "aol", metric, "paper, M = 10")
        sharp = summary.curve("list_of_ten", "aol", metric, "sharp, M = 10")
        if not curve.x or not sharp.x:
            return None
        lowest = min(curve.means)
        at = curve.x[curve.means.index(lowest)]
        under = [f"{x:g}" for x, m in zip(curve.x, curve.means, strict=True) if m.mean <= 0.95]
        below = f"not above 0.95 at ε = {', '.join(under)}; " if under else ""
        text = (
            f"{below}lowest {mean_text(lowest)} at ε = {at:g}, {mean_text(curve.means[-1])} at "
            f"ε = {curve.x[-1]:g} (sharp: lowest {min(sharp.means).mean:.3f})"
        )
        return Shown(text, (surely_over(lowest, 0.95),))

    return check


def begins(experiment: str, size: int, wanted: float, unit: Callable[[float], str]) -> Check:
    """Return a check that `wanted` is the first point at which half of the runs reach a length."""

    def check(summary: Summary) -> Shown | None:
        if size not in _sizes(summary, experiment, "aol"):
            return None
        reached = summary.curve(experiment, "aol", "reached", f"paper, M = {size}")
        points = dict(zip(reached.x, reached.means, strict=True))
        if wanted not in points:
            return None
        text = f"{points[wanted].mean:.0%} of the runs reach {size} at {unit(wanted)}".replace(
            "%", " %", 1
        )
        drawn = _line(summary, experiment, "aol", "reached", size).x
        text += f"; drawn from {unit(drawn[0])} on" if drawn else "; never drawn"
        return Shown(text, (bool(drawn) and drawn[0] == wanted,))

    return check


def declines(
    experiment: str, metric: str, unit: Callable[[float], str], *, steadily: bool
) -> Check:
    """Return a check that each list's line ends lower or, if `steadily`, falls throughout."""
    judge = falls_steadily if steadily else falls

    def check(summary: Summary) -> Shown | None:
        lines = list(_lines(summary, experiment, metric))
        holds = tuple(judge(line.means) for _, line in lines)
        text = "; ".join(
            ends_text(name, line, unit) + ("" if falls else ", not sure to fall")
            for (name, line), falls in zip(lines, holds, strict=True)
        )
        return Shown(text, holds) if lines else None

    return check


def declines_alike(summary: Summary) -> Shown | None:
    """Check that L1 of the longest lists falls in both data sets, at rates within a factor of two.

    The check compares the fall per doubling of the opt-in users. It cannot compare the lines' ends,
    because a line begins where the list reaches its length, which differs per data set.
    """
    longest: dict[str, tuple[float, bool]] = {}
    parts = []
    for name, line in _lines(summary, "optin_share", "l1"):
        doublings = log2(line.x[-1] / line.x[0])
        left = (line.means[-1].mean / line.means[0].mean) ** (1 / doublings)
        parts.append(f"{name}: {100 * (left - 1):+.0f} %".replace("-", "−"))
        longest[name.split()[0]] = 1 - left, falls(line.means)
    if len(longest) < len(POPULATIONS):
        return None
    less, more = sorted(fall for fall, _ in longest.values())
    alike = 0 < more <= 2 * less
    text = "with twice as many opting in L1 changes by " + ", ".join(parts)
    return Shown(text, (*(sure for _, sure in longest.values()), alike))


def longer_lists_are_less_accurate(summary: Summary) -> Shown | None:
    """Check that L1 rises with the list's length at every opt-in proportion; the text shows one."""
    parts, holds = [], []
    for population, usual in (("aol", 0.05), ("yandex", 0.025)):
        sizes = _sizes(summary, "optin_share", population)
        lines = [_line(summary, "optin_share", population, "l1", size) for size in sizes]
        for share in sorted({x for line in lines for x in line.x}):
            found = [
                (size, line.means[line.x.index(share)])
                for size, line in zip(sizes, lines, strict=True)
                if share in line.x
            ]
            means = [mean for _, mean in found]
            holds += [surely_less(a, b) for a, b in pairwise(means)]
            if share == usual:
                parts.append(
                    f"{population} " + ", ".join(f"{size}: {m.mean:.3f}" for size, m in found)
                )
    if not holds:
        return None
    return Shown("; ".join(parts) + f"; so at {sum(holds)} of {len(holds)} steps", tuple(holds))


def l1_under(metric: str) -> Check:
    """Check that the best list's L1 is under 0.1 at ε = 1 and at every larger ε."""

    def check(summary: Summary) -> Shown | None:
        sizes = _sizes(summary, "epsilon", "yandex")
        lines = {size: _line(summary, "epsilon", "yandex", metric, size) for size in sizes}
        lines = {size: line for size, line in lines.items() if line.x and line.x[0] == 1}
        if not lines:
            return None
        text = ", ".join(f"M = {size}: {mean_text(line.means[0])}" for size, line in lines.items())
        best = min(lines.values(), key=lambda line: line.means[0].mean).means
        return Shown(
            f"at ε = 1 {text}",
            (surely_under(best[0], 0.1), all(surely_under(mean, 0.1) for mean in best[1:])),
        )

    return check


def five_hundred(summary: Summary) -> Shown | None:
    """Check that 500 records are listed, with NDCG above 95 % and L1 below 0.1."""
    if 500 not in _sizes(summary, "optin_share", "yandex"):
        return None
    ndcg, l1 = (
        _at(summary, "optin_share", "yandex", metric, 500, 0.025) for metric in ("ndcg", "l1")
    )
    if ndcg is None or l1 is None:
        return Shown("500 records are not reached at 2.5 %", (False,))
    return Shown(
        f"500 are found, NDCG {mean_text(ndcg)}, L1 {mean_text(l1)}",
        (True, surely_over(ndcg, 0.95), surely_under(l1, 0.1)),
    )


def aol_five_percent(summary: Summary) -> Shown | None:
    """Check that NDCG is 95 % with 5 % opt-in users, and lower with fewer."""
    parts, enough, needed = [], True, True
    for size in _sizes(summary, "optin_share", "aol"):
        line = _line(summary, "optin_share", "aol", "ndcg", size)
        if 0.05 not in line.x:
            continue
        there = line.means[line.x.index(0.05)]
        earlier = [x for x, m in zip(line.x, line.means, strict=True) if surely_over(m, 0.95)]
        text = f"M = {size}: {mean_text(there)}"
        if earlier and earlier[0] < 0.045:
            text += f" (above 0.95 at {percent(earlier[0])} already)"
            needed = False
        parts.append(text)
        enough = enough and not surely_under(there, 0.95)
    return Shown("at 5 % " + ", ".join(parts), (enough, needed)) if parts else None


def ndcg_for_all_but(experiment: str, x: float, left_out: int) -> Check:
    """Check that NDCG at x on the second data set is above 95 % for all but the longest lists."""

    def check(summary: Summary) -> Shown | None:
        sizes = _sizes(summary, experiment, "yandex")
        if not sizes:
            return None
        values = {s: _at(summary, experiment, "yandex", "ndcg", s, x) for s in sizes}
        text = ", ".join(
            f"M = {size}: " + ("not reached" if value is None else mean_text(value))
            for size, value in values.items()
        )
        above = [v is not None and surely_over(v, 0.95) for v in values.values()]
        split = len(sizes) - left_out
        return Shown(text, (all(above[:split]), not any(above[split:])))

    return check


def ndcg_everywhere(summary: Summary) -> Shown | None:
    """Check for each data set that NDCG of every list is above 95 % at every ε."""
    parts, holds = [], []
    for population in POPULATIONS:
        above = True
        for size in _sizes(summary, "epsilon", population):
            line = _line(summary, "epsilon", population, "ndcg", size)
            if line.x:
                low, high = min(line.means), max(line.means)
                under = [f"{x:g}" for x, m in zip(line.x, line.means, strict=True) if m.mean < 0.95]
                where = f" (under 0.95 at ε = {', '.join(under)})" if under else ""
                parts.append(f"{population} {size}: {low.mean:.3f} to {high.mean:.3f}{where}")
                above = above and surely_over(low, 0.95)
        holds.append(above)
    return Shown("; ".join(parts), tuple(holds)) if parts else None


def yandex_above_aol(summary: Summary) -> Shown | None:
    """Check that NDCG of every list on the second data set exceeds that of all on the first."""
    parts, holds = [], []
    for epsilon in (1.0, 1.5, 2.0, 3.0, 4.0, 5.0):
        aol, yandex = (
            [
                mean
                for size in _sizes(summary, "epsilon", population)
                if (mean := _at(summary, "epsilon", population, "ndcg", size, epsilon))
            ]
            for population in POPULATIONS
        )
        if aol and yandex:
            best, worst = max(aol), min(yandex)
            parts.append(f"ε = {epsilon:g}: at most {best.mean:.3f}, at least {worst.mean:.3f}")
            holds.append(surely_less(best, worst))
    return Shown("; ".join(parts), tuple(holds)) if parts else None
