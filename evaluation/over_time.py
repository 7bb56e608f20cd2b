"""Simulate thirty epochs of people, and the filter's estimates over these epochs.

The simulation counts opt-in users per record, without simulating each of them: of those who hold a
record a binomial number stays, and newly drawn people replace the others. Devices' reports are
drawn from their exact distribution (`simulated_reports`). The service's own code, with seeded
noise, releases and estimates. As in the service there are two filters:

- one over S's counts alone decides which records are forgotten (and listed, under one budget);
- one over all publications computes the filtered estimate.

Promises: given the same generator, the same epochs. The truth is the clients' p of each epoch.
Symbols: h = share of opt-in users who stay, with their records; n_O, n_C = people; θ = threshold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from blendstream.blender.noise.exact_noise import laplace_scale, laplace_variance
from blendstream.blender.noise.noise_distribution import gaussian_distribution, laplace_distribution
from blendstream.blender.over_time.filter.filter_modes import FilterModes, default_modes
from blendstream.blender.over_time.groups_over_time import pooled_difference
from blendstream.blender.over_time.known_records import select_forgotten, select_shown
from blendstream.blender.over_time.period_budget import calibrate_period, select_in_period
from blendstream.blender.over_time.publication_filter import (
    ClientFigures,
    Publication,
    RecordFilter,
)
from blendstream.blender.paper.optin import NoisyCounts, estimate_noisy_counts
from blendstream.blender.registry import randomizer_for
from blendstream.blender.sharp.best_randomizer import best_randomizer
from blendstream.blender.sharp.difference_blend import blend_groups, optin_group
from blendstream.blender.sharp.optin_posterior import SelectionCounts, estimate_optin_shares
from blendstream.blender.sharp.stable_histogram import StableHistogram
from blendstream.blender.values.arrays import FloatArray, IntArray
from blendstream.blender.values.cell_estimates import GroupEstimates
from blendstream.blender.values.cells import HeadList
from blendstream.blender.values.intervals import Z_95
from blendstream.blender.values.parameters import PrivacyParameters
from blendstream.blender.values.record import Record
from blendstream.evaluation.populations import Setting
from blendstream.evaluation.simulated_noise import SimulatedNoise
from blendstream.evaluation.simulated_reports import draw_report_counts

__all__ = ["EpochScores", "Plan", "simulate"]

#: The number of simulated records per opt-in user. All rarer records are one bucket, because S
#: never has enough holders to list one: the rarest simulated record has a tenth of a holder on
#: average, and listing takes six.
_FOLLOWED = 1


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of one simulated history: how budget is spent, and how people and records change."""

    epochs: int = 30
    epsilon: float = 4.0
    #: True: one budget for all epochs, with cohort rotation of clients. False: ε in each epoch.
    one_budget: bool = False
    #: True: everybody takes part in one epoch of all, with the total ε, so each has fewer people.
    rotated: bool = False
    selection_share: float = 0.9
    drift: float = 0.0
    shock_epoch: int | None = None
    #: Share of opt-in users who stay with their records; 1 is a fixed panel.
    staying: float = 0.0
    #: Share of epochs in which a person of a fixed panel holds their own favourite.
    habit: float | None = None
    clients_staying: float = 0.0
    #: Standard deviation of the groups' difference in ln p. The filter does not receive it: it
    #: estimates the difference.
    groups_differ: float = 0.0
    modes: FilterModes | None = None
    #: The epoch's own estimate takes half of the time and nothing else depends on it. It is
    #: computed in one epoch out of this number, and in the first, the shock's and the one after.
    own_every: int = 1

    def estimates_alone(self, epoch: int) -> bool:
        """Return True if the simulation computes this epoch's own estimate."""
        shock = self.shock_epoch or 1
        return epoch % self.own_every == 0 or epoch in (1, shock, shock + 1)


@dataclass(frozen=True, slots=True)
class EpochScores:
    """Errors of one epoch's estimates; NaN for estimates that were not made.

    L1 runs over the listed records or, for fields with `top`, over the true top M. There a record
    that is not shown counts as 0; for `own` and `asked` also a record outside the clients' list.
    """

    own_l1: float
    own_top_l1: float
    filter_l1: float
    top_l1: float
    top_asked_l1: float
    covered: float
    covered_shown: float
    covered_queries: float
    listed: int
    #: The proportion of the true top M on the clients' list.
    top_asked: float
    shown: int
    on_top: float
    known: int
    staying: float
    drift: float


