"""Interfaces of the exchangeable mechanisms: head list selector, opt-in counts, randomizers.

Any mechanism that is (ε,δ)-DP in its trust model may fill a role, as the paper intends. A better
mechanism is one new file, and for a randomizer a line in `blender.registry`; a profile then names
it.
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
    """One epoch's raw opt-in counts, limited to m_O records per user; never published.

    For record i, `selection[i]` users of S and `estimation[i]` users of T hold it. Each user of T
    counts with one record, or with none. The records are distinct; millions of them are packed in a
    `RecordTable`.
    """

    records: Sequence[Record] | RecordTable
    selection: IntArray
    estimation: IntArray
    selection_users: int
    estimation_users: int
    table: RecordTable = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Check that counts are parallel to the records and not negative.

        S's counts may exceed its users: users are counted by slot 0, and a person whose first
        record was refused still sends others.
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
        """Count T's users by cell. Those without a record are in ⟨⋆,⋆⟩, so everyone counts once."""
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
    """The records that passed the noisy threshold.

    `kept` holds indices into the offered records. `noisy_counts` is parallel to it if the selector
    releases its noisy counts, and `None` if it discards them. New records are kept from `threshold`
    on, those one below it with `below_threshold_probability`.
    """

    kept: IntArray
    noisy_counts: IntArray | None
    threshold: int
    below_threshold_probability: float = 0.0


class HeadListSelector(Protocol):
    """Selects the records to publish. (ε,δ)-DP for S, replace-one."""

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
        """Select among records with count ≥ 1 and among `known` ones, which were published before.

        `keep_known` keeps these at any noisy count; otherwise the selector drops low ones.

        A record of count 0 is in the input because T or the last head list has it. A selector that
        drew noise for T's records would leak them, so of these it may consider `known` ones only.
        """
        ...


class DeviceRandomizer(Protocol):
    """A randomizer's device side, in integer arithmetic and without NumPy.

    Built from `(cells, spec)`; ε-DP (or (ε,δ)-DP) for the device, replace-one, all m_C answers of
    one report together. An *answer* is `cells_per_answer` strictly increasing cell numbers; a
    *report* is m_C answers that `blender.paper.local.local_alg` makes from separate random numbers.
    `query_wildcards`: the cells distinguish ⟨q,⋆⟩ from ⟨⋆,⋆⟩. `wildcard_alone`: ⋆ is a separate
    answer, padded with the first cells; servers refuse other answers with ⋆. Without ⟨q,⋆⟩ the
    answers about a cell depend on its own p and on that of ⋆: `expected_shares` and `denoise` then
    accept any subset of the cells, followed by ⋆.
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
        """Return the exact P(answer | the device holds `record`); `None` has the cell ⟨⋆,⋆⟩."""
        ...


class LocalRandomizer(DeviceRandomizer, Protocol):
    """A randomizer with the server's side: unbiased estimates, and simulation."""

    def answer_batch(self, cells: IntArray, rng: np.random.Generator) -> IntArray:
        """Simulate the channel for many devices, shape (n, cells_per_answer); not for real use."""
        ...

    def expected_shares(self, p: FloatArray) -> FloatArray:
        """Return P(cell in an answer) for each cell, if p is the truth (last axis: cells)."""
        ...

    def denoise(self, shares: FloatArray) -> FloatArray:
        """Return p̂ from observed shares: the inverse of `expected_shares`."""
        ...

    def estimate(self, counts: IntArray, reports: int) -> GroupEstimates:
        """Estimate from the `counts[c]` answers with cell c, m_C from each of `reports` devices."""
        ...
