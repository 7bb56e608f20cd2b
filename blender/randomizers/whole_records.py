"""Helpers of the estimators over whole records: simulation, checks of counts, estimates."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from blendstream.blender.values.arrays import FloatArray, IntArray
from blendstream.blender.values.cell_estimates import Estimates
from blendstream.blender.values.errors import HeadListMismatch
from blendstream.blender.values.intervals import Z_95, score_interval

__all__ = [
    "answer_in_chunks",
    "check_counts",
    "choose_batch",
    "estimates_with_intervals",
    "flat",
    "sum_by_query",
    "without_evidence",
]


#: Devices simulated at a time. More only need more memory (8 bytes × K per device at worst).
_CHUNK = 100_000


def answer_in_chunks(
    cells: IntArray, cells_per_answer: int, answer_chunk: Callable[[IntArray], IntArray]
) -> IntArray:
    """Simulate the answers of many devices, a chunk at a time; shape (n, ω)."""
    answers = np.empty((len(cells), cells_per_answer), dtype=np.int64)
    for start in range(0, len(cells), _CHUNK):
        answers[start : start + _CHUNK] = answer_chunk(cells[start : start + _CHUNK])
    return answers


def check_counts(
    counts: IntArray, size: int, reports: int, answers: int, cells_per_answer: int
) -> None:
    """Refuse counts that this number of reports cannot have."""
    n = reports * answers
    fits = counts.shape[-1] == size and (counts >= 0).all() and (counts <= n).all()
    if not fits or (counts.sum(axis=-1) != n * cells_per_answer).any():
        raise HeadListMismatch(
            f"{reports} reports of {answers} answers of {cells_per_answer} cells make "
            f"{n * cells_per_answer} counts over {size} cells, got {counts.sum(axis=-1)} over "
            f"{counts.shape[-1]}"
        )


def sum_by_query(values: FloatArray, query: IntArray, queries: int) -> FloatArray:
    """Sum over each query's listed records, which are the last axis."""
    rows = values.reshape(-1, values.shape[-1])
    place = np.arange(len(rows))[:, np.newaxis] * queries + query
    sums = np.bincount(place.ravel(), weights=rows.ravel(), minlength=len(rows) * queries)
    return np.asarray(sums.reshape(*values.shape[:-1], queries), dtype=np.float64)


def choose_batch(rows: int, n: int, size: int, rng: np.random.Generator) -> IntArray:
    """Choose `size` different numbers below n in every row, every set equally likely."""
    if size * (size - 1) > 3 * n:
        # Dense: the places of the `size` smallest of n random numbers.
        chosen = np.empty((rows, size), dtype=np.int64)
        step = max(1, 20_000_000 // n)
        for start in range(0, rows, step):
            keys = rng.random((min(step, rows - start), n), dtype=np.float32)
            places = np.argpartition(keys, size - 1, axis=1)[:, :size]
            chosen[start : start + step] = places
        return chosen
    # Sparse: draw with repetition and redraw the rows that repeat a number.
    chosen = rng.integers(0, n, size=(rows, size), dtype=np.int64)
    if size < 2:
        return chosen
    again = np.arange(rows)
    while len(again):
        in_order = np.sort(chosen[again].astype(np.int32), axis=1)
        again = again[(in_order[:, 1:] == in_order[:, :-1]).any(axis=1)]
        chosen[again] = rng.integers(0, n, size=(len(again), size), dtype=np.int64)
    return chosen


def flat(variance: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """Return a variance function that is constant in the truth."""
    return lambda truth: variance


def estimates_with_intervals(
    probability: FloatArray,
    variance: FloatArray,
    variance_at: Callable[[FloatArray], FloatArray],
) -> Estimates:
    """Build estimates with score intervals."""
    low, high = score_interval(probability, variance_at, z=Z_95)
    return Estimates(probability, variance, low, high)


def without_evidence(size: int, queries: int, reports: int) -> tuple[Estimates, Estimates]:
    """Return estimates of cells and query totals for a single cell, or without reports."""
    # K = 1: everyone is in ⋆, with certainty. No reports: nothing is known.
    certain = size == 1
    value = np.full(size, 1.0 if certain else 0.0)
    spread = np.full(size, 0.0 if certain else math.inf)
    cells = Estimates(value, spread, value if certain else np.zeros(size), np.ones(size))
    nothing = np.zeros(queries)
    return cells, Estimates(nothing, np.full(queries, math.inf), nothing, np.ones(queries))