@lru_cache(maxsize=2)
def _head(setting: Setting) -> tuple[IntArray, FloatArray, IntArray]:
    numbers = setting.people.top(round(_FOLLOWED * setting.users * setting.optin_share))
    p = setting.people.probability(numbers)
    return numbers, np.append(p, max(0.0, 1 - p.sum())), setting.people.query(numbers)


@dataclass
class _People:
    """Number of people who hold each record; the last entry is all rare records."""

    users: int
    staying: float
    habit: float | None
    holders: IntArray | None = field(default=None)

    def next(self, p: FloatArray, rng: np.random.Generator) -> IntArray:
        """Draw the holders of the next epoch: some keep their records, the others draw from p."""
        if self.holders is None:
            self.holders = rng.multinomial(self.users, p)
            if self.habit is None:
                return self.holders
        stay = rng.binomial(self.holders, self.staying if self.habit is None else self.habit)
        now = stay + rng.multinomial(self.users - int(stay.sum()), p)
        if self.habit is None:
            self.holders = now
        return np.asarray(now, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class _Release:
    """Released records by their place in the population, with their texts and noisy counts."""

    places: IntArray
    texts: list[Record]
    counts: IntArray
    threshold: int
    known: NDArray[np.bool_]

    def ordered(self, order: IntArray) -> _Release:
        """Return this release with its records in another order."""
        return _Release(
            self.places[order],
            [self.texts[i] for i in order.tolist()],
            self.counts[order],
            self.threshold,
            self.known[order],
        )


def simulate(setting: Setting, plan: Plan, rng: np.random.Generator) -> Iterator[EpochScores]:
    """Simulate one history; yield the scores of each epoch."""
    run = _Run(setting, plan, rng)
    for epoch in range(1, plan.epochs + 1):
        yield run.epoch(epoch)


class _Run:
    """State of one run: the known records, the people, the filters and the generator."""

    def __init__(self, setting: Setting, plan: Plan, rng: np.random.Generator) -> None:
        self.setting, self.plan, self.rng = setting, plan, rng
        self.numbers, self.p, self.query = _head(setting)
        users = round(setting.users * setting.optin_share)
        self.n_c = setting.users - users
        if plan.rotated:
            users //= plan.epochs
        if plan.rotated or plan.one_budget:
            self.n_c //= plan.epochs
        self.n_s = round(users * plan.selection_share)
        self.n_t = users - self.n_s
        self.s, self.t = (_People(n, plan.staying, plan.habit) for n in (self.n_s, self.n_t))
        self.c = _People(self.n_c, plan.clients_staying, None)
        self.differ = np.exp(plan.groups_differ * rng.standard_normal(len(self.p)))
        self.filter = RecordFilter.start(
            plan.modes or default_modes(clients_rotate=plan.one_budget or plan.rotated)
        )
        self.start, self.publications, self.tau = self.filter, list[Publication](), -1.0
        #: The filter over S's counts alone, since the next list may be due before reports arrive.
        self.selection = RecordFilter.start(plan.modes)
        #: The known records, by their places in the population.
        self.known = np.zeros(0, dtype=np.int64)
        self.place: dict[Record, int] = {}
        #: Rule, scale and variance of S's and T's noise: Gaussian under one budget, else Laplace.
        self.rule = None
        self.scale = laplace_scale(sensitivity=2, epsilon=plan.epsilon)
        self.noise_variance = laplace_variance(self.scale)
        if plan.one_budget:
            self.rule = calibrate_period(plan.epsilon, setting.delta, 1, plan.epochs)
            self.scale, self.noise_variance = self.rule.scale, self.rule.scale**2
        self.parameters = PrivacyParameters(
            epsilon=plan.epsilon, delta=setting.delta, head_list_cells=setting.list_size
        )
        self.noise = SimulatedNoise(rng)

    def epoch(self, epoch: int) -> EpochScores:
        """Draw, release, report, blend, filter, and compare with the truth."""
        self._drift(epoch)
        optin_p = self.p * self.differ
        optin_p /= optin_p.sum()
        release = self._release(self.s.next(optin_p, self.rng)[:-1])
        release, forgotten = self._order_and_forget(epoch, release)
        listed = slice(0, min(self.setting.list_size, len(release.places)))
        cells = release.places[listed]
        head = self._head_list(release.texts[listed])
        client = self._clients(head, cells) if len(cells) else None
        t_counts = self._estimation(head, cells, optin_p)
        own = None
        if self.plan.estimates_alone(epoch):
            own = np.zeros(0)
            if client is not None:
                own = self._blend(head, release, t_counts, client).cells.probability[listed]
        self._follow(self._publication(epoch, release, len(cells), t_counts.counts[:-1], client))
        self.known = self._places(self.filter.records)
        scores = self._scores(cells, own)
        self.publications[-1] = replace(self.publications[-1], forgotten=forgotten)
        self.filter, self.selection = (f.drop(forgotten) for f in (self.filter, self.selection))
        self.known = self._places(self.filter.records)
        return scores

    def _follow(self, publication: Publication) -> None:
        """Filter one more publication; if the estimate of τ changes, filter all of them again."""
        self.publications.append(publication)
        before, self.tau = self.tau, pooled_difference(self.publications)
        again = self.publications if self.tau != before else self.publications[-1:]
        current = self.start if self.tau != before else self.filter
        for each in again:
            current = current.follow(replace(each, between_groups=self.tau))
        self.filter = current

    def _drift(self, epoch: int) -> None:
        size = len(self.p) - 1
        change = np.zeros(size)
        if epoch > 1 and self.plan.drift:
            change = self.plan.drift * self.rng.standard_normal(size)
        if epoch == self.plan.shock_epoch:
            struck = self.rng.random(size) < 0.1
            change += struck * np.where(self.rng.random(size) < 0.5, 1, -1) * np.log(3)
        p = self.p.copy()
        p[:-1] *= np.exp(change)
        self.p = p / p.sum()

    def _release(self, counts: IntArray) -> _Release:
        known = np.zeros(len(counts), dtype=np.bool_)
        known[self.known] = True
        if self.rule is not None:
            selection = select_in_period(self.rule, counts, known, self.noise)
        else:
            selection = StableHistogram().select(
                counts, known, self.parameters, self.noise, keep_known=True
            )
        kept, noisy = selection.kept, selection.noisy_counts
        assert noisy is not None
        texts = self.setting.people.records(self.numbers[kept])
        self.place.update(zip(texts, kept.tolist(), strict=True))
        return _Release(kept, texts, noisy, selection.threshold, known[kept])

    def _order_and_forget(
        self, epoch: int, release: _Release
    ) -> tuple[_Release, tuple[Record, ...]]:
        """Return the release in the order of its cells, and the records that are now forgotten."""
        value: FloatArray = release.counts.astype(np.float64)
        if not release.texts:
            return release, ()
        self.selection = self.selection.follow(self._publication(epoch, release, 0, None, None))
        state, records = self.selection.state, self.selection.records
        if self.plan.one_budget:
            filtered = np.zeros(len(self.p))
            filtered[self._places(records)] = state.probability
            value = filtered[release.places]
        forgotten = np.flatnonzero(select_forgotten(state, self.n_s)).tolist()
        return (
            release.ordered(np.argsort(-value, kind="stable")),
            tuple(records[i] for i in forgotten),
        )

    def _places(self, records: tuple[Record, ...]) -> IntArray:
        return np.fromiter((self.place[r] for r in records), np.int64, len(records))

    def _publication(
        self,
        epoch: int,
        release: _Release,
        listed: int,
        t_counts: IntArray | None,
        client: GroupEstimates | None,
    ) -> Publication:
        figures = None
        if client is not None:
            cells = client.cells
            figures = ClientFigures(
                cells.probability[:listed], cells.variance[:listed], client.participants
            )
        return Publication(
            epoch=epoch,
            records=tuple(release.texts),
            counts=release.counts,
            users=self.n_s,
            noise=self.noise_variance,
            listed=listed,
            estimation=t_counts if self.n_t else None,
            estimation_users=self.n_t,
            estimation_noise=self.noise_variance,
            clients=figures,
        )

    def _blend(
        self, head: HeadList, release: _Release, t_counts: NoisyCounts, client: GroupEstimates
    ) -> GroupEstimates:
        """Estimate from this epoch alone, as `sharp` does."""
        noise = laplace_distribution if self.rule is None else gaussian_distribution
        selected = SelectionCounts(
            release.counts, self.n_s, noise(self.scale), release.threshold, release.known
        )
        listed = len(head.cells.records)
        t_alone = estimate_noisy_counts(t_counts, head.cells, intervals_from=listed)
        shares = estimate_optin_shares(selected, t_counts, listed)
        optin = optin_group(shares, t_alone, head.cells)
        return blend_groups(shares, optin, client, head.cells, devices_admitted=True).estimates

    def _head_list(self, texts: list[Record]) -> HeadList:
        spec = best_randomizer(texts, self.parameters, self.parameters.max_cells_per_answer)
        return HeadList(tuple(texts), len(texts), spec, query_wildcards=False)

    def _clients(self, head: HeadList, cells: IntArray) -> GroupEstimates:
        if self.plan.clients_staying:
            listed = self.c.next(self.p, self.rng)[cells]
            holders = np.append(listed, self.n_c - listed.sum())
        else:
            p = self.p[cells]
            holders = self.rng.multinomial(self.n_c, np.append(p, max(0.0, 1 - p.sum())))
        randomizer = randomizer_for(head)
        return randomizer.estimate(draw_report_counts(randomizer, holders, self.rng), self.n_c)

    def _estimation(self, head: HeadList, cells: IntArray, p: FloatArray) -> NoisyCounts:
        """Draw T's noisy counts of the listed records and of all others; zeros without a T."""
        noisy = np.zeros(len(head.cells), dtype=np.int64)
        if self.n_t:
            listed = self.t.next(p, self.rng)[cells]
            raw = np.append(listed, self.n_t - listed.sum())
            draw = (
                self.noise.discrete_laplace if self.rule is None else self.noise.discrete_gaussian
            )
            noisy = draw(raw, scale=self.scale)
        return NoisyCounts(
            noisy, np.ones_like(noisy), self.scale, self.n_t, gaussian=self.rule is not None
        )

    def _scores(self, cells: IntArray, own: FloatArray | None) -> EpochScores:
        state, truth = self.filter.state, self.p[self.known]
        low, high = (state.mean[0] + z * np.sqrt(state.variance) for z in (-Z_95, Z_95))
        covered = (low <= truth) & (truth <= high)
        where = np.zeros(len(self.p), dtype=np.int64)
        where[self.known] = np.arange(len(self.known))
        listed = where[cells]
        visible = select_shown(state, self.n_s)
        length = max(1, int(visible.sum()))
        cut = np.partition(self.p[:-1], -length)[-length]
        top = np.argpartition(-self.p[:-1], self.setting.list_size)[: self.setting.list_size]
        published, in_cells = (np.zeros(len(self.p)) for _ in range(2))
        published[self.known] = np.where(visible, state.probability, 0.0)
        in_cells[cells] = state.probability[listed]
        _, group = np.unique(self.query[cells], return_inverse=True)
        total, total_truth, total_variance = (
            np.bincount(group, weights=a[listed]) for a in (state.mean[0], truth, state.variance)
        )
        in_query = np.abs(total - total_truth) <= Z_95 * np.sqrt(total_variance)
        own_l1, own_top_l1 = self._score_alone(cells, top, own)
        return EpochScores(
            own_l1=own_l1,
            own_top_l1=own_top_l1,
            filter_l1=float(np.abs(state.probability - truth)[listed].sum()),
            top_l1=float(np.abs(published - self.p)[top].sum()),
            top_asked_l1=float(np.abs(in_cells - self.p)[top].sum()),
            covered=_share(covered[listed]),
            covered_shown=_share(covered[visible]),
            covered_queries=_share(in_query),
            listed=len(listed),
            top_asked=_share(np.isin(top, cells)),
            shown=int(visible.sum()),
            on_top=_share(truth[visible] >= cut),
            known=state.size,
            staying=state.staying,
            drift=state.drift,
        )

    def _score_alone(
        self, cells: IntArray, top: IntArray, own: FloatArray | None
    ) -> tuple[float, float]:
        """Return L1 of the epoch's own estimate over the listed records and over the true top."""
        if own is None:
            return float("nan"), float("nan")
        estimate = np.zeros(len(self.p))
        estimate[cells] = own
        off = np.abs(estimate - self.p)
        return float(off[cells].sum()), float(off[top].sum())


def _share(of: NDArray[np.bool_]) -> float:
    """Return the proportion of True; NaN if there are no entries."""
    return float(of.mean()) if len(of) else float("nan")
