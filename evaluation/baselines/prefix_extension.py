"""Baseline without a trusted curator, in which devices' reports also discover the records (PEM).

The prefix extending method (PEM) divides people into groups. The first group reports the first bits
of its records' codes, and the curator keeps the prefixes with most support. Each next group reports
longer prefixes, of which the curator considers only extensions of the kept ones, up to whole codes.
Source: T. Wang, N. Li, S. Jha, "Locally Differentially Private Heavy Hitter Identification"
(arXiv 1708.06674; IEEE TDSC 2021), with local hashing as the frequency oracle, as there.

Ours: a last group, of a quarter of the people, answers about the M discovered records, by the
best randomizer for such a list (`given_candidates`). As printed, the last prefix group's supports
are the estimates, which are noisier and, having been selected for being large, biased upward.

Promises: (ε,0)-DP for every device; neighbouring: replace-one. Everyone is in one group and reports
once, so groups compose in parallel; the kept prefixes are post-processing of earlier reports.
Assumes: records are coded in `CODE_BITS` bits, query before URL, as evenly as a perfect dictionary
would; text needs more, and every further step costs another group. The curator may afford to
examine `CANDIDATES` prefixes in each step.
"""

from __future__ import annotations

import numpy as np

from blendstream.blender.values.arrays import IntArray
from blendstream.blender.values.errors import require
from blendstream.blender.values.parameters import PrivacyParameters
from blendstream.evaluation.baselines.frequency_oracles import draw_best, local_hashing
from blendstream.evaluation.baselines.given_candidates import estimate_candidates
from blendstream.evaluation.baselines.held_items import CODE_BITS, HeldItems
from blendstream.evaluation.baselines.published_list import NOBODY, PublishedList

__all__ = ["CANDIDATES", "discover", "prefix_lengths", "publish_by_prefixes"]

#: Prefixes examined per step. Fewer prefixes require more steps, so groups are smaller and find
#: fewer records. The curator's work is this number times the people of a group: 10^11 hashes for
#: 2^20 prefixes and 657 000 people.
CANDIDATES = 1 << 20

#: The proportion of people whose reports discover records; the reports of the others estimate them.
#: A lower proportion finds fewer records, a higher one makes their estimates noisier
#: (docs/evaluation.md has figures for other proportions).
DISCOVERY_SHARE = 0.75


def publish_by_prefixes(
    items: HeldItems,
    parameters: PrivacyParameters,
    rng: np.random.Generator,
    *,
    discovery_share: float = DISCOVERY_SHARE,
) -> PublishedList:
    """Discover M records with some of the people, then estimate them from the others' answers."""
    discoverers = round(items.users * discovery_share)
    held, estimating = items.held[:discoverers], items.held[discoverers:]
    size = parameters.head_list_cells
    codes = discover(items.codes(held), CODE_BITS, size, parameters.epsilon, rng)
    return estimate_candidates(estimating, _numbers_of(codes, items), parameters, rng)


def discover(
    codes: IntArray,
    bits: int,
    size: int,
    epsilon: float,
    rng: np.random.Generator,
    *,
    candidates: int = CANDIDATES,
) -> IntArray:
    """Return the `size` codes with the highest estimates, in that order.

    `codes` has one per person.
    """
    oracle = local_hashing(epsilon)
    lengths = prefix_lengths(bits, size, candidates)
    kept, before = np.zeros(1, dtype=np.int64), 0
    for length, group in zip(lengths, np.array_split(codes, len(lengths)), strict=True):
        kept.sort()
        prefixes = group >> (bits - length)
        parents = prefixes >> (length - before)
        place = np.searchsorted(kept, parents).clip(max=len(kept) - 1)
        held, counts = np.unique(prefixes[kept[place] == parents], return_counts=True)
        best = draw_best(
            oracle, counts.astype(np.int64), len(kept) << (length - before), len(group), size, rng
        )
        found = held[best[best >= 0]]
        spurious = _draw_unheld(kept, length - before, held, int((best < 0).sum()), rng)
        kept = np.zeros(len(best), dtype=np.int64)
        kept[best >= 0], kept[best < 0] = found, spurious
        before = length
    return kept


def prefix_lengths(bits: int, size: int, candidates: int) -> list[int]:
    """Return the prefix length that each group reports, with as few groups as `candidates` allows.

    >>> prefix_lengths(48, 50, 1 << 20)
    [20, 34, 48]
    >>> prefix_lengths(48, 500, 1 << 20)
    [20, 31, 42, 48]
    """
    first = min(bits, candidates.bit_length() - 1)
    step = (candidates // size).bit_length() - 1
    require(
        step >= 1 or first == bits,
        f"candidates must be at least 2·M, got candidates={candidates} and M={size}",
    )
    return [*range(first, bits, max(step, 1)), bits]


def _draw_unheld(
    kept: IntArray, more: int, held: IntArray, number: int, rng: np.random.Generator
) -> IntArray:
    """Draw different extensions of the kept prefixes by `more` bits that nobody in a group holds.

    The supports of all such extensions have the same distribution, so any of them may be selected.
    People of later groups may hold them.
    """
    drawn: dict[int, None] = {}
    taken = set(held.tolist())
    while len(drawn) < number:
        parents = kept[rng.integers(0, len(kept), size=number)]
        extended = (parents << more) | rng.integers(0, 1 << more, size=number)
        drawn |= dict.fromkeys(x for x in extended.tolist() if x not in taken)
    return np.array(list(drawn)[:number], dtype=np.int64)


def _numbers_of(codes: IntArray, items: HeldItems) -> IntArray:
    """Return the number of a record per code, which devices compare with that of their own."""
    # One record represents all that share its code (a few pairs in a population).
    numbers = np.unique(items.held)
    known = items.codes(numbers)
    order = np.argsort(known, kind="stable")
    place = np.searchsorted(known[order], codes).clip(max=len(known) - 1)
    match = known[order][place] == codes
    return np.where(match, numbers[order][place], NOBODY)
