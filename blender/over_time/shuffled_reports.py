"""Bound a client's (ε,δ) against readers of publications: privacy amplification by shuffling.

Not in the paper. A client's report is ε₀-DP against everybody. Publications are functions of the
*histogram* of reports, so their readers see no more than all reports in a random order, in which
n−1 other reports hide the client's. That gives a second, much smaller (ε,δ) against readers.

For two values of the client, let answers be of three kinds: U₀, likelier by E = e^ε₀ under the
first value, U₁, likelier by E under the second, and the rest, equally likely under both. The
client's answer falls into U₀ or U₁ with probability α(E+1), and every other client's into each of
them with at least α, whatever it holds. So let C ~ Bin(n−1, 2α) others be there, A ~ Bin(C, ½) of
them in U₀, and Δ ~ Bernoulli(E/(E+1)) be 1 if the client's answer is in U₀: readers learn at most
(A+Δ, C−A+1−Δ), or its mirror image.

    δ(ε)  ≤  α(E+1) · the divergence of that pair at e^ε

    randomizer               values                      α
    randomized response      any two cells               1/(E+K−1)
    subset selection         any two cells               (K−ω)/(K−1) / (E + (K−ω)/ω)
    subset or none           two records                 (M−ω)/(M−1) / (E + M/ω)
                             a record and ⋆              1/(E + M/ω)

Two more pairs hold, without the factor: C ~ Bin(n−1, 2/(E+1)) if every answer of everybody is at
least 1/(E+1) times as likely as under both values together ("stronger clones", true for ω = 1
only), and C ~ Bin(n−1, 1/E) for every randomizer ("clones"). The code uses the best that holds.

Promises: an upper bound, (ε,δ)-DP for one client against readers of publications; neighbouring:
replace-one. (docs/privacy-over-time.md has the proofs, and against whom this does *not* hold.)
Assumes: at least half of `reports` are honest (the others may be forged and hide no one); reports
are published only as sums over a whole epoch.

Symbols: n = honest reports, ε₀ = epsilon per answer, E, α, A, C, Δ as above; K, M, ω as in the
randomizers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from blendstream.blender.paper.local import TwoStage
from blendstream.blender.randomizers.subset_or_none import SubsetOrNone
from blendstream.blender.randomizers.subset_selection import SubsetSelection
from blendstream.blender.values.arrays import FloatArray
from blendstream.blender.values.errors import ParameterError, require
from blendstream.blender.values.interfaces import LocalRandomizer

__all__ = ["ClonePair", "ShuffleBound", "clone_pairs", "readers_delta", "readers_epsilon"]

#: Losses are rounded up to a grid of so many steps per standard deviation: ε is overstated by less
#: than one per cent, and a year of epochs composes in seconds.
_STEPS = 400

#: Probability of the tails that are not summed; it is added to δ.
_CUT = 1e-16

#: Largest step of a grid.
_WIDEST = 2.0**-10

#: Values of C processed at a time: memory depends on it, the result does not.
_ROWS = 256


@dataclass(frozen=True, slots=True)
class ClonePair:
    """One bound: how often the client's answer is informative, and how often others' cover it."""

    likelihood: float  # E
    informative: float  # P(the client's answer is in U₀ or U₁): α(E+1), or 1
    covering: float  # P(another's answer is there, whatever it holds): 2α, 2/(E+1) or 1/E


@dataclass(frozen=True, slots=True)
class ShuffleBound:
    """One epoch in which a client reports: bounds that all hold, and its honest reports."""

    pairs: tuple[ClonePair, ...]
    honest: int
    answers: int = 1

    @classmethod
    def from_reports(cls, randomizer: LocalRandomizer, reports: int) -> ShuffleBound:
        """Build the bound for an epoch's reports, of which half count as honest."""
        require(reports >= 0, f"reports must be at least 0, got reports={reports}")
        return cls(clone_pairs(randomizer), reports // 2, randomizer.spec.answers)


def clone_pairs(randomizer: LocalRandomizer) -> tuple[ClonePair, ...]:
    """Return the bounds that are proved for one answer of this randomizer, for any two values."""
    size = len(randomizer.cells)
    if isinstance(randomizer, TwoStage):
        return (_clones(_largest_ratio(randomizer)),)
    if isinstance(randomizer, SubsetOrNone):
        e, w, m = randomizer.likelihood, randomizer.cells_per_answer, size - 1
        alphas = [1 / (e + Fraction(m, w))] if m else []
        if m > 1:
            alphas.append(Fraction(m - w, m - 1) / (e + Fraction(m, w)))
    elif isinstance(randomizer, SubsetSelection):  # of which randomized response is the case ω = 1
        e, w = randomizer.likelihood, randomizer.cells_per_answer
        alphas = [Fraction(size - w, size - 1) / (e + Fraction(size - w, w))] if size > 1 else []
    else:
        raise ParameterError(
            f"no guarantee against readers is proved for the randomizer {randomizer.name!r}"
        )
    alphas = [alpha for alpha in alphas if alpha > 0]
    if not alphas:
        return (ClonePair(1.0, 0.0, 0.0),)  # every answer is equally likely under all values
    # One pair for all kinds of values: a client may change from one kind to the other between
    # epochs. δ rises with `informative`. It falls with `covering`: a reader of few other reports
    # can simulate more of them, but not remove any.
    both = ClonePair(float(e), float(max(alphas) * (e + 1)), float(2 * min(alphas)))
    stronger = [ClonePair(float(e), 1.0, float(2 / (e + 1)))] if w == 1 else []
    return (both, *stronger, _clones(float(e)))


def _clones(likelihood: float) -> ClonePair:
    return ClonePair(likelihood, 1.0, 1 / likelihood)


def _largest_ratio(randomizer: TwoStage) -> float:
    """Return the largest ratio of an answer's probabilities under two records, with δ included."""
    k = len(randomizer.cells.queries) + 1
    if k == 1:
        return 1.0
    t = randomizer.truth
    ratio = Fraction(1)
    for size, url_truth in randomizer.url_truth.items():
        # The record itself, another URL of its query, another query.
        likely = [t * url_truth, (1 - t) / ((k - 1) * size)]
        if size > 1:
            likely.append(t * (1 - url_truth) / (size - 1))
        if min(likely) == 0:
            return math.inf
        ratio = max(ratio, max(likely) / min(likely))
    return float(ratio)


def readers_delta(epochs: Sequence[ShuffleBound], epsilon: float) -> float:
    """Return δ at this ε, against readers, for a client that reported in all of these epochs."""
    # Any of the bounds may be used; the best one for a single epoch is nearly the best for all.
    hint = 1e-6 / max(len(epochs), 1)
    return min(1.0, float(_composed(tuple(epochs), hint).get_delta_for_epsilon(epsilon)))


def readers_epsilon(epochs: Sequence[ShuffleBound], delta: float) -> float:
    """Return ε at this δ, against readers, for a client that reported in all of these epochs.

    ∞ if a report may reveal its record with certainty.
    """
    require(0 < delta < 1, f"delta must lie in (0, 1), got delta={delta!r}")
    hint = delta / max(len(epochs), 1)
    return float(_composed(tuple(epochs), hint).get_epsilon_for_delta(delta))


def _composed(epochs: tuple[ShuffleBound, ...], delta: float) -> Any:
    # For reports of m_C answers, readers see at most m_C sets of answers, each in random order.
    times = Counter((e.pairs, e.honest, e.answers) for e in epochs)
    total: Any = None
    width = min((_step(pair, e.honest) for e in epochs for pair in e.pairs), default=_WIDEST)
    for (pairs, honest, answers), epochs_alike in times.items():
        best = min(
            (_privacy_loss(pair, honest, width) for pair in pairs),
            key=lambda one: float(one.get_epsilon_for_delta(delta / answers)),
        )
        many = best.self_compose(answers * epochs_alike)
        total = many if total is None else total.compose(many)
    return _privacy_loss(ClonePair(1.0, 0.0, 0.0), 0, width) if total is None else total


def _step(pair: ClonePair, honest: int) -> float:
    """Return the step of the grid, a power of two: the loss has a deviation of about 2/√C."""
    deviation = 2 / math.sqrt(1 + honest * pair.covering)
    return min(_WIDEST, 2.0 ** math.floor(math.log2(deviation / _STEPS)))


@lru_cache(maxsize=64)
def _privacy_loss(pair: ClonePair, honest: int, width: float) -> Any:
    """Return the privacy loss distribution, for dp-accounting to compose; losses are rounded up."""
    # Imported here: a device has numpy alone, and only servers account.
    from dp_accounting.pld.privacy_loss_distribution import (  # noqa: PLC0415
        PrivacyLossDistribution,
    )

    if pair.likelihood == math.inf:
        return PrivacyLossDistribution.create_from_rounded_probability({}, 1.0, width)
    # With probability 1 − α(E+1) the answer is equally likely under both values: no loss.
    loss = {0: 1 - pair.informative}
    if pair.informative > 0:
        lowest, masses = _losses(pair, max(honest - 1, 0), width)
        for place in np.flatnonzero(masses).tolist():
            step = lowest + place
            loss[step] = loss.get(step, 0.0) + pair.informative * float(masses[place])
    return PrivacyLossDistribution.create_from_rounded_probability(loss, _CUT, width)


def _losses(pair: ClonePair, others: int, width: float) -> tuple[int, FloatArray]:
    """Return the lowest loss and P(loss) on the grid, of (A+Δ, C−A+1−Δ) against its mirror image.

    Given C = c, with a = A+Δ and b = c+1−a,

        P(a) = 2^−c · binom(c+1, a) · (E·a + b) / ((E+1)(c+1)),     loss = ln (E·a + b)/(a + E·b).
    """
    # Imported here: a device has numpy alone, and only servers account.
    from scipy.special import gammaln  # noqa: PLC0415

    e, share = pair.likelihood, min(pair.covering, 1.0)
    # The tails beyond 9 deviations and 40 on either side are below _CUT (Bernstein's inequality).
    middle, reach = others * share, 9 * math.sqrt(others * share * (1 - share)) + 40
    first, last = max(0, math.floor(middle - reach)), min(others, math.ceil(middle + reach))
    log_factorial = gammaln(np.arange(last + 3) + 1.0)
    count = np.arange(first, last + 1)
    with np.errstate(divide="ignore", invalid="ignore"):  # 0·ln 0, which is replaced
        log_count = gammaln(others + 1) - log_factorial[count] - gammaln(others - count + 1.0)
        log_count += np.where(count > 0, count * np.log(share), 0.0)
        log_count += np.where(count < others, (others - count) * np.log1p(-share), 0.0)
    lowest = -math.ceil(math.log(e) / width) - 1
    masses = np.zeros(2 * -lowest + 1)
    for start in range(0, len(count), _ROWS):
        c = count[start : start + _ROWS, np.newaxis]
        # As small a tail, by Hoeffding's inequality.
        half = math.ceil(4.5 * math.sqrt(int(c[-1, 0]) + 1) + 40)
        a = (c + 1) // 2 + np.arange(-half, half + 1)
        inside = (a >= 0) & (a <= c + 1)
        a = np.where(inside, a, 0)
        b = c + 1 - a
        up, down = e * a + b, a + e * b
        log_mass = log_count[start : start + _ROWS, np.newaxis] - c * math.log(2)
        log_mass = log_mass + log_factorial[c + 1] - log_factorial[a] - log_factorial[b]
        mass = np.where(inside, np.exp(log_mass) * up / ((e + 1) * (c + 1)), 0.0)
        step = np.ceil(np.log(up / down) / width - 1e-9).astype(np.int64) - lowest
        masses += np.bincount(step.ravel(), weights=mass.ravel(), minlength=len(masses))
    return lowest, masses
