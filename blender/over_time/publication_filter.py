"""Follow the published documents, epoch by epoch: what all of them together say of every record.

Beside an epoch's own estimate, which looks at that epoch alone, a publication carries this one:

    the epoch's own     what people had in this window; independent of all other epochs
    filtered            the best guess at it from all publications so far; closer to the truth, and
                        the one for rankings, trends and history

Promises: post-processing only. The state depends on publications and on nothing else, so that it
can be rebuilt from them on any machine, after any loss. Floats may differ in their last digits
between processors; what is decided with them (which records are forgotten) travels in the
publication.
Assumes: publications come in order, each with all records that were known to it.

Symbols: m, P = the filter's mean and variance of a record's probability; τ = between_groups.

Decision: docs/decisions/0138-a-querys-figure.md
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from blendstream.blender.over_time.filter.epoch_filter import FilterState, advance, empty_state
from blendstream.blender.over_time.filter.filter_model import Observed
from blendstream.blender.over_time.filter.filter_modes import FilterModes
from blendstream.blender.over_time.known_records import shown
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
    "clients_observed",
    "optin_observed",
    "remembered_from",
]

#: Memory begins anew every so many epochs, with the last so many read again. Fewer would forget
#: what still helps; more would let a new process read longer than it must.
_MEMORY_EPOCHS = 16


def remembered_from(epoch: int) -> int:
    """The first epoch whose publication the filter of this epoch reads: 16 to 31 epochs before it.

    Known from the number alone, so that every reader begins with the same publication however long
    it has been running.

    >>> [remembered_from(epoch) for epoch in (3, 16, 31, 32, 47, 48)]
    [0, 0, 0, 16, 16, 32]
    """
    return max(0, (epoch // _MEMORY_EPOCHS - 1) * _MEMORY_EPOCHS)


@dataclass(frozen=True, slots=True)
class ClientFigures:
    """What the clients' reports said of the listed records: p̂ and σ̂² as published."""

    probability: FloatArray
    variance: FloatArray
    reports: int


@dataclass(frozen=True, slots=True)
class Publication:
    """The numbers of one epoch's documents that the filter reads, and no others.

    `counts` are S's noisy counts of `records`, with noise of variance `noise`; the first `listed`
    have cells, on which `estimation` (T's noisy counts) and `clients` run. `forgotten` are the
    records that were new again after this epoch.
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
        """Everything runs over the records it says."""
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

    A query's figure is the sum over its records, so its true share is at least that: records that
    no publication has shown are not in it.
    """

    records: tuple[Record, ...]
    of_records: Estimates
    queries: tuple[str, ...]
    of_queries: Estimates


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """The filter's state with the records that it runs over."""

    records: tuple[Record, ...]
    state: FilterState
    last_epoch: int | None = None
    users: int = 0
    _place: dict[Record, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Number the records once."""
        place = {record: i for i, record in enumerate(self.records)}
        object.__setattr__(self, "_place", place)

    @classmethod
    def start(cls, modes: FilterModes | None = None) -> RecordFilter:
        """Before the first publication."""
        return cls((), empty_state(modes))

    def follow(self, publication: Publication) -> RecordFilter:
        """After one more publication, and without what it says is forgotten."""
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
        before = self.carried(publication.epoch - 1, between_groups=tau)
        fresh = [record for record in publication.records if record not in self._place]
        records = (*self.records, *fresh)
        place = {record: i for i, record in enumerate(records)}
        # Where each of the publication's records is in the filter.
        order = np.fromiter((place[r] for r in publication.records), np.int64, len(records))
        optin, clients = optin_observed(publication), clients_observed(publication)
        try:
            state = advance(
                before.state, _placed(optin, order), _placed(clients, order), between_groups=tau
            )
        except NotFinite as error:
            # Its number in this epoch's list, which is published, not in the filter.
            number = int(np.flatnonzero(order == error.record)[0])
            raise NotFinite(error.quantity, number) from None
        followed = RecordFilter(records, state, publication.epoch, publication.users)
        return followed.without(publication.forgotten)

    def carried(self, epoch: int, *, between_groups: float = 0.0) -> RecordFilter:
        """After all epochs up to this one, where those since the last published no counts.

        Each makes every record as much less certain as an epoch's change can be.
        """
        if self.last_epoch is None or epoch <= self.last_epoch:
            return self
        size, state = len(self.records), self.state
        nothing = Observed(np.full(size, np.nan), np.full(size, float(self.users)), np.zeros(size))
        for _ in range(min(epoch - self.last_epoch, 2 * _MEMORY_EPOCHS)):
            state = advance(state, nothing, nothing, between_groups=between_groups)
        return replace(self, state=state, last_epoch=epoch)

    def without(self, forgotten: Iterable[Record]) -> RecordFilter:
        """Without these records, which are new again."""
        gone = set(forgotten)
        if not gone:
            return self
        stays = np.fromiter((r not in gone for r in self.records), np.bool_, len(self.records))
        kept = tuple(r for r in self.records if r not in gone)
        return replace(self, records=kept, state=self.state.keep(stays))

    def estimates(self, listed: Iterable[Record] = ()) -> FilteredEstimates:
        """Every published record, that is all `listed` and all shown, and the sums by query.

        A query's records are sampled and move nearly independently: their variances add up. What
        the groups differ by may be shared by a whole query (opt-in users who like it more, with all
        its URLs): of that part deviations add up, as they do in an epoch's own totals.
        """
        state = self.state
        visible = shown(state, max(self.users, 1))
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


def optin_observed(publication: Publication) -> Observed:
    """S's and T's counts as one share of one group of people.

    Both are counts of the same group, with noise of their own: weighed by their precision at a
    common p. A weight of a on S makes sampling a²/n_S + (1−a)²/n_T, as of one larger group.
    """
    size = len(publication.records)
    n = float(publication.users)
    share, users = publication.counts / n, np.full(size, n)
    noise = np.full(size, publication.noise / n**2)
    if publication.estimation is None or publication.estimation_users == 0:
        return Observed(share, users, noise)
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
    return Observed(share, users, noise)


def clients_observed(publication: Publication) -> Observed:
    """The clients' estimates; what their variance has beyond the sampling of people is noise."""
    size, clients = len(publication.records), publication.clients
    share, users, noise = np.full(size, np.nan), np.ones(size), np.zeros(size)
    if clients is None or clients.reports == 0:
        return Observed(share, users, noise)
    users[:] = clients.reports
    # A disputed record's figures are left out (NaN), and one report alone has no variance (∞).
    known = np.isfinite(clients.variance) & ~np.isnan(clients.probability)
    inside = np.clip(clients.probability, 0.0, 1.0)
    sampling = inside * (1 - inside) / clients.reports
    added = np.maximum(clients.variance - sampling, 0.0)
    share[: publication.listed] = np.where(known, clients.probability, np.nan)
    noise[: publication.listed] = np.where(known, added, 0.0)
    return Observed(share, users, noise)


def _placed(group: Observed, order: IntArray) -> Observed:
    arrays = []
    for values in (group.share, group.users, group.noise):
        moved = np.empty_like(values)
        moved[order] = values
        arrays.append(moved)
    return Observed(*arrays)


def _estimates(mean: FloatArray, variance: FloatArray) -> Estimates:
    reach = Z_95 * np.sqrt(variance)
    low, high = np.clip(mean - reach, 0.0, 1.0), np.clip(mean + reach, 0.0, 1.0)
    return Estimates(mean, variance, low, high)
