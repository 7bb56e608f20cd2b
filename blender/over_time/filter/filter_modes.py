"""Modes of the filter: a grid of rates at which records change and people return.

How quickly records change, and how many people take part again, is unknown. A *mode* is one
combination of retention, drift κ and jump rate π, common to all records.

    retention            (h, ℓ, a)     a share h of an epoch's opt-in users takes part in the next
      with fixed records (h, h, 0)     who stays keeps the record and misses a share ℓ = h of change
      with new records   (h, 0, 0)     who stays changes as others do
      by habit           (0, 0, a)     everybody stays, and holds a favourite in a share a of the
                                       epochs, a new record otherwise; this correlation never decays

Symbols: h, ℓ, a as above; κ = relative drift per epoch; π = probability that a record jumps.
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

#: The prior of this drift is half that of none, of twice this drift a third, and so on. It matters
#: only where data hardly distinguish slow drift from none.
_USUAL_DRIFT = 0.01

#: Prior weight of habits, relative to other modes. In few epochs habits resemble people who come
#: and go; mistaking them for that makes intervals too short, while the reverse makes them too long.
_HABITUAL = 2.0


@dataclass(frozen=True)
class FilterModes:
    """The grid: all combinations of retention, drift and jump rate, in that order."""

    staying: tuple[tuple[float, float, float], ...]
    drifts: tuple[float, ...]
    jumps: tuple[float, ...]
    #: Clients are in cohorts, so that those of one epoch are not those of the next.
    clients_rotate: bool = False

    @property
    def shape(self) -> tuple[int, int, int]:
        """The numbers of retentions, drifts and jump rates."""
        return len(self.staying), len(self.drifts), len(self.jumps)

    @cached_property
    def prior(self) -> FloatArray:
        """Prior weights of the modes: slow drift above fast drift, habits above no habits."""
        slow = 1 / (1 + np.array(self.drifts) / _USUAL_DRIFT)
        ways = np.array([_HABITUAL if habit else 1.0 for _, _, habit in self.staying])
        weights = ways[:, np.newaxis, np.newaxis] * slow[:, np.newaxis]
        weights = np.broadcast_to(weights, self.shape).ravel()
        return np.asarray(weights / weights.sum())

    @cached_property
    def columns(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
        """Arrays of h, ℓ, a, κ and π over the modes."""
        index = np.indices(self.shape).reshape(3, -1)
        h, lag, habit = np.array(self.staying)[index[0]].T
        return h, lag, habit, np.array(self.drifts)[index[1]], np.array(self.jumps)[index[2]]

    def client_stay(self, h: FloatArray | float, habit: FloatArray | float) -> FloatArray:
        """Return h_C, the factor by which clients' sampling error carries over to the next epoch.

        It is the larger of h and a (`habit`), or 0 if clients rotate in cohorts.
        """
        stay = np.maximum(np.asarray(h, dtype=np.float64), habit)
        return np.zeros_like(stay) if self.clients_rotate else stay

    def average(self, weights: FloatArray, values: FloatArray) -> float:
        """Return the weighted mean of `values` over modes."""
        return float((weights * values).sum())

    def by_motion(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the weight of each (retention, drift), and the mean jump rate given it."""
        cube = weights.reshape(self.shape)
        total = cube.sum(axis=2)
        return total, cube @ np.array(self.jumps) / np.maximum(total, 1e-300)


def default_modes(*, clients_rotate: bool = False) -> FilterModes:
    """Return the grid that the service uses."""
    staying = (
        *((h, h, 0.0) for h in _KEEP),
        *((h, 0.0, 0.0) for h in _FOLLOW),
        *((0.0, 0.0, a) for a in _HABIT),
    )
    return FilterModes(staying, _DRIFTS, _JUMPS, clients_rotate)
