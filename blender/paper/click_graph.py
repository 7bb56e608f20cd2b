"""Release a query click graph: frequent queries, with noisy counts of searches and of clicks.

Paper: Release-Data, Algorithm 1 of "Releasing Search Queries and Clicks Privately" (WWW 2009),
the ancestor of CreateHeadList.

Promises: (ε_alg, δ_alg)-DP as `ClickGraphParameters` states them (its Theorem 1); neighbouring:
logs that differ by **adding or removing one user**. Under replace-one, which the rest of this
project uses, that is (2ε, (1+e^ε)δ): see `streams.budget.composition.click_graph_cost`.
Assumes: at most d queries and d_c clicks per user count (Algorithm 1, line 2); exact integer noise;
the query → URLs table comes from outside the data, which its type enforces.
Symbols: d, d_c = queries, clicks kept per user; b, b_q, b_c = noise scales; M(q) = number of
searches for q; X = noise; θ = threshold (the paper's "> K" for integers: ≥ θ = K + 1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from blendstream.blender.noise.exact_noise import (
    Noise,
    absence_bound,
    laplace_scale,
    rare_noise,
    tail_bound,
)
from blendstream.blender.values.cells import HeadList
from blendstream.blender.values.errors import ParameterError, require
from blendstream.blender.values.record import Record

__all__ = [
    "ClickGraph",
    "ClickGraphParameters",
    "PublicUrlTable",
    "best_threshold",
    "get_click_counts",
    "get_query_counts",
    "release_data",
    "select_queries",
]

#: Most URLs per query: a search engine shows ten results to everyone, a longer list is not public.
URLS_PER_QUERY = 10


@dataclass(frozen=True, slots=True)
class ClickGraphParameters:
    """Limits, noise and threshold of one release, and the privacy that follows from them."""

    queries_per_user: int
    clicks_per_user: int
    selection_scale: float
    query_scale: float
    click_scale: float
    threshold: int

    def __post_init__(self) -> None:
        """Refuse parameters that Theorem 1 does not cover."""
        for name in ("queries_per_user", "clicks_per_user"):
            value = getattr(self, name)
            require(
                isinstance(value, int) and value >= 1,
                f"{name} must be an integer of at least 1, got {name}={value!r}",
            )
        for name in ("selection_scale", "query_scale", "click_scale"):
            value = getattr(self, name)
            require(
                math.isfinite(value) and value > 0,
                f"{name} must be finite and above 0, got {name}={value!r}",
            )
        require(
            self.threshold > self.queries_per_user,
            "Theorem 1 (Release-Data) holds for K ≥ d, that is a threshold above "
            f"queries_per_user={self.queries_per_user}, got threshold={self.threshold}",
        )

    @classmethod
    def for_budget(
        cls,
        *,
        selection_epsilon: float,
        query_epsilon: float,
        click_epsilon: float,
        delta: float,
        queries_per_user: int,
        clicks_per_user: int,
    ) -> ClickGraphParameters:
        """Choose the least noise and the lowest threshold for these budgets (add/remove)."""
        require(0 < delta < 1, f"delta must lie in (0, 1), got delta={delta!r}")
        for name, value in (
            ("selection_epsilon", selection_epsilon),
            ("query_epsilon", query_epsilon),
            ("click_epsilon", click_epsilon),
        ):
            require(
                math.isfinite(value) and value > 0,
                f"{name} must be finite and above 0, got {name}={value!r}",
            )
        d = queries_per_user
        scale, threshold = best_threshold(
            epsilon=selection_epsilon, delta=delta, queries_per_user=d
        )
        return cls(
            queries_per_user=d,
            clicks_per_user=clicks_per_user,
            selection_scale=scale,
            query_scale=laplace_scale(sensitivity=d, epsilon=query_epsilon),
            click_scale=laplace_scale(sensitivity=clicks_per_user, epsilon=click_epsilon),
            threshold=threshold,
        )

    @property
    def alpha(self) -> float:
        """α = max( e^{1/b}, 1 + 1/((1+e^{−1/b})·e^{(θ−1)/b} − 1) ).

        The first bounds the effect of one more search on the probability that a query with other
        searches passes, the second the ratio of probabilities that a query does not appear, without
        any user and with one.
        """
        b = self.selection_scale
        absent = (1 + math.exp(-1 / b)) * math.exp((self.threshold - 1) / b) - 1
        return max(math.exp(1 / b), 1 + 1 / absent)

    @property
    def epsilon(self) -> float:
        """ε_alg = d·ln α + d/b_q + d_c/b_c (add/remove)."""
        d, d_c = self.queries_per_user, self.clicks_per_user
        return d * math.log(self.alpha) + d / self.query_scale + d_c / self.click_scale

    @property
    def delta(self) -> float:
        """δ_alg = d·P(X ≥ θ−d): at most d new queries, each searched at most d times (add/remove).

        Rounded up.
        """
        d = self.queries_per_user
        exact = d * tail_bound(self.threshold - d, scale=self.selection_scale)
        return math.nextafter(float(exact), math.inf)


def best_threshold(*, epsilon: float, delta: float, queries_per_user: int) -> tuple[float, int]:
    """Return the (b, θ) that keep the most queries if all of ε and δ are spent on the selection.

    The paper's b = d/ε and K = d(1 − ln(2δ/d)/ε), with the integer tail in place of the
    continuous one: θ = d + min{ j : d·P(X ≥ j) ≤ δ }.
    """
    d = queries_per_user
    scale = laplace_scale(sensitivity=d, epsilon=epsilon)
    threshold = d + rare_noise(scale=scale, at_most=Fraction(delta) / d)
    # ln α may not exceed 1/b, or selection would cost more than ε.
    while tail_bound(threshold - 1, scale=scale) > absence_bound(scale=scale):
        threshold += 1
    return scale, threshold


class PublicUrlTable:
    """The URLs to count for each query, public before the data is read.

    A table made from the log itself would reveal clicks. So it cannot be built from just any
    mapping, only from a published head list or from a named source outside the data.
    """

    __slots__ = ("_urls", "source")
    source: str
    _urls: dict[str, tuple[str, ...]]

    def __init__(self) -> None:
        """Refuse: use one of the class methods."""
        raise ParameterError(
            "a URL table must come from outside the data: use PublicUrlTable.from_head_list "
            "(a published one) or PublicUrlTable.from_outside_source"
        )

    @classmethod
    def from_head_list(cls, head_list: HeadList) -> PublicUrlTable:
        """Build the table from a published head list."""
        urls: dict[str, list[str]] = {}
        for record in head_list.records:
            urls.setdefault(record.query, []).append(record.url)
        return cls._build("a published head list", urls)

    @classmethod
    def from_outside_source(cls, source: str, urls: Mapping[str, Sequence[str]]) -> PublicUrlTable:
        """Build the table from a source independent of this log (a crawl), which `source` names."""
        require(bool(source.strip()), "an outside source must be named")
        return cls._build(source, urls)

    @classmethod
    def _build(cls, source: str, urls: Mapping[str, Sequence[str]]) -> PublicUrlTable:
        table = object.__new__(cls)
        table.source = source
        # The first ten distinct URLs of each query.
        table._urls = {q: tuple(dict.fromkeys(us))[:URLS_PER_QUERY] for q, us in urls.items()}
        return table

    def urls(self, query: str) -> tuple[str, ...]:
        """Return the public URLs of a query, possibly none."""
        return self._urls.get(query, ())


@dataclass(frozen=True, slots=True)
class ClickGraph:
    """The released graph: noisy counts by query, and by query and URL; they may be negative."""

    queries: Mapping[str, int]
    clicks: Mapping[Record, int]
    url_source: str


def release_data(
    query_counts: Mapping[str, int],
    click_counts: Mapping[Record, int],
    urls: PublicUrlTable,
    parameters: ClickGraphParameters,
    noise: Noise,
) -> ClickGraph:
    """Run Algorithm 1, lines 3 to 6, on counts of users limited to d queries and d_c clicks."""
    if not isinstance(urls, PublicUrlTable):
        raise ParameterError(
            "release_data needs a PublicUrlTable: candidate URLs must come from outside the data"
        )
    selected = select_queries(query_counts, parameters, noise)
    return ClickGraph(
        queries=get_query_counts(selected, query_counts, parameters, noise),
        clicks=get_click_counts(selected, click_counts, urls, parameters, noise),
        url_source=urls.source,
    )


def select_queries(
    query_counts: Mapping[str, int], parameters: ClickGraphParameters, noise: Noise
) -> tuple[str, ...]:
    """Return Q = { q : M(q) + X ≥ θ } over the log's queries, in the order of their text."""
    asked = sorted(query for query, count in query_counts.items() if count > 0)
    counts = np.array([query_counts[query] for query in asked], dtype=np.int64)
    noisy = noise.discrete_laplace(counts, scale=parameters.selection_scale)
    return tuple(asked[i] for i in np.flatnonzero(noisy >= parameters.threshold))


def get_query_counts(
    selected: Sequence[str],
    query_counts: Mapping[str, int],
    parameters: ClickGraphParameters,
    noise: Noise,
) -> dict[str, int]:
    """Return ⟨q, M(q) + fresh noise⟩ for each selected query."""
    counts = np.array([query_counts.get(query, 0) for query in selected], dtype=np.int64)
    noisy = noise.discrete_laplace(counts, scale=parameters.query_scale)
    return dict(zip(selected, noisy.tolist(), strict=True))


def get_click_counts(
    selected: Sequence[str],
    click_counts: Mapping[Record, int],
    urls: PublicUrlTable,
    parameters: ClickGraphParameters,
    noise: Noise,
) -> dict[Record, int]:
    """Return ⟨q, u, clicks + noise⟩ for each selected query and each of its public URLs."""
    edges = [Record(query, url) for query in selected for url in urls.urls(query)]
    counts = np.array([click_counts.get(edge, 0) for edge in edges], dtype=np.int64)
    noisy = noise.discrete_laplace(counts, scale=parameters.click_scale)
    return dict(zip(edges, noisy.tolist(), strict=True))
