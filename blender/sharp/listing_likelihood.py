"""Compute the likelihood that a record is known, or new, given its share and its noisy count.

A known record was on the last head list, so it once reached the threshold; a new record has only
now. What this adds about p depends on the *people*. If they change from epoch to epoch, the earlier
count was another sample, and being known is independent evidence: a record of share p reached the
threshold in one of h earlier epochs with probability

    q(p) = 1 − (1 − P(Y ≥ θ | p))^h.

If the same people stay, the earlier count was today's count with other noise, and adds nothing
about p: given y the record is known with probability

    a(y) = P(y − X + X′ ≥ θ),

at any p. In between, a proportion κ of all records is modelled as the second kind:

    P(known | p, y) = κ·a(y) + (1 − κ)·q(p),        P(new | p, y) = 1 − that.

κ and h are fitted to the list: if people change, many known records fall below θ, if they stay
hardly any does. Treating returning users as a new sample would count the same sampling error twice:
with nine in ten the same, intervals of small known records covered 91 % (docs/decisions/0025).

Promises: post-processing; reads released counts and the last list, which is public.
Assumes: shares change little from one epoch to the next.
Symbols: y = noisy count, θ = threshold, drop = least count of a known record that stays, X, X′ =
noise of this epoch and of an earlier one, g = prior distribution of shares (`optin_posterior`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blendstream.blender.sharp.count_distribution import count_likelihood, pass_probability
from blendstream.blender.values.arrays import FloatArray, IntArray

__all__ = ["known_likelihood"]

#: Grids of κ and h.
_STAYING = np.array([0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0])
_EPOCHS = np.array([1.0, 2.0, 4.0, 8.0, 16.0])

_TINY = 1e-12


@dataclass(frozen=True, slots=True)
class KnownOrNew:
    """P(known | p, y), the sum of `stayed` of the row and `came` of the share; P(new) is 1 − it."""

    known: NDArray[np.bool_]
    stayed: FloatArray
    came: FloatArray

    def logs(self, rows: IntArray, shares: slice) -> FloatArray:
        """Return the log-likelihood of these rows' status at these shares."""
        as_known = self.stayed[rows, np.newaxis] + self.came[shares]
        here = np.where(self.known[rows, np.newaxis], as_known, 1 - as_known)
        return np.asarray(np.log(np.maximum(here, _TINY)))


def known_likelihood(
    counts: IntArray,
    known: NDArray[np.bool_],
    *,
    users: int,
    noise: FloatArray,
    threshold: int,
    p: FloatArray,
    prior: FloatArray,
) -> tuple[KnownOrNew, IntArray]:
    """Compute the likelihood of each record's status, known or new, and each record's row.

    `prior` is g times the grid's widths. κ and h are the most likely pair of their grids.
    """
    passes = pass_probability(threshold, users, noise, p)
    pairs, row = np.unique(np.stack([counts, known]), axis=1, return_inverse=True)
    row = row.reshape(-1)
    different, is_known = pairs[0], pairs[1].astype(np.bool_)
    times = np.bincount(row, minlength=len(different)).astype(np.float64)
    likelihood, of_count = count_likelihood(different, users, noise, p)
    stayed = _same_people(different, noise, threshold)

    # A record is on the list if y ≥ θ, or if it is known and y ≥ the least count of a known record.
    # Its likelihood is divided by the probability that a record is listed at all. New records that
    # a coin admitted below θ are not part of that rule and are left out.
    fits = is_known | (different >= threshold)
    least = min([threshold, *different[is_known].tolist()])
    below = np.arange(least, threshold)
    shown_below, _ = count_likelihood(below, users, noise, p)
    stayed_below = _same_people(below, noise, threshold)

    # Σ_p P(y | p)·g(p)·(κ·a(y) + (1 − κ)·q(p)) needs one sum per y, and one per y and h.
    shown, passed = likelihood.weighed(prior)[of_count], float(passes @ prior)
    unlisted = shown_below.weighed(prior)
    best, chosen = -np.inf, (0.0, np.ones(len(p)))
    for epochs in _EPOCHS:
        once = -np.expm1(epochs * np.log1p(-np.minimum(passes, 1 - _TINY)))
        shown_once = likelihood.weighed(prior * once)[of_count]
        kept_once = float(shown_below.weighed(prior * once).sum())
        for staying in _STAYING:
            as_known = staying * stayed * shown + (1 - staying) * shown_once
            seen = np.where(is_known, as_known, shown - as_known)
            listed = passed + staying * float(stayed_below @ unlisted) + (1 - staying) * kept_once
            log_seen = np.log(np.maximum(seen, _TINY * shown))
            fit = float((times * log_seen)[fits].sum() - times[fits].sum() * np.log(listed))
            if fit > best:
                best, chosen = fit, (float(staying), once)
    staying, once = chosen
    return KnownOrNew(is_known, staying * stayed, (1 - staying) * once), row


def _same_people(counts: IntArray, noise: FloatArray, threshold: int) -> FloatArray:
    """Return a(y): the probability that the sum of two independent draws of noise lifts y to θ."""
    both = np.convolve(noise, noise)
    tail = np.cumsum(both[::-1])[::-1]  # P(X′ − X ≥ j) for j = −2h … 2h
    half = len(both) // 2
    place = np.clip(threshold - counts + half, 0, len(both) - 1)
    lifted = np.where(threshold - counts > half, 0.0, tail[place])
    return np.clip(lifted, _TINY, 1 - _TINY)
