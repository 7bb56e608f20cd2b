"""Estimate every known record from all publications so far, epoch by epoch.

A publication has two estimates of each record:

    the epoch's own     from this window alone; independent of all other epochs
    filtered            from all publications so far; closer to the truth, and the one to use for
                        rankings, trends and history

Promises: post-processing only. The state depends on publications alone, so any machine can rebuild
it from them after any loss. Floats may differ in their last digits between processors; a decision
that depends on them (which records are forgotten) is part of the publication.
Assumes: publications arrive in order, each with all records that were known at its time.

Symbols: m, P = the filter's mean and variance of a record's probability; τ = between_groups.

Decision: docs/decisions/0138-a-querys-figure.md
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from blendstream.blender.over_time.filter.epoch_filter import FilterState, advance, empty_state
from blendstream.blender.over_time.filter.filter_model import Observation
from blendstream.blender.over_time.filter.filter_modes import FilterModes
from blendstream.blender.over_time.known_records import select_shown
from blendstream.blender.values.arrays import FloatArray, IntArray
from blendstream.blender.values.cell_estimates import Estimates
from blendstream.blender.values.errors import HeadListMismatch, NotFinite, ParameterError
from blendstream.blender.values.intervals import Z_95
from blendstream.blender.values.record import Record

__all__ = [
    "ClientFigures",
    "FilteredEstimates",
    "Publication",
    "RecordFilter",
    "memory_start",
    "observe_clients",
    "observe_optin",
]

#: The memory restarts every so many epochs, after reading as many earlier ones. Fewer would discard
#: information; more would make a new process read longer at its start.
_MEMORY_EPOCHS = 16


def memory_start(epoch: int) -> int:
    """Return the first epoch whose publication this epoch's filter reads: 16 to 31 epochs earlier.

    Depends on the number alone, so that every reader starts with the same publication, however long
    it has been running.

    >>> [memory_start(epoch) for epoch in (3, 16, 31, 32, 47, 48)]
    [0, 0, 0, 16, 16, 32]
    """
    return max(0, (epoch // _MEMORY_EPOCHS - 1) * _MEMORY_EPOCHS)


@dataclass(frozen=True, slots=True)
class ClientFigures:
    """The clients' published estimates of the listed records: p̂ and σ̂²."""

    probability: FloatArray
    variance: FloatArray
    reports: int


@dataclass(frozen=True, slots=True)
class Publication:
    """The numbers that the filter reads from one epoch's documents.

    `counts` are S's noisy counts of `records`, with noise of variance `noise`; the first `listed`
    have cells: `estimation` (T's noisy counts) and `clients` are parallel to these. The records in
    `forgotten` are new again after this epoch.
    """

    epoch: int
    records: tuple[Record, ...]
    counts: IntArray
    users: int
    noise: float
    listed: int
    estimation: IntArray | None = None
    estimation_users: int = 0
    estimation_noise: float = 0.0
    clients: ClientFigures | None = None
    between_groups: float = 0.0
    forgotten: tuple[Record, ...] = ()

    def __post_init__(self) -> None:
        """Refuse arrays that are not parallel to their records."""
        if not len(self.records) == len(self.counts) >= self.listed >= 0:
            raise HeadListMismatch(
                f"counts must run over the {len(self.records)} records, of which at most all are "
                f"listed, got {len(self.counts)} counts and listed={self.listed}"
            )
        for name, size in (
            ("estimation", None if self.estimation is None else len(self.estimation)),
            ("clients", None if self.clients is None else len(self.clients.probability)),
        ):
            if size is not None and size != self.listed:
                raise HeadListMismatch(
                    f"{name} must run over the {self.listed} listed records, got {size}"
                )
        if self.users < 1:
            raise ParameterError(f"a publication needs users, got users={self.users}")


