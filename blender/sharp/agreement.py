"""Do opt-in users and clients want the same things? A p-value for "yes".

A figure for people: the blend does not need it, because it estimates how far the groups differ and
weighs by that (`blender.sharp.group_difference`). The test says whether there is *any* difference.

What opt-in users released foretells what clients will say if both are alike: p of each listed
record is uncertain (`OptinShares`, selection included), and clients' reports are random given p. So

    Q = Σ over listed records of (p̂_C − m)²/(v + σ²_C(m))

is compared with what it is in simulated epochs, in which p is drawn from that law and clients
report it. The p-value is the part of them in which Q is at least as large.

Promises: post-processing only, on published numbers. Under agreement P(p < 0.01) is about 0.01
(tests/statistical/test_agreement.py). Nothing is corrected for selection, since the law of p given
the released counts already is: that is why S's counts can be used, and f_O = 1 has an answer too.
Assumes: the law of shares that is fitted to the list fits it.
What it misses: a difference of a few records among many (see which are disputed instead), a general
difference smaller than the noise, and every difference where clients are few or ε is small: then it
says "agree" for want of evidence. It cannot tell forged reports from people who differ.
Symbols: m, v = mean and variance of p given opt-in counts, p̂_C, σ²_C = the clients'.

The generator is numpy's: it decides a p-value, not anyone's privacy.

Decision: docs/decisions/0006-do-the-groups-agree.md
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from blendstream.blender.paper.optin import NoisyCounts
from blendstream.blender.sharp.optin_shares import OptinShares, ranked_shares
from blendstream.blender.values.arrays import FloatArray
from blendstream.blender.values.cell_estimates import GroupEstimates
from blendstream.blender.values.cells import HeadList
from blendstream.blender.values.errors import ParameterError, require
from blendstream.blender.values.interfaces import LocalRandomizer

__all__ = ["Agreement", "measure_agreement"]

#: Records compared at most, the first of the list: beyond, counts are noise and only cost time.
_COMPARED = 500

#: Simulated epochs are drawn in batches of about this many numbers (a few times 2 MB). Smaller
#: costs time, larger memory and, once it leaves the caches, time as well.
_NUMBERS_AT_ONCE = 300_000


@dataclass(frozen=True, slots=True)
class Agreement:
    """Q, and the chance of one at least as large if the groups agreed."""

    statistic: float
    p_value: float
    compared: int


def measure_agreement(
    head_list: HeadList,
    noisy: NoisyCounts,
    client: GroupEstimates,
    randomizer: LocalRandomizer,
    *,
    shares: OptinShares | None,
    best_trimmed: int | None = None,
    rng: np.random.Generator,
    rounds: int = 999,
) -> Agreement | None:
    """Compare opt-in users with C over the listed records, ⋆ left out; `None` if one is empty.

    `shares` is what `OptinRelease` says of p. Where it is `None` T's counts (`noisy`) ordered the
    list, and `best_trimmed` (see `OptinEstimates`) came first among the unlisted, if any did.
    """
    require(rounds >= 99, f"rounds must be at least 99 to tell 1 % apart, got rounds={rounds}")
    compared = min(head_list.listed, _COMPARED)
    if compared == 0 or client.participants == 0 or (shares is None and noisy.users == 0):
        return None
    if shares is None:
        some = _distribution(np.maximum(client.cells.probability, 0))
        shares = ranked_shares(
            noisy,
            compared,
            _cut(head_list, noisy, best_trimmed, compared),
            client.cells.probability[:compared],
            client.variance_at(some)[:compared],
        )
    m, v = shares.mean[:compared], shares.variance[:compared]
    others = np.maximum(client.cells.probability, 0)[compared:]
    rest = _distribution(others) if others.any() else np.full(len(others), 1 / len(others))
    variance = v + client.variance_at(_with_rest(m, rest))[:compared]
    if not randomizer.query_wildcards:
        # What is said of a record depends on its own p and on ⋆'s alone: of the cells that are not
        # compared, only ⋆ must be drawn.
        rest = rest[-1:]

    def statistic(estimate: FloatArray) -> FloatArray:
        return np.asarray(((estimate - m) ** 2 / variance).sum(axis=-1))

    observed = float(statistic(client.cells.probability[:compared]))
    below = np.cumsum(shares.law(slice(0, compared)), axis=1)
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
    """How high T's count of a record, in people, had to be to rank before the first that is not
    compared.

    Where all that were selected are compared none had to be anything. Ties rank by text; a count
    equal to the cut, which some of those records would have lost, is left out of the fit.
    """
    if compared == len(head_list.records):
        return None
    cut = int(noisy.counts[compared]) if compared < head_list.listed else best_trimmed
    if cut is None:
        raise ParameterError("a list that T's counts trimmed needs best_trimmed, got none")
    return int(noisy.to_people(np.array([cut]))[0]) + 1


def _with_rest(compared: FloatArray, rest: FloatArray) -> FloatArray:
    """A truth over these cells: the compared ones as they are, of the others their part `rest` of
    what these leave.

    Both groups must be given the same p. The others are clipped estimates and may add up to more
    than everyone; to scale all cells alike would make simulated groups differ.
    """
    everyone = compared.sum(axis=-1, keepdims=True)
    truth = np.concatenate([compared, np.maximum(1 - everyone, 0) * rest], axis=-1)
    return np.asarray(truth / np.maximum(everyone, 1))


def _simulate_clients(
    truth: FloatArray, reports: int, randomizer: LocalRandomizer, rng: np.random.Generator
) -> FloatArray:
    """p̂_C of simulated epochs, one a row, as is their truth; ⋆ is the last cell."""
    # An answer of w cells is drawn as w answers of one: right on average, a little too noisy.
    width, answers = randomizer.cells_per_answer, randomizer.spec.answers
    shares = np.maximum(randomizer.expected_shares(truth), 0) / width
    unnamed = np.maximum(1 - shares.sum(axis=-1, keepdims=True), 0)
    shares = _distribution(np.concatenate([shares, unnamed], axis=-1))
    counts = rng.multinomial(reports * answers * width, shares)[:, :-1]
    p = randomizer.denoise(counts / (reports * answers))
    # A device's answers may all be alike: spread them as far as their variance assumes.
    return truth + (p - truth) * math.sqrt(answers)


def _distribution(p: FloatArray) -> FloatArray:
    return np.asarray(p / p.sum(axis=-1, keepdims=True))
