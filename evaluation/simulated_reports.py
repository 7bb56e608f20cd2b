"""Draw the summed reports of millions of devices, without simulating each device.

Answers about one cell are exchangeable, so only their number matters: this module draws their total
counts in one step. That also holds if a device sends several answers (m_C > 1). Their subjects are
dependent, but the randomizer treats each answer independently.

Promises: `draw_report_counts` and `draw_answer_counts` have exactly the distribution of counting
every answer (`tests/evaluation` compares both, and enumerates small cases); floats replace the
channel's fractions, as in every simulation.
Symbols: K = cells, ω = cells in an answer, k = queries with ⋆, k_q = URLs of q with ⋆,
m_C = answers of a device.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from blendstream.blender.paper.local import TwoStage
from blendstream.blender.randomizers.subset_or_none import SubsetOrNone
from blendstream.blender.randomizers.subset_selection import SubsetSelection
from blendstream.blender.values.arrays import FloatArray, IntArray
from blendstream.blender.values.interfaces import LocalRandomizer

__all__ = ["draw_answer_counts", "draw_report_counts", "draw_subjects"]

#: Number of devices whose draws are in memory at one time.
_CHUNK = 1 << 18


def draw_report_counts(
    randomizer: LocalRandomizer, holders: IntArray, rng: np.random.Generator
) -> IntArray:
    """Draw the number of answers with each cell, when `holders[c]` devices hold cell c alone."""
    return draw_answer_counts(randomizer, holders * randomizer.spec.answers, rng)


def draw_subjects(
    devices: int, answers: int, records_each: int, cells: FloatArray, rng: np.random.Generator
) -> IntArray:
    """Draw the number of answers about each cell, when each device draws m_C of its records.

    Every device holds `records_each` records, each in cell c with probability `cells[c]`, and draws
    the subject of each answer from them, with replacement.
    """
    # A record that is the subject of j answers adds j to its cell. Records are exchangeable: only
    # their number for each j matters, and the draws of one device's records are multinomial.
    repeated = np.zeros(answers + 1, dtype=np.int64)
    for start in range(0, devices, _CHUNK):
        some = min(_CHUNK, devices - start)
        drawn = rng.integers(0, records_each, size=(some, answers))
        drawn += np.arange(some)[:, np.newaxis] * records_each
        times = np.bincount(drawn.ravel(), minlength=some * records_each)
        repeated += np.bincount(times, minlength=answers + 1)
    subjects = np.zeros(len(cells), dtype=np.int64)
    for often, records in enumerate(repeated.tolist()):
        if often:
            subjects += often * rng.multinomial(records, cells)
    return subjects


def draw_answer_counts(
    randomizer: LocalRandomizer, holders: IntArray, rng: np.random.Generator
) -> IntArray:
    """Draw the number of answers with each cell, when `holders[c]` answers are about cell c."""
    if len(holders) == 1:  # an empty head list: every answer is ⋆
        return holders.astype(np.int64)
    if isinstance(randomizer, TwoStage):
        return _two_stage(randomizer, holders, rng)
    if isinstance(randomizer, SubsetSelection):
        return _subset_selection(randomizer, holders, rng)
    if isinstance(randomizer, SubsetOrNone):
        return _subset_or_none(randomizer, holders, rng)
    answers = randomizer.answer_batch(np.repeat(np.arange(len(holders)), holders), rng)
    return np.bincount(answers.ravel(), minlength=len(holders)).astype(np.int64)


def _two_stage(randomizer: TwoStage, holders: IntArray, rng: np.random.Generator) -> IntArray:
    # Figure 6, line by line, for all holders of a cell together. A binomial number of them reports
    # the query truthfully. The others report another query, each equally likely, and then one of
    # its URLs, each equally likely. Of those who report the query truthfully, a binomial number
    # reports another of its URLs, each equally likely.
    queries = len(randomizer.cells.queries)
    query = np.where(randomizer.cells.query_of_cell < 0, queries, randomizer.cells.query_of_cell)
    sizes = np.bincount(query, minlength=queries + 1)
    tellers = rng.binomial(holders, float(randomizer.truth))
    liars = np.bincount(query, weights=holders - tellers, minlength=queries + 1).astype(np.int64)
    arrived = _spread_over_others(liars, rng)

    counts = np.zeros(len(holders), dtype=np.int64)
    for size, url_truth in randomizer.url_truth.items():
        # All queries with this many URLs, one row each.
        rows = np.flatnonzero(sizes == size)
        members = np.argsort(query, kind="stable")[np.isin(np.sort(query), rows)]
        members = members.reshape(len(rows), size)
        by_chance = rng.multinomial(arrived[rows], np.full(size, 1 / size))
        truthful = tellers[members]
        if size > 1:
            wrong = rng.binomial(truthful, 1 - float(url_truth))
            moved = rng.multinomial(wrong, _others(size)).sum(axis=1)
            truthful = truthful - wrong + moved
        counts[members] = truthful + by_chance
    return counts


def _spread_over_others(counts: IntArray, rng: np.random.Generator) -> IntArray:
    """Move each of `counts[i]` to one of the other places, all equally likely."""
    return np.asarray(rng.multinomial(counts, _others(len(counts))).sum(axis=0), dtype=np.int64)


def _others(size: int) -> NDArray[np.float64]:
    """Return a matrix whose row i is the uniform distribution over all places except i."""
    return np.asarray((1 - np.eye(size)) / (size - 1))


def _subset_selection(
    randomizer: SubsetSelection, holders: IntArray, rng: np.random.Generator
) -> IntArray:
    # An answer holds the true cell with probability p, and ω−1 or ω of the other K−1 cells, every
    # set of that size equally likely.
    size, width = len(holders), randomizer.cells_per_answer
    odds = width * float(randomizer.likelihood)
    seen = rng.binomial(holders, odds / (odds + size - width))
    return _draw_sets(width, seen, holders - seen, 0, rng)


def _subset_or_none(
    randomizer: SubsetOrNone, holders: IntArray, rng: np.random.Generator
) -> IntArray:
    # As in `SubsetOrNone.answer`: with probability t a device's answer depends on what it holds.
    # Then a holder of ⋆ reports "none". A holder of a record reports "none" with probability 1/E,
    # otherwise a set of the record and ω−1 others. "None" is ⋆ with the first ω−1 records.
    width, e = randomizer.cells_per_answer, float(randomizer.likelihood)
    telling = rng.binomial(holders, width * e / (width * e + len(holders) - 1))
    seen = rng.binomial(telling[:-1], 1 - 1 / e)
    blind = int((holders - telling).sum())
    none = int(telling.sum() - seen.sum())
    named = _draw_sets(width, seen, np.zeros_like(seen), blind, rng)
    named[: width - 1] += none
    return np.append(named, none)


def _draw_sets(
    width: int, seen: IntArray, unseen: IntArray, blind: int, rng: np.random.Generator
) -> IntArray:
    """Count the sets that contain each cell, for random sets of ω cells.

    For each cell c, `seen[c]` of the sets must contain c and `unseen[c]` must not. `blind` further
    sets have no such condition.
    """
    # Go through the cells in order. A device that must still name j cells, of r that remain for it,
    # names the next one with probability j/r, independent of those before: this makes every set
    # equally likely. Devices with equal j and r are exchangeable, so a binomial number of them
    # names the cell.
    #
    # A device does not draw its own cell: `seen` and `unseen` decide that one. `ahead[s]` counts
    # the devices whose own cell is still to come (one row for each initial number s of cells),
    # `passed` the others. When a device's own cell is reached, it has behaved like all others of
    # its row. So the number of these devices with j cells left is a multivariate hypergeometric
    # draw. Blind devices have no own cell.
    size = len(seen)
    starts = (width - 1, width)
    owners = (seen, unseen)
    left = np.arange(width + 1)
    ahead = np.zeros((2, width + 1), dtype=np.int64)
    for row, (start, own) in enumerate(zip(starts, owners, strict=True)):
        ahead[row, start] = own.sum()
    passed = np.zeros(width + 1, dtype=np.int64)
    passed[width] = blind

    counts = np.asarray(seen, dtype=np.int64).copy()
    for cell in range(size):
        waiting = passed.copy()
        for row in range(2):
            leaving = rng.multivariate_hypergeometric(
                ahead[row], int(owners[row][cell]), method="marginals"
            )
            ahead[row] -= leaving
            passed += leaving
        # The `waiting` devices decide on this cell, one of `size − cell` that remain. For devices
        # in `ahead` one fewer remains, because their own does not count. Devices that just left
        # `ahead` skip this cell, which is their own.
        just_left = passed - waiting
        to_come = size - cell
        named = rng.binomial(waiting, np.minimum(left / to_come, 1.0))
        passed = just_left + waiting - named
        passed[:-1] += named[1:]
        counts[cell] += named.sum()
        if to_come > 1:
            named = rng.binomial(ahead, np.minimum(left / (to_come - 1), 1.0))
            ahead = ahead - named
            ahead[:, :-1] += named[:, 1:]
            counts[cell] += named.sum()
    return counts
