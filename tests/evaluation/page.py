"""What tests of docs/evaluation.md share: where things are, and curves as they are drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from blendstream.evaluation.summary import Mean, Summary

PAGE = Path(__file__).parents[2] / "docs" / "evaluation.md"
GENERATED = ("aol", "yandex")
TABLES = ("subreddit-domain-counts", "us-babynames-2016")
EVERYWHERE = GENERATED + TABLES

Says = Callable[[str], None]
At = Callable[..., Mean]


def points(
    summary: Summary, experiment: str, metric: str, profile: str, populations: Iterable[str]
) -> list[tuple[float, float]]:
    """Every drawn point (x, y) of every list of a profile."""
    found = []
    for population in populations:
        for series in summary.series(experiment, population, metric):
            if series.startswith(profile):
                curve = summary.reached(experiment, population, metric, series)
                found += [(x, m.mean) for x, m in zip(curve.x, curve.means, strict=True)]
    return found


def span(values: Iterable[float], form: str) -> str:
    values = list(values)
    return f"{min(values):{form}} to {max(values):{form}}"
