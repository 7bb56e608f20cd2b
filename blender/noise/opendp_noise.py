"""Exact noise from OpenDP's samplers: an independent check of `ExactNoise`, and an alternative.

OpenDP (https://opendp.org) samples discrete Laplace and discrete Gaussian variables exactly, from
the operating system's generator, at about 100 000 draws per second and core. It is in the extra
`blendstream[opendp]`. No setting chooses it; a program of your own passes it to the jobs:

    from blendstream.agents.jobs.job_context import RandomnessSources
    from blendstream.agents.jobs.jobs_process import run_jobs
    from blendstream.blender.noise.opendp_noise import OpenDPNoise
    from blendstream.streams.settings import load_settings

    run_jobs(load_settings().settings, dice=RandomnessSources(OpenDPNoise()))

Promises: noise of exactly the requested distribution, as OpenDP states it. Its threshold
measurements are not used: they account for too small a δ
(docs/decisions/0003-noise-on-a-fine-grid.md).
Assumes: the scale was derived from the sensitivity by the caller.
"""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blendstream.blender.noise.exact_noise import ExactNoise
from blendstream.blender.values.arrays import IntArray
from blendstream.blender.values.errors import ParameterError

__all__ = ["OpenDPNoise"]

#: Counts per call of OpenDP. Fewer cost time for calls; more need memory for Python integers (about
#: 100 bytes per count) and distribute the work less evenly over the cores.
_CHUNK = 50_000


class OpenDPNoise:
    """Exact noise from OpenDP."""

    def __init__(self) -> None:
        """Fail now if OpenDP is missing, not at the first draw."""
        try:
            import opendp.prelude as dp  # noqa: PLC0415
        except ImportError as error:
            raise ParameterError(
                "OpenDPNoise needs OpenDP, which is not installed; "
                "install it: pip install blendstream[opendp]"
            ) from error
        dp.enable_features("contrib")
        self._dp: Any = dp

    def discrete_laplace(self, counts: IntArray, *, scale: float) -> IntArray:
        """Return `counts` + exact discrete Laplace noise."""
        return self._add("make_laplace", self._dp.l1_distance(T="i64"), counts, scale)

    def discrete_gaussian(self, counts: IntArray, *, scale: float) -> IntArray:
        """Return `counts` + exact discrete Gaussian noise."""
        return self._add("make_gaussian", self._dp.l2_distance(T="f64"), counts, scale)

    def coins(self, number: int, *, heads: int) -> NDArray[np.bool_]:
        """Toss coins as `ExactNoise` does, since OpenDP has no function for many coins."""
        return ExactNoise().coins(number, heads=heads)

    def _add(self, maker: str, metric: Any, counts: IntArray, scale: float) -> IntArray:
        if not (math.isfinite(scale) and scale > 0):
            raise ParameterError(f"noise scale must be finite and above 0, got scale={scale!r}")
        if counts.size == 0:
            return counts.astype(np.int64)
        domain = self._dp.vector_domain(self._dp.atom_domain(T="i64"))
        draw = getattr(self._dp.m, maker)(domain, metric, scale=scale)

        def add(start: int) -> None:
            chunk = counts[start : start + _CHUNK]
            noisy[start : start + _CHUNK] = draw(chunk.tolist())

        # OpenDP releases the interpreter while it draws, so threads use every core.
        noisy = np.empty(len(counts), dtype=np.int64)
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            for _ in pool.map(add, range(0, len(counts), _CHUNK)):
                pass
        return noisy