@dataclass(frozen=True, slots=True)
class FilteredEstimates:
    """p̂, σ̂² and 95 % intervals of all published records, largest first, and of their queries.

    A query's estimate is the sum over its published records; its true share is larger by that of
    the unpublished ones.
    """

    records: tuple[Record, ...]
    of_records: Estimates
    queries: tuple[str, ...]
    of_queries: Estimates


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """The filter's state, with the records that its arrays are parallel to."""

    records: tuple[Record, ...]
    state: FilterState
    last_epoch: int | None = None
    users: int = 0
    _place: dict[Record, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Index the records once."""
        place = {record: i for i, record in enumerate(self.records)}
        object.__setattr__(self, "_place", place)

    @classmethod
    def start(cls, modes: FilterModes | None = None) -> RecordFilter:
        """Return the filter before its first publication."""
        return cls((), empty_state(modes))

    def follow(self, publication: Publication) -> RecordFilter:
        """Return the filter after one more publication, without the records that this forgets."""
        if self.last_epoch is not None and publication.epoch <= self.last_epoch:
            raise ParameterError(
                f"publications must come in order, got epoch {publication.epoch} "
                f"after epoch {self.last_epoch}"
            )
        missing = len(set(self.records) - set(publication.records))
        if missing:
            raise HeadListMismatch(
                f"a publication must hold all {len(self.records)} known records, "
                f"epoch {publication.epoch} lacks {missing}"
            )
        tau = publication.between_groups
        before = self.carry_to(publication.epoch - 1, between_groups=tau)
        fresh = [record for record in publication.records if record not in self._place]
        records = (*self.records, *fresh)
        place = {record: i for i, record in enumerate(records)}
        # The place of each of the publication's records in the filter.
        order = np.fromiter((place[r] for r in publication.records), np.int64, len(records))
        optin, clients = observe_optin(publication), observe_clients(publication)
        try:
            state = advance(
                before.state, _reorder(optin, order), _reorder(clients, order), between_groups=tau
            )
        except NotFinite as error:
            # Its number in this epoch's published list, not in the filter.
            number = int(np.flatnonzero(order == error.record)[0])
            raise NotFinite(error.quantity, number) from None
        followed = RecordFilter(records, state, publication.epoch, publication.users)
        return followed.drop(publication.forgotten)

    def carry_to(self, epoch: int, *, between_groups: float = 0.0) -> RecordFilter:
        """Advance to this epoch, if the epochs since the last publication released no counts.

        Each of them adds the uncertainty of one epoch's change to every record.
        """
        if self.last_epoch is None or epoch <= self.last_epoch:
            return self
        size, state = len(self.records), self.state
        nothing = Observation(
            np.full(size, np.nan), np.full(size, float(self.users)), np.zeros(size)
        )
        for _ in range(min(epoch - self.last_epoch, 2 * _MEMORY_EPOCHS)):
            state = advance(state, nothing, nothing, between_groups=between_groups)
        return replace(self, state=state, last_epoch=epoch)

    def drop(self, forgotten: Iterable[Record]) -> RecordFilter:
        """Return the filter without these records, which are new again."""
        dropped = set(forgotten)
        if not dropped:
            return self
        stays = np.fromiter((r not in dropped for r in self.records), np.bool_, len(self.records))
        kept = tuple(r for r in self.records if r not in dropped)
        return replace(self, records=kept, state=self.state.keep(stays))

    def estimates(self, listed: Iterable[Record] = ()) -> FilteredEstimates:
        """Estimate all published records (those `listed` and those shown) and their queries.

        A query's records are sampled and change nearly independently: their variances add up. The
        groups' difference may be common to a whole query (opt-in users like it more, with all its
        URLs): of that part the deviations add up, as in an epoch's own totals.
        """
        state = self.state
        visible = select_shown(state, max(self.users, 1))
        visible[[self._place[record] for record in listed]] = True
        ranked = sorted(
            np.flatnonzero(visible).tolist(), key=lambda i: (-state.mean[0, i], self.records[i])
        )
        records = tuple(self.records[i] for i in ranked)
        queries: dict[str, int] = {}
        for record in records:
            queries.setdefault(record.query, len(queries))
        group = np.fromiter((queries[r.query] for r in records), np.int64, len(records))

        def by_query(values: FloatArray) -> FloatArray:
            return np.bincount(group, weights=values, minlength=len(queries)).astype(np.float64)

        m, v = state.probability[ranked], state.variance[ranked]
        shared = state.shared_deviation[ranked]
        variance = by_query(v - shared**2) + by_query(shared) ** 2
        return FilteredEstimates(
            records, _estimates(m, v), tuple(queries), _estimates(by_query(m), variance)
        )


def observe_optin(publication: Publication) -> Observation:
    """Combine S's and T's counts into one observation of the opt-in group.

    Both are counts of one group, each with its own noise, and are weighed by their precision at a
    common p. With weight a on S the sampling variance is a²/n_S + (1−a)²/n_T, that of a larger
    group.
    """
    size = len(publication.records)
    n = float(publication.users)
    share, users = publication.counts / n, np.full(size, n)
    noise = np.full(size, publication.noise / n**2)
    if publication.estimation is None or publication.estimation_users == 0:
        return Observation(share, users, noise)
    t = float(publication.estimation_users)
    listed = slice(0, publication.listed)
    other = publication.estimation / t
    p = np.maximum(publication.counts[listed] + publication.estimation, 0.5) / (n + t)
    of_s = p / n + publication.noise / n**2
    of_t = p / t + publication.estimation_noise / t**2
    a = of_t / (of_s + of_t)
    share[listed] = a * share[listed] + (1 - a) * other
    users[listed] = 1 / (a**2 / n + (1 - a) ** 2 / t)
    noise[listed] = (a**2 * publication.noise / n**2) + (
        (1 - a) ** 2 * publication.estimation_noise / t**2
    )
    return Observation(share, users, noise)


def observe_clients(publication: Publication) -> Observation:
    """Convert the clients' estimates; variance beyond the sampling of people counts as noise."""
    size, clients = len(publication.records), publication.clients
    share, users, noise = np.full(size, np.nan), np.ones(size), np.zeros(size)
    if clients is None or clients.reports == 0:
        return Observation(share, users, noise)
    users[:] = clients.reports
    # A disputed record's estimate is missing (NaN), and that of a single report has variance ∞.
    known = np.isfinite(clients.variance) & ~np.isnan(clients.probability)
    inside = np.clip(clients.probability, 0.0, 1.0)
    sampling = inside * (1 - inside) / clients.reports
    added = np.maximum(clients.variance - sampling, 0.0)
    share[: publication.listed] = np.where(known, clients.probability, np.nan)
    noise[: publication.listed] = np.where(known, added, 0.0)
    return Observation(share, users, noise)


def _reorder(group: Observation, order: IntArray) -> Observation:
    arrays = []
    for values in (group.share, group.users, group.noise):
        moved = np.empty_like(values)
        moved[order] = values
        arrays.append(moved)
    return Observation(*arrays)


def _estimates(mean: FloatArray, variance: FloatArray) -> Estimates:
    reach = Z_95 * np.sqrt(variance)
    low, high = np.clip(mean - reach, 0.0, 1.0), np.clip(mean + reach, 0.0, 1.0)
    return Estimates(mean, variance, low, high)
