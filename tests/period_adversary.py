"""What the best adversary makes of a period: known sets chosen after each release, by enumeration.

An adversary fixes one person's records in both histories and everybody else's, and chooses after
each release which records are known in the next epoch. What it has learned so far is one number,
the privacy loss ℓ = ln(P/Q) of what was released. So the largest possible δ is had backwards:

    V_{T+1}(ℓ) = max(0, 1 − e^(ε−ℓ)),      V_t(ℓ) = max over choices of Σ_o P(o)·V_{t+1}(ℓ + ℓ_o)

and V_1(0) is the true δ at ε. A choice is a pair of lists of distributions, what the changed
records show under the two histories; the distributions come from the code under test
(tests/output_distributions.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tests.output_distributions import Distribution

#: What the changed records show under the one history and under the other.
Choice = tuple[Sequence[Distribution], Sequence[Distribution]]
Losses = tuple[NDArray[np.float64], NDArray[np.float64]]

_DIGITS = 10


def losses_of(choice: Choice) -> Losses:
    """P(loss) of all that the changed records show together; ∞ where only the first can show it."""
    losses, masses = np.zeros(1), np.ones(1)
    for law_p, law_q in zip(*choice, strict=True):
        here = np.array(list(law_p.values()))
        there = np.array([law_q.get(outcome, 0.0) for outcome in law_p])
        here, there = here[here > 0], there[here > 0]
        with np.errstate(divide="ignore"):
            loss = np.log(here) - np.log(there)
        losses, masses = _merged(np.add.outer(losses, loss), np.multiply.outer(masses, here))
    return losses, masses


def worst_delta(epsilon: float, epochs: Sequence[Sequence[Choice]]) -> float:
    """The true δ at ε if in each epoch the best of its choices may be taken, given the past."""
    tables = [[losses_of(choice) for choice in choices] for choices in epochs]
    # Forwards: every loss that may have been reached before each epoch.
    reached = [np.zeros(1)]
    for choices in tables:
        sums = [np.add.outer(reached[-1], losses).ravel() for losses, _ in choices]
        everything = np.unique(np.round(np.concatenate(sums), _DIGITS))
        reached.append(everything[np.isfinite(everything)])
    # Backwards: what it is worth.
    with np.errstate(over="ignore"):
        value = np.maximum(0.0, -np.expm1(epsilon - reached[-1]))
    for before, after, choices in zip(
        reached[-2::-1], reached[:0:-1], reversed(tables), strict=True
    ):
        value = np.max([_worth(before, after, value, *choice) for choice in choices], axis=0)
    return float(value[0])


def _worth(
    before: NDArray[np.float64],
    after: NDArray[np.float64],
    value: NDArray[np.float64],
    losses: NDArray[np.float64],
    masses: NDArray[np.float64],
) -> NDArray[np.float64]:
    finite = np.isfinite(losses)
    sums = np.round(np.add.outer(before, losses[finite]), _DIGITS)
    place = np.clip(np.searchsorted(after, sums - 1e-9), 0, len(after) - 1)
    return np.asarray(value[place] @ masses[finite] + masses[~finite].sum())


def _merged(losses: NDArray[np.float64], masses: NDArray[np.float64]) -> Losses:
    rounded, group = np.unique(np.round(losses.ravel(), _DIGITS), return_inverse=True)
    return rounded, np.bincount(group.ravel(), weights=masses.ravel())
