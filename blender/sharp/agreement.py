"""Test whether opt-in users and clients hold records in the same proportions; returns a p-value.

The p-value is for readers. The blend does not need it: it estimates how far the groups differ and
weighs them by that (`blender.sharp.group_difference`). The test asks whether there is *any*
difference.

If the groups are alike, the opt-in users' released counts predict the clients' estimates: p of each
listed record has a posterior (`OptinPosterior`, selection included), and the clients' reports are
random given p. The test statistic

    Q = Σ over listed records of (p̂_C − m)²/(v + σ²_C(m))

is compared with its values in simulated epochs, in which p is drawn from the posterior and clients
report it. The p-value is the proportion of simulations in which Q is at least as large.

Promises: post-processing only, of published numbers. Under agreement P(p < 0.01) is about 0.01
(tests/statistical/test_agreement.py). The posterior already accounts for selection, so nothing else
corrects for it; therefore S's counts can be used, and f_O = 1 has an answer too.
Assumes: the prior that is fitted to the list fits it.
Misses: a difference of a few records among many (the disputed records show that), a general
difference smaller than the noise, and every difference if clients are few or ε is small: it then
reports "agree" for want of evidence. It cannot distinguish forged reports from people who differ.
Symbols: m, v = mean and variance of p given opt-in counts, p̂_C, σ²_C = the clients'.

The generator is numpy's: it decides a p-value, not anyone's privacy.

Decision: docs/decisions/0006-do-the-groups-agree.md
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from blendstream.blender.paper.optin import NoisyCounts
from blendstream.blender.sharp.optin_posterior import OptinPosterior, estimate_ranked_shares
from blendstream.blender.values.arrays import FloatArray
from blendstream.blender.values.cell_estimates import GroupEstimates
from blendstream.blender.values.cells import HeadList
from blendstream.blender.values.errors import ParameterError, require
from blendstream.blender.values.interfaces import LocalRandomizer

__all__ = ["Agreement", "measure_agreement"]

#: At most so many records are compared, the first of the list: later counts are noise and cost
#: time.
_COMPARED = 500

#: Simulated epochs are drawn in batches of about this many numbers (a few times 2 MB). A smaller
#: batch costs time; a larger one costs memory and, beyond the processor's caches, time as well.
_NUMBERS_AT_ONCE = 300_000


@dataclass(frozen=True, slots=True)
class Agreement:
    """Q, and the probability of at least this Q if the groups agree."""

    statistic: float
    p_value: float
    compared: int


def measure_agreement(
    head_list: HeadList,
    noisy: NoisyCounts,
    client: GroupEstimates,
    randomizer: LocalRandomizer,
    *,
    shares: OptinPosterior | None,
    best_trimmed: int | None = None,
    rng: np.random.Generator,
    rounds: int = 999,
) -> Agreement | None:
    """Compare opt-in users with clients over the listed records; `None` if one is empty.

    `shares` is the posterior of p in `OptinRelease`. If it is `None`, T's counts (`noisy`) ordered
    the list, and `best_trimmed` (see `OptinEstimates`) is the largest unlisted one, if there is
    any.
    """
    require(rounds >= 99, f"rounds must be at least 99 to tell 1 % apart, got rounds={rounds}")
    compared = min(head_list.listed, _COMPARED)
    if compared == 0 or client.participants == 0 or (shares is None and noisy.users == 0):
        return None
    if shares is None:
        some = _normalised(np.maximum(client.cells.probability, 0))
        shares = estimate_ranked_shares(
            noisy,
            compared,
            _cut(head_list, noisy, best_trimmed, compared),
            client.cells.probability[:compared],
            client.variance_at(some)[:compared],
        )
    m, v = shares.mean[:compared], shares.variance[:compared]
    others = np.maximum(client.cells.probability, 0)[compared:]
    rest = _normalised(others) if others.any() else np.full(len(others), 1 / len(others))
    variance = v + client.variance_at(_with_rest(m, rest))[:compared]
    if not randomizer.query_wildcards:
        # The answers about a record depend on its own p and on that of ⋆ alone: of the cells that
        # are not compared, only ⋆ must be simulated.
        rest = rest[-1:]

    def statistic(estimate: FloatArray) -> FloatArray:
        return np.asarray(((estimate - m) ** 2 / variance).sum(axis=-1))

    observed = float(statistic(client.cells.probability[:compared]))
    below = np.cumsum(shares.distribution(slice(0, compared)), axis=1)
    step = max(1, _NUMBERS_AT_ONCE // (compared + len(rest)))
    at_least = 0
    for done in range(0, rounds, step):
        many = min(step, rounds - done)
        drawn = np.stack(
            [np.searchsorted(row, rng.random(many) * row[-1]) for row in below], axis=-1
        )
        truth = _with_rest(shares.grid.p[np.minimum(drawn, len(shares.grid.p) - 1)], rest)
        simulated = _simulate_clients(truth, client.participants, randomizer, rng)
        at_least += int((statistic(simulated[:, :compared]) >= observed).sum())
    return Agreement(observed, (1 + at_least) / (1 + rounds), compared)


def _cut(
    head_list: HeadList, noisy: NoisyCounts, best_trimmed: int | None, compared: int
) -> int | None:
    """Return the least count of T, in people, with which a record is certain to be compared.

    If all selected records are compared there is none. Ties rank by text; a count equal to the
    first that is not compared, which ranks before it or after it, is left out of the fit.
    """
    if compared == len(head_list.records):
        return None
    cut = int(noisy.counts[compared]) if compared < head_list.listed else best_trimmed
    if cut is None:
        raise ParameterError("a list that T's counts trimmed needs best_trimmed, got none")
    return int(noisy.to_people(np.array([cut]))[0]) + 1


def _with_rest(compared: FloatArray, rest: FloatArray) -> FloatArray:
    """Complete the p of the compared cells to a distribution: the rest of 1, split as `rest`.

    Both groups must have the same p. The other cells are clipped estimates and may add up to more
    than 1; scaling all cells alike would make the simulated groups differ.
    """
    everyone = compared.sum(axis=-1, keepdims=True)
    truth = np.concatenate([compared, np.maximum(1 - everyone, 0) * rest], axis=-1)
    return np.asarray(truth / np.maximum(everyone, 1))


def _simulate_clients(
    truth: FloatArray, reports: int, randomizer: LocalRandomizer, rng: np.random.Generator
) -> FloatArray:
    """Simulate p̂_C of epochs with these truths, one per row; ⋆ is the last cell."""
    # An answer of w cells is drawn as w answers of one cell: unbiased, a little too noisy.
    width, answers = randomizer.cells_per_answer, randomizer.spec.answers
    shares = np.maximum(randomizer.expected_shares(truth), 0) / width
    unnamed = np.maximum(1 - shares.sum(axis=-1, keepdims=True), 0)
    shares = _normalised(np.concatenate([shares, unnamed], axis=-1))
    counts = rng.multinomial(reports * answers * width, shares)[:, :-1]
    p = randomizer.denoise(counts / (reports * answers))
    # A device's answers may all be alike: widen the errors to the variance that assumes this.
    return truth + (p - truth) * math.sqrt(answers)


def _normalised(p: FloatArray) -> FloatArray:
    return np.asarray(p / p.sum(axis=-1, keepdims=True))
