"""A million draws of exact noise, compared with numpy's float noise and OpenDP's samplers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from bench._measured import Measured, measure
from bench._page import Table
from blendstream.blender.noise.exact_noise import ExactNoise, Noise
from blendstream.blender.noise.opendp_noise import OpenDPNoise

TITLE = "Exact noise"
TEXT = """
A million draws added to a million counts: processor time of one core, medians of 21 rounds (OpenDP:
one round). Ratios are to numpy's float Laplace of the same run. [exact-noise.md](exact-noise.md)
explains how the sampler draws.

- *Scales*: 0.5 is ε = 4, 20 is ε = 0.1, and 2 000 is ε = 0.001, the least allowed. σ = 4.8 is ε = 4
  with ten records per user.
- At small scales the operating system's generator takes half of the time: 2 bytes per draw.
- Wide distributions leave more draws undecided after 16 bits, and search longer tables. Beyond
  b = 5 000 and σ = 25 000 there is no table.
- OpenDP uses both cores, so its wall-clock time is half as long.
"""

DRAWS = 1_000_000
#: (law, scale): ε = 4, 0.1 and 0.001 for S and T; m_O = 10 at ε = 4, wider, and far wider.
LAWS = [
    *(("laplace", scale) for scale in (0.5, 20.0, 2_000.0)),
    *(("gaussian", scale) for scale in (4.8, 100.0, 2_000.0)),
]
SOURCES: dict[str, Callable[[], Noise]] = {"exact": ExactNoise, "OpenDP": OpenDPNoise}


def floats(law: str, scale: float, rounds: int) -> Callable[[], float]:
    """numpy's float noise on as many counts: fast, and no release should use it."""
    counts, rng = np.ones(DRAWS, dtype=np.int64), np.random.default_rng(2)
    drawn = rng.laplace if law == "laplace" else rng.normal
    return lambda: _median(lambda: counts + drawn(scale=scale, size=DRAWS), rounds)


def exact(source: str, law: str, scale: float, rounds: int) -> Callable[[], float]:
    """Exact noise as a release draws it; the table is there, as after the first draw."""
    counts, noise = np.ones(DRAWS, dtype=np.int64), SOURCES[source]()
    drawn = getattr(noise, f"discrete_{law}")
    drawn(counts[:1], scale=scale)
    return lambda: _median(lambda: drawn(counts, scale=scale), rounds)


def table(law: str, scale: float) -> Callable[[], float]:
    """The first draw of a scale, which makes its table."""
    counts = np.ones(1, dtype=np.int64)
    drawn = getattr(ExactNoise(), f"discrete_{law}")
    return lambda: _median(lambda: drawn(counts, scale=scale), 1)


def one_by_one(law: str, scale: float) -> Callable[[], float]:
    """Scales beyond the tables, 10 000 draws."""
    counts = np.ones(10_000, dtype=np.int64)
    drawn = getattr(ExactNoise(), f"discrete_{law}")
    return lambda: _median(lambda: drawn(counts, scale=scale), 1)


def _median(work: Callable[[], object], rounds: int) -> float:
    """Processor seconds of one round."""
    seconds = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return statistics.median(seconds)


def _show(
    table: Table, what: str, measured: Measured, baseline: float, first: Measured | None = None
) -> None:
    table.add(
        what,
        f"{measured.result:.4f} s",
        f"{measured.result / baseline:.2f}",
        "" if first is None else f"{first.result:.3f} s",
        f"{measured.peak_mib:.0f} MiB",
    )


def main() -> list[Table]:
    """Both laws; ratios are to numpy's float Laplace of the same run, medians of processor time."""
    draws = Table(["noise", "processor", "ratio", "first draw (table)", "peak memory"])
    baseline = measure(floats, "laplace", 0.5, 21)
    _show(draws, "numpy float Laplace", baseline, baseline.result)
    _show(draws, "numpy float normal", measure(floats, "gaussian", 0.5, 21), baseline.result)
    for law, scale in LAWS:
        found = measure(exact, "exact", law, scale, 21)
        first = measure(table, law, scale)
        _show(draws, f"exact {law}, scale {scale:g}", found, baseline.result, first)
    for law, scale in (LAWS[0], LAWS[3]):
        found = measure(exact, "OpenDP", law, scale, 1)
        _show(draws, f"OpenDP {law}, scale {scale:g}", found, baseline.result)
    beyond = Table(["noise without a table", "draws per second"])
    for law in ("laplace", "gaussian"):
        found = measure(one_by_one, law, 1e6).result / 10_000
        beyond.add(f"exact {law}, scale 1e6", f"{1 / found:,.0f}")
    return [draws, beyond]


if __name__ == "__main__":
    main()
