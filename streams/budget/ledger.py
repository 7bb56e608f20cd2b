"""The privacy ledger: what each group has spent, and whether the next epoch may open.

Promises: opt-in users and clients are accounted apart; someone who was both, by turns, pays at most
the sum (`spent_in_both`). Every (ε, δ) is for **replace-one** neighbours: data sets that differ in
the values of one person's records. The cumulative figure is for the person worst off, present in
every epoch that admits them, and is an upper bound (`streams.budget.composition`). An epoch is
charged in full when it opens; a charge that would pass the limit of its period is not made, and the
answer says when the next period begins.

Epochs may share one budget of the opt-in users (`streams.budget.budget_period`). It is charged
once, when its first epoch opens; where the limit's own periods end in between, once in each of
them, since someone may look at one alone. A charge that would break the proof of that budget is
an error: one epoch more than it was made for, an epoch opened again, anything changed within it.
Assumes: an epoch admits one cohort of R (epoch mod R), so a person pays in one epoch out of R. An
opt-in user's cohort depends on R and on the secret that the charge names; a device draws its own,
and another when R changes. R may differ between the groups.

Symbols: ε = epsilon, δ = delta, R = cohorts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from blendstream.blender.over_time.period_budget import PeriodBudget
from blendstream.blender.values.errors import ParameterError
from blendstream.streams.budget.budget_period import BudgetPeriod, rule_from_json
from blendstream.streams.budget.composition import (
    Cost,
    Costs,
    basic_composition,
    click_graph_cost,
    delta_at,
    spent_at,
    together,
    worst_of,
)

__all__ = [
    "GROUPS",
    "SPOKEN",
    "BudgetExhausted",
    "Cost",
    "EpochCharge",
    "Group",
    "Ledger",
    "Limit",
    "click_graph_cost",
    "worst_of",
]

Group = Literal["optin", "clients"]
GROUPS: tuple[Group, ...] = ("optin", "clients")

#: Periods that ended longer ago than this are folded into the lifetime total. Shorter would
#: forget what a lengthened period must still count; longer only makes checkpoints larger.
_REMEMBERED_S = 400 * 86_400


@dataclass(frozen=True, slots=True)
class Limit:
    """At most this (ε, δ) for one person of each group in one period of `period_s` seconds."""

    period_s: int
    optin: Cost
    clients: Cost

    def __post_init__(self) -> None:
        """A limit that allows nothing, or no period, is a mistake."""
        for group in GROUPS:
            if not self.of(group).epsilon > 0:
                raise ParameterError(
                    f"a budget limit must have an epsilon above 0, got {group}={self.of(group)}"
                )
        if not 0 < self.period_s <= 366 * 86_400:
            raise ParameterError(
                f"a budget period must last from 1 s to 366 days, got period_s={self.period_s!r}"
            )

    def of(self, group: Group) -> Cost:
        """The limit of one group."""
        return self.optin if group == "optin" else self.clients

    def period_of(self, time_s: int) -> tuple[int, int]:
        """Start and end of the period that holds `time_s`; periods are counted from 1970."""
        start = time_s // self.period_s * self.period_s
        return start, start + self.period_s


@dataclass(frozen=True, slots=True)
class EpochCharge:
    """What one epoch costs the people it admits; written in the entry that opens it.

    `optin` is for this epoch alone. In a budget period that is what the click graph costs, if there
    is one; `period` is charged beside it, once for all of its epochs.
    """

    epoch: int
    window_start_s: int
    cohorts: int
    period_start_s: int
    period_end_s: int
    optin: Cost
    clients: Cost
    #: The secret that puts opt-in users into cohorts; empty in logs that did not write it down.
    cohort_id: str = ""
    #: R of the opt-in users; 0: as that of the clients.
    optin_cohorts: int = 0
    period: BudgetPeriod | None = None

    def of(self, group: Group) -> Cost:
        """The cost to one group of this epoch alone."""
        return self.optin if group == "optin" else self.clients

    def cohorts_of(self, group: Group) -> int:
        """R of one group."""
        return self.optin_cohorts or self.cohorts if group == "optin" else self.cohorts

    @property
    def max_cost(self) -> Mapping[Group, Cost]:
        """The most that one release costs one person of each group."""
        optin = self.optin if self.period is None else worst_of(self.optin, self.period.cost)
        return {"optin": optin, "clients": self.clients}

    def to_json(self) -> dict[str, Any]:
        """The form in which the release log keeps it."""
        return {
            "neighbouring": "replace-one",
            "window_start_s": self.window_start_s,
            "cohorts": self.cohorts,
            "cohort_id": self.cohort_id,
            "period_start_s": self.period_start_s,
            "period_end_s": self.period_end_s,
            "optin": [self.optin.epsilon, self.optin.delta],
            "clients": [self.clients.epsilon, self.clients.delta],
        }

    @classmethod
    def from_json(
        cls, epoch: int, body: Mapping[str, Any], *,
        optin_cohorts: int = 0, period: BudgetPeriod | None = None,
    ) -> EpochCharge:  # fmt: skip
        """Read what `to_json` wrote; the rest is elsewhere in the entry."""
        return cls(
            epoch=epoch,
            window_start_s=int(body["window_start_s"]),
            cohorts=int(body["cohorts"]),
            period_start_s=int(body["period_start_s"]),
            period_end_s=int(body["period_end_s"]),
            optin=Cost(*map(float, body["optin"])),
            clients=Cost(*map(float, body["clients"])),
            cohort_id=str(body.get("cohort_id", "")),
            optin_cohorts=optin_cohorts,
            period=period,
        )


@dataclass(frozen=True, slots=True)
class BudgetExhausted:
    """No epoch opens before `resumes_at_s`: the group named would pass its limit."""

    group: Group
    would_be: Cost
    limit: Limit
    resumes_at_s: int

    @property
    def reason(self) -> str:
        """One sentence for operators and for senders that the gateway refuses."""
        return (
            f"the privacy budget of this period is spent: one more epoch would bring "
            f"{SPOKEN[self.group]} to delta={self.would_be.delta:.3g} at "
            f"epsilon={self.would_be.epsilon:g}, the limit is delta="
            f"{self.limit.of(self.group).delta:g} per {self.limit.period_s} s; "
            f"collecting resumes by itself with the next period"
        )


#: A group as people read it.
SPOKEN: Mapping[Group, str] = {"optin": "opt-in users", "clients": "clients"}

#: What an epoch costs opt-in users in a budget period without a click graph.
_NOTHING = Cost(0.0, 0.0)

# How often one person of (cohorts R, cohort) paid a cost, and by which order they are in it: the
# id of the opt-in users' secret, or the epoch since which devices have had this R.
_Key = tuple[Group, int, int, float, float, str]
_Bucket = tuple[int, int]


@dataclass(frozen=True)
class Ledger:
    """All charges so far, folded: by period while recent, as one total for life.

    >>> limit = Limit(1000, optin=Cost(8.0, 1e-4), clients=Cost(8.0, 1e-4))
    >>> one = Cost(4.0, 1e-5)
    >>> ledger = Ledger()
    >>> for epoch in range(2):
    ...     charge = ledger.price(epoch, 100 * epoch, 1, limit, optin=one, clients=one)
    ...     assert ledger.refusal(charge, limit) is None
    ...     ledger = ledger.charged(charge)
    >>> ledger.refusal(ledger.price(2, 200, 1, limit, optin=one, clients=one), limit).resumes_at_s
    1000
    """

    last_epoch: int | None = None
    periods: Mapping[_Bucket, Mapping[_Key, int]] = field(default_factory=dict)
    lifetime: Mapping[_Key, int] = field(default_factory=dict)
    #: The clients' R and the epoch since which it has been so.
    turns: tuple[int, int] = (1, 0)
    #: The budget period that the last epoch belongs to, and the periods of the limit that it was
    #: charged in.
    budget: PeriodBudget | None = None
    budget_charged_in: tuple[_Bucket, ...] = ()

    def price(
        self, epoch: int, window_start_s: int, cohorts: int, limit: Limit, *,
        optin: Cost, clients: Cost, cohort_id: str = "", optin_cohorts: int = 0,
        period: BudgetPeriod | None = None,
    ) -> EpochCharge:  # fmt: skip
        """The charge that opening `epoch` would make."""
        start, end = limit.period_of(window_start_s)
        return EpochCharge(
            epoch, window_start_s, cohorts, start, end, optin, clients,
            cohort_id, optin_cohorts, period,
        )  # fmt: skip

    def check_charge(self, charge: EpochCharge, limit: Limit) -> BudgetExhausted | None:
        """Why this charge must not be made now, or `None` when it may."""
        for group in GROUPS:
            cost, most = charge.max_cost[group], limit.of(group)
            if cost.epsilon > most.epsilon or cost.delta > most.delta:
                raise ParameterError(
                    f"one epoch must cost {SPOKEN[group]} no more than the limit per period, got "
                    f"({cost.epsilon:g}, {cost.delta:g}) with limit=({most.epsilon:g}, "
                    f"{most.delta:g}); raise the limit or lower epsilon and delta"
                )
        start, end = limit.period_of(charge.window_start_s)
        after = self.with_charge(charge)
        for group in GROUPS:
            most = limit.of(group)
            delta = after.delta_spent(group, start, end, epsilon=most.epsilon)
            if delta > most.delta * (1 + 1e-12):
                return BudgetExhausted(group, Cost(most.epsilon, min(1.0, delta)), limit, end)
        return None

    def with_charge(self, charge: EpochCharge) -> Ledger:
        """The ledger with this charge; an epoch already charged is not charged again."""
        if self.last_epoch is not None and charge.epoch <= self.last_epoch:
            return self
        periods = {bucket: dict(keys) for bucket, keys in self.periods.items()}
        lifetime = dict(self.lifetime)
        for bucket in [b for b in periods if b[1] < charge.window_start_s - _REMEMBERED_S]:
            del periods[bucket]
        period = periods.setdefault((charge.period_start_s, charge.period_end_s), {})
        turns = self.turns
        if charge.cohorts != turns[0]:
            turns = charge.cohorts, charge.epoch
        for group in GROUPS:
            cost, cohorts = charge.of(group), charge.cohorts_of(group)
            order = charge.cohort_id if group == "optin" else str(turns[1])
            if cohorts == 1:
                order = ""  # Everybody is in it.
            key: _Key = (
                group, cohorts, charge.epoch % cohorts, cost.epsilon, cost.delta, order,
            )  # fmt: skip
            if cost != _NOTHING:
                period[key] = period.get(key, 0) + 1
                lifetime[key] = lifetime.get(key, 0) + 1
        budget, charged_in = self._budget_after(charge)
        bucket = (charge.period_start_s, charge.period_end_s)
        if charge.period is not None and bucket not in charged_in:
            cost = charge.period.cost
            key = ("optin", 1, 0, cost.epsilon, cost.delta, "")
            period[key] = period.get(key, 0) + 1
            if not charged_in:
                lifetime[key] = lifetime.get(key, 0) + 1
            charged_in = (*charged_in, bucket)
        return Ledger(charge.epoch, periods, lifetime, turns, budget, charged_in)

    def _budget_after(self, charge: EpochCharge) -> tuple[PeriodBudget | None, tuple[_Bucket, ...]]:
        """The budget period with this epoch opened, and where it was charged before."""
        terms = charge.period
        if terms is None:
            return None, ()
        budget, charged_in = self.budget, self.budget_charged_in
        if terms.first_epoch == charge.epoch:
            budget, charged_in = PeriodBudget(terms.rule, terms.shares_id), ()
        elif self.last_epoch is None:
            # A reader that begins within a period: epochs are numbered without gaps.
            before = tuple(range(terms.first_epoch, charge.epoch))
            budget = PeriodBudget(terms.rule, terms.shares_id, before)
        elif budget is None or budget.epochs[0] != terms.first_epoch:
            raise ParameterError(
                f"epoch {charge.epoch} must be of the budget period of the epoch before it, or "
                f"begin one, got the period that began with epoch {terms.first_epoch}"
            )
        return budget.opened(charge.epoch, terms.rule, terms.shares_id), charged_in

    def spent(self, group: Group, start_s: int, end_s: int, *, delta: float) -> Cost:
        """(ε, δ) of the person worst off in [start, end), at this δ or the least possible."""
        return spent_at(self._worst_person(group, start_s, end_s), delta)

    def spent_in_both(self, start_s: int, end_s: int, *, delta: float) -> Cost:
        """(ε, δ) of someone who was in both groups in [start, end), by turns: at most what the
        person worst off in each paid."""
        optin, clients = (self._worst_person(group, start_s, end_s) for group in GROUPS)
        return spent_at(together(optin, clients), delta)

    def basic(self, group: Group, start_s: int, end_s: int) -> Cost:
        """Plain sums of ε and δ in [start, end): they hold for settings that results chose, too."""
        epsilon, delta = basic_composition(self._worst_person(group, start_s, end_s))
        return Cost(epsilon, min(1.0, delta))

    def delta_spent(self, group: Group, start_s: int, end_s: int, *, epsilon: float) -> float:
        """δ of the person worst off in [start, end) at this ε: what `refusal` looks at."""
        return delta_at(self._worst_person(group, start_s, end_s), epsilon)

    def spent_in_life(self, group: Group, *, delta: float) -> Cost:
        """(ε, δ) of someone present since the first epoch, at this δ or the least possible."""
        return spent_at(_worst(self.lifetime, group), delta)

    def basic_in_life(self, group: Group) -> Cost:
        """Plain sums of ε and δ since the first epoch, for readers who add by hand."""
        epsilon, delta = basic_composition(_worst(self.lifetime, group))
        return Cost(epsilon, min(1.0, delta))

    def epochs(self) -> int:
        """How many epochs were ever charged."""
        return _epochs(self.lifetime)

    def epochs_within(self, start_s: int, end_s: int) -> int:
        """How many epochs were charged to periods that overlap [start, end)."""
        return _epochs(self._within(start_s, end_s))

    def _worst_person(self, group: Group, start_s: int, end_s: int) -> Costs:
        return _worst(self._within(start_s, end_s), group)

    def _within(self, start_s: int, end_s: int) -> Mapping[_Key, int]:
        # A period of another length than today's (settings changed) counts in full where it
        # overlaps: too much rather than too little.
        total: Counter[_Key] = Counter()
        for (start, end), keys in self.periods.items():
            if start < end_s and start_s < end:
                total.update(keys)
        return total

    def to_json(self) -> dict[str, Any]:
        """A checkpoint: what a reader needs instead of all entries before it."""
        written = {} if self.budget is None else {
            "budget": asdict(self.budget) | {"charged_in": list(map(list, self.budget_charged_in))}
        }  # fmt: skip
        return written | {
            "last_epoch": self.last_epoch,
            "periods": [
                [start, end, _rows(keys)] for (start, end), keys in sorted(self.periods.items())
            ],
            "lifetime": _rows(self.lifetime),
            "turns": list(self.turns),
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Ledger:
        """Read a checkpoint."""
        last, turns = body["last_epoch"], body.get("turns", (0, 0))
        budget = body.get("budget")
        return cls(
            None if last is None else int(last),
            {(int(s), int(e)): _keys(rows) for s, e, rows in body["periods"]},
            _keys(body["lifetime"]),
            # Not always written: then the next R counts as a new one.
            (int(turns[0]), int(turns[1])),
            None if budget is None else PeriodBudget(
                rule_from_json(budget["rule"]), str(budget["shares_id"]), tuple(budget["epochs"])
            ),
            () if budget is None else tuple((int(s), int(e)) for s, e in budget["charged_in"]),
        )  # fmt: skip


def _epochs(keys: Mapping[_Key, int]) -> int:
    # Clients pay in every epoch, opt-in users perhaps once for several.
    return sum(times for (group, *_), times in keys.items() if group == "clients")


def _worst(keys: Mapping[_Key, int], group: Group) -> Costs:
    """What the person worst off paid: their worst cohort, for every R and order in force.

    A person's cohorts under two different R or orders are unrelated, so the worst of each may meet.
    """
    cohorts: dict[tuple[int, str], dict[int, Counter[tuple[float, float]]]] = {}
    for (of, r, cohort, epsilon, delta, order), times in keys.items():
        if of == group:
            by_number = cohorts.setdefault((r, order), {})
            by_number.setdefault(cohort, Counter())[(epsilon, delta)] += times
    paid: Counter[tuple[float, float]] = Counter()
    for by_cohort in cohorts.values():
        # Element-wise maximum over cohorts: no cohort paid more of any cost, so no cohort's
        # composition is larger, in any order of mixed costs.
        worst: dict[tuple[float, float], int] = {}
        for costs in by_cohort.values():
            for cost, times in costs.items():
                worst[cost] = max(worst.get(cost, 0), times)
        paid.update(worst)
    return tuple(sorted((e, d, n) for (e, d), n in paid.items()))


def _rows(keys: Mapping[_Key, int]) -> list[list[Any]]:
    return [[*key[:5], times, *filter(None, key[5:])] for key, times in sorted(keys.items())]


def _keys(rows: Any) -> dict[_Key, int]:
    return {
        (g, int(r), int(c), float(e), float(d), str(order[0]) if order else ""): int(n)
        for g, r, c, e, d, n, *order in rows
    }
