"""The roles whose mechanisms can be exchanged, as the paper intends: one small interface each.

Privacy does not depend on which mechanism fills a role, if it is (ε,δ)-DP in its trust model. A
better mechanism is one new file, and for a randomizer a line in `blender.registry`; a profile then
names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

from blendstream.blender.values.cells import Cells, RandomizerSpec
from blendstream.blender.values.errors import ParameterError
from blendstream.blender.values.parameters import PrivacyParameters
from blendstream.blender.values.random_source import RandomSource
from blendstream.blender.values.record import Record

if TYPE_CHECKING:  # a device imports this, and has no NumPy
    import numpy as np
    from numpy.typing import NDArray

    from blendstream.blender.noise.exact_noise import Noise
    from blendstream.blender.values.arrays import FloatArray, IntArray
    from blendstream.blender.values.cell_estimates import GroupEstimates
    from blendstream.blender.values.record_table import RecordTable

__all__ = ["DeviceRandomizer", "HeadListSelector", "LocalRandomizer", "OptinCounts", "Selection"]


@dataclass(frozen=True, slots=True)
class OptinCounts:
    """One epoch's opt-in data, already limited to m_O records a user: raw, never published.

    For record i, `selection[i]` users of S and `estimation[i]` users of T hold it. Each user of T
    is counted with one record, or with none. The records are distinct; millions come packed, as a
    `RecordTable`.
    """

    records: Sequence[Record] | RecordTable
    selection: IntArray
    estimation: IntArray
    selection_users: int
    estimation_users: int
    table: RecordTable = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Counts are parallel to the records and never negative.

        S's counts are not compared with its users: users are counted by slot 0, and a person whose
        first record was refused still sends others.
        """
        if not len(self.records) == len(self.selection) == len(self.estimation):
            raise ParameterError(
                "records, selection and estimation must be of one length, got "
                f"{len(self.records)}, {len(self.selection)}, {len(self.estimation)}"
            )
        if (self.selection < 0).any() or (self.estimation < 0).any():
            raise ParameterError("counts must not be negative")
        if int(self.estimation.sum()) > self.estimation_users:
            raise ParameterError(
                "each user of T is counted once: counts must add up to at most "
                f"{self.estimation_users}, got {int(self.estimation.sum())}"
            )
        from blendstream.blender.values.record_table import ListedRecords  # noqa: PLC0415

        records = self.records
        table = ListedRecords(records) if isinstance(records, Sequence) else records
        object.__setattr__(self, "table", table)

    def estimation_by_cell(self, cells: Cells) -> IntArray:
        """T's users by cell. Those without a record are in ⟨⋆,⋆⟩, so all of T is counted once."""
        import numpy as np  # noqa: PLC0415

        tally = np.zeros(len(cells), dtype=np.int64)
        listed = len(cells.records)
        place = self.table.places(cells.records)
        tally[:listed] = np.where(place >= 0, self.estimation[place], 0) if len(self.table) else 0
        if cells.query_wildcards:
            # ⟨q,⋆⟩: all who hold a record of q, less those whose record is listed.
            of_query = self.table.sums_by_query(cells.queries, self.estimation)
            np.subtract.at(of_query, cells.query_of_cell[:listed], tally[:listed])
            tally[listed:-1] = of_query
        tally[-1] = self.estimation_users - int(tally.sum())
        return tally


@dataclass(frozen=True, slots=True)
class Selection:
    """Which records passed the noisy threshold.

    `kept` holds indices into the records that were offered. `noisy_counts` is parallel to it when
    the selector releases the counts it thresholded, and `None` when it throws them away. New
    records show from `threshold` on, those one below it with probability `luck`.
    """

    kept: IntArray
    noisy_counts: IntArray | None
    threshold: int
    below_threshold_probability: float = 0.0


class HeadListSelector(Protocol):
    """Decides which records may be published. (ε,δ)-DP for S, replace-one."""

    name: str

    def select(
        self,
        counts: IntArray,
        known: NDArray[np.bool_],
        parameters: PrivacyParameters,
        noise: Noise,
        *,
        keep_known: bool = False,
    ) -> Selection:
        """Consider present records only (count ≥ 1); `known` marks those published before.

        `keep_known` keeps these at any noisy count; otherwise the selector drops low ones.

        A record of count 0 is listed because T or the last head list has it. A selector that drew
        noise for T's records would leak them; only `known` ones may be considered when absent.
        """
        ...


class DeviceRandomizer(Protocol):
    """What a device does to its record, in whole numbers and without NumPy.

    Built from `(cells, spec)`; ε-DP (or (ε,δ)-DP) for the device, replace-one, all m_C answers of
    one report together. An *answer* is `cells_per_answer` strictly increasing cell numbers; a
    *report* is m_C of them, made by `blender.paper.local.local_alg`, each from its own random
    numbers. `query_wildcards` says whether its cells tell ⟨q,⋆⟩ from ⟨⋆,⋆⟩, `wildcard_alone`
    whether ⋆ is an answer by itself: the other cells are then the first ones, and only fill it up.
    Servers refuse what such a randomizer cannot say. Without ⟨q,⋆⟩ what is said of a cell depends
    on its own p and on ⋆'s: `expected_shares` and `denoise` then take any of the cells, with ⋆
    behind them.
    """

    name: str
    query_wildcards: bool
    wildcard_alone: bool
    spec: RandomizerSpec
    cells: Cells
    cells_per_answer: int

    def answer(self, cell: int, source: RandomSource) -> tuple[int, ...]:
        """Randomise one true cell number by integer arithmetic on numbers from `source`."""
        ...

    def report_probability(self, record: Record | None, answer: tuple[int, ...]) -> Fraction:
        """P(this answer | the device holds `record`), exactly; `None` holds ⟨⋆,⋆⟩."""
        ...


class LocalRandomizer(DeviceRandomizer, Protocol):
    """What a device does to its record, and how the server undoes it on average."""

    def answer_batch(self, cells: IntArray, rng: np.random.Generator) -> IntArray:
        """For simulation only: the same channel for many devices, shape (n, cells_per_answer)."""
        ...

    def expected_shares(self, p: FloatArray) -> FloatArray:
        """For each cell P(it is in an answer), if p is the truth over the cells (last axis)."""
        ...

    def denoise(self, shares: FloatArray) -> FloatArray:
        """p̂ from observed shares: the inverse of `expected_shares`."""
        ...

    def estimate(self, counts: IntArray, reports: int) -> GroupEstimates:
        """Denoise: `counts[c]` answers held cell c; `reports` devices sent m_C answers each."""
        ...
