"""The grid of what the filter over epochs does not know: how records change, and how people stay.

A *mode* is one choice of how people stay, of drift κ and of jump rate π, shared by all records.

    people stay     (h, ℓ, a)     of the opt-in users of one epoch a share h is there in the next
      and keep what they hold     (h, h, 0): they miss a share ℓ = h of every change
      and follow                  (h, 0, 0): those who stay change as others do
      by habit                    (0, 0, a): everybody stays, and holds their favourite in a share a
                                  of the epochs, something new otherwise; this never fades

Symbols: h, ℓ, a as above; κ = relative drift an epoch; π = how often a record jumps.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from blendstream.blender.values.arrays import FloatArray

__all__ = ["FilterModes", "default_modes"]

_KEEP = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.96, 1.0)
_FOLLOW = (0.5, 0.9, 1.0)
_HABIT = (0.4, 0.55, 0.7, 0.8, 0.9)
_DRIFTS = (0.0, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.4)
_JUMPS = (0.002, 0.03, 0.15)

#: Before anything is seen, a drift of this is half as likely as none, twice it a third, and so on.
#: Where data hardly tell slow drift from none, this decides; where they do, it does not matter.
_USUAL_DRIFT = 0.01

#: Habits look like people who come and go until many epochs are compared, and mistaking them makes
#: intervals too short, not too long. So they are this much likelier to begin with.
_HABITUAL = 2.0


@dataclass(frozen=True)
class FilterModes:
    """All combinations of staying, drift and jump rate, in that order."""

    staying: tuple[tuple[float, float, float], ...]
    drifts: tuple[float, ...]
    jumps: tuple[float, ...]
    #: Clients take turns, so that those of one epoch are not those of the next.
    clients_rotate: bool = False

    @property
    def shape(self) -> tuple[int, int, int]:
        """How many of each."""
        return len(self.staying), len(self.drifts), len(self.jumps)

    @cached_property
    def prior(self) -> FloatArray:
        """Before anything was seen: slow drift rather than quick, habits rather than none."""
        slow = 1 / (1 + np.array(self.drifts) / _USUAL_DRIFT)
        ways = np.array([_HABITUAL if habit else 1.0 for _, _, habit in self.staying])
        weights = ways[:, np.newaxis, np.newaxis] * slow[:, np.newaxis]
        weights = np.broadcast_to(weights, self.shape).ravel()
        return np.asarray(weights / weights.sum())

    @cached_property
    def columns(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
        """h, ℓ, a, κ and π of each mode."""
        index = np.indices(self.shape).reshape(3, -1)
        h, lag, habit = np.array(self.staying)[index[0]].T
        return h, lag, habit, np.array(self.drifts)[index[1]], np.array(self.jumps)[index[2]]

    def client_stay(self, h: FloatArray | float, habit: FloatArray | float) -> FloatArray:
        """h of clients: devices stay as opt-in users do, unless they take turns."""
        stay = np.maximum(np.asarray(h, dtype=np.float64), habit)
        return np.zeros_like(stay) if self.clients_rotate else stay

    def average(self, weights: FloatArray, values: FloatArray) -> float:
        """The mean of `values` over modes."""
        return float((weights * values).sum())

    def by_motion(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The weight of each (staying, drift), and the mean jump rate given it."""
        cube = weights.reshape(self.shape)
        total = cube.sum(axis=2)
        return total, cube @ np.array(self.jumps) / np.maximum(total, 1e-300)


def default_modes(*, clients_rotate: bool = False) -> FilterModes:
    """The grid that the service uses."""
    staying = (
        *((h, h, 0.0) for h in _KEEP),
        *((h, 0.0, 0.0) for h in _FOLLOW),
        *((0.0, 0.0, a) for a in _HABIT),
    )
    return FilterModes(staying, _DRIFTS, _JUMPS, clients_rotate)
