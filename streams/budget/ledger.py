"""The privacy ledger: the budget that each group has spent, and whether another epoch may open.

Promises:
- Opt-in users and clients are accounted separately. Someone who was in both groups, at different
  times, pays at most the sum (`spent_in_both`).
- Every (ε, δ) is for **replace-one** neighbours: data sets that differ in the values of one
  person's records.
- Totals are upper bounds for the worst case, a person present in every epoch that admits them
  (`streams.budget.composition`).
- An epoch is charged in full when it opens. The ledger refuses a charge that would exceed the limit
  of its period, and states when the next period begins.

Epochs may share one budget of the opt-in users (`streams.budget.budget_period`). The ledger charges
it once, when its first epoch opens. If the budget spans several periods of the limit, the ledger
charges it once in each, so that each period's total is correct. A charge that would break the proof
of that budget is an error: one epoch too many, an epoch opened again, any change within the period.
Assumes: an epoch admits one cohort of R (epoch mod R), so a person pays in one epoch out of R. An
opt-in user's cohort depends on R and on the secret that the charge names; a device draws its
cohort, and another when R changes. R may differ between the groups.

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

#: Time after its end from which a period is only part of the lifetime total. If it is shorter, the
#: ledger forgets charges that a lengthened period must count; if longer, checkpoints are larger.
_REMEMBERED_S = 400 * 86_400


@dataclass(frozen=True, slots=True)
class Limit:
    """Maximum (ε, δ) per person of each group in a period of `period_s` seconds."""

    period_s: int
    optin: Cost
    clients: Cost

    def __post_init__(self) -> None:
        """Check that the limits allow some ε and that the period has a sensible length."""
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
        """Return the limit of one group."""
        return self.optin if group == "optin" else self.clients

    def period_of(self, time_s: int) -> tuple[int, int]:
        """Return start and end of the period that contains `time_s`; periods start at 1970."""
        start = time_s // self.period_s * self.period_s
        return start, start + self.period_s


@dataclass(frozen=True, slots=True)
class EpochCharge:
    """The cost of one epoch to the people it admits, as in the entry that opens it.

    `optin` is for this epoch alone. In a budget period that is the cost of the click graph, if
    there is one; `period` is charged in addition, once for all of its epochs.
    """

    epoch: int
    window_start_s: int
    cohorts: int
    period_start_s: int
    period_end_s: int
    optin: Cost
    clients: Cost
    #: Id of the secret that assigns opt-in users to cohorts; empty in logs that lack it.
    cohort_id: str = ""
    #: R of the opt-in users; 0: R of the clients.
    optin_cohorts: int = 0
    period: BudgetPeriod | None = None

    def of(self, group: Group) -> Cost:
        """Return the cost of this epoch alone to one group."""
        return self.optin if group == "optin" else self.clients

    def cohorts_of(self, group: Group) -> int:
        """Return R, the number of cohorts, of one group."""
        return self.optin_cohorts or self.cohorts if group == "optin" else self.cohorts

    @property
    def max_cost(self) -> Mapping[Group, Cost]:
        """Maximum cost of one release to a person of each group."""
        optin = self.optin if self.period is None else worst_of(self.optin, self.period.cost)
        return {"optin": optin, "clients": self.clients}

    def to_json(self) -> dict[str, Any]:
        """Return the fields of this charge in the release log."""
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
        """Read the fields that `to_json` wrote; the arguments are elsewhere in the entry."""
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
    """The reason that no epoch opens before `resumes_at_s`: `group` would exceed its limit."""

    group: Group
    would_be: Cost
    limit: Limit
    resumes_at_s: int

    @property
    def reason(self) -> str:
        """Describe it to operators, and to senders that the gateway refuses."""
        return (
            f"the privacy budget of this period is spent: one more epoch would bring "
            f"{SPOKEN[self.group]} to delta={self.would_be.delta:.3g} at "
            f"epsilon={self.would_be.epsilon:g}, the limit is delta="
            f"{self.limit.of(self.group).delta:g} per {self.limit.period_s} s; "
            f"collecting resumes automatically with the next period"
        )


#: Name of each group in sentences for operators and senders.
SPOKEN: Mapping[Group, str] = {"optin": "opt-in users", "clients": "clients"}

#: Cost of an epoch to opt-in users in a budget period without a click graph.
_NOTHING = Cost(0.0, 0.0)

# Group, R, cohort, ε, δ, and the assignment to cohorts: the id of the opt-in users' secret, or the
# epoch since which devices have had this R. The ledger counts how often a person paid under a key.
_Key = tuple[Group, int, int, float, float, str]
_Bucket = tuple[int, int]


@dataclass(frozen=True)
class Ledger:
    """Totals of all charges: per period while recent, and for the whole lifetime.

    >>> limit = Limit(1000, optin=Cost(8.0, 1e-4), clients=Cost(8.0, 1e-4))
    >>> one = Cost(4.0, 1e-5)
    >>> ledger = Ledger()
    >>> for epoch in range(2):
    ...     charge = ledger.price(epoch, 100 * epoch, 1, limit, optin=one, clients=one)
    ...     assert ledger.check_charge(charge, limit) is None
    ...     ledger = ledger.with_charge(charge)
    >>> third = ledger.price(2, 200, 1, limit, optin=one, clients=one)
    >>> ledger.check_charge(third, limit).resumes_at_s
    1000
    """

    last_epoch: int | None = None
    periods: Mapping[_Bucket, Mapping[_Key, int]] = field(default_factory=dict)
    lifetime: Mapping[_Key, int] = field(default_factory=dict)
    #: R of the clients, and the first epoch with that R.
    client_cohorts_since: tuple[int, int] = (1, 0)
    #: The budget period of the last epoch, and the periods of the limit in which it was charged.
    budget: PeriodBudget | None = None
    budget_charged_in: tuple[_Bucket, ...] = ()

    def price(
        self, epoch: int, window_start_s: int, cohorts: int, limit: Limit, *,
        optin: Cost, clients: Cost, cohort_id: str = "", optin_cohorts: int = 0,
        period: BudgetPeriod | None = None,
    ) -> EpochCharge:  # fmt: skip
        """Make the charge for opening `epoch`."""
        start, end = limit.period_of(window_start_s)
        return EpochCharge(
            epoch, window_start_s, cohorts, start, end, optin, clients,
            cohort_id, optin_cohorts, period,
        )  # fmt: skip

    def check_charge(self, charge: EpochCharge, limit: Limit) -> BudgetExhausted | None:
        """Check a charge against the limit: return why it must wait, or `None` if allowed."""
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
        """Return the ledger with this charge added; an epoch is never charged twice."""
        if self.last_epoch is not None and charge.epoch <= self.last_epoch:
            return self
        periods = {bucket: dict(keys) for bucket, keys in self.periods.items()}
        lifetime = dict(self.lifetime)
        for bucket in [b for b in periods if b[1] < charge.window_start_s - _REMEMBERED_S]:
            del periods[bucket]
        period = periods.setdefault((charge.period_start_s, charge.period_end_s), {})
        since = self.client_cohorts_since
        if charge.cohorts != since[0]:
            since = charge.cohorts, charge.epoch
        for group in GROUPS:
            cost, cohorts = charge.of(group), charge.cohorts_of(group)
            assignment = charge.cohort_id if group == "optin" else str(since[1])
            if cohorts == 1:
                assignment = ""  # Everyone is in the one cohort.
            key: _Key = (
                group, cohorts, charge.epoch % cohorts, cost.epsilon, cost.delta, assignment,
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
        return Ledger(charge.epoch, periods, lifetime, since, budget, charged_in)

    def _budget_after(self, charge: EpochCharge) -> tuple[PeriodBudget | None, tuple[_Bucket, ...]]:
        """Return the budget period with this epoch opened, and where it was charged before."""
        terms = charge.period
        if terms is None:
            return None, ()
        budget, charged_in = self.budget, self.budget_charged_in
        if terms.first_epoch == charge.epoch:
            budget, charged_in = PeriodBudget(terms.rule, terms.shares_id), ()
        elif self.last_epoch is None:
            # A reader that starts within a period: epochs are numbered without gaps.
            before = tuple(range(terms.first_epoch, charge.epoch))
            budget = PeriodBudget(terms.rule, terms.shares_id, before)
        elif budget is None or budget.epochs[0] != terms.first_epoch:
            raise ParameterError(
                f"epoch {charge.epoch} must be of the budget period of the epoch before it, or "
                f"begin one, got the period that began with epoch {terms.first_epoch}"
            )
        return budget.open_epoch(charge.epoch, terms.rule, terms.shares_id), charged_in

    def spent(self, group: Group, start_s: int, end_s: int, *, delta: float) -> Cost:
        """Return the worst-case (ε, δ) in [start, end), at this δ or the lowest possible."""
        return spent_at(self._worst_person(group, start_s, end_s), delta)

    def spent_in_both(self, start_s: int, end_s: int, *, delta: float) -> Cost:
        """Return (ε, δ) of someone in both groups at different times: both worst cases composed."""
        optin, clients = (self._worst_person(group, start_s, end_s) for group in GROUPS)
        return spent_at(together(optin, clients), delta)

    def basic(self, group: Group, start_s: int, end_s: int) -> Cost:
        """Return (ε, δ) in [start, end) by basic composition; valid for adaptive settings too."""
        epsilon, delta = basic_composition(self._worst_person(group, start_s, end_s))
        return Cost(epsilon, min(1.0, delta))

    def delta_spent(self, group: Group, start_s: int, end_s: int, *, epsilon: float) -> float:
        """Return the worst-case δ in [start, end) at this ε, which `check_charge` compares."""
        return delta_at(self._worst_person(group, start_s, end_s), epsilon)

    def spent_in_life(self, group: Group, *, delta: float) -> Cost:
        """Return (ε, δ) of a person present since the first epoch, at this δ or the lowest."""
        return spent_at(_worst(self.lifetime, group), delta)

    def basic_in_life(self, group: Group) -> Cost:
        """Return (ε, δ) since the first epoch by basic composition, to verify by hand."""
        epsilon, delta = basic_composition(_worst(self.lifetime, group))
        return Cost(epsilon, min(1.0, delta))

    def epochs(self) -> int:
        """Count the epochs that were ever charged."""
        return _epochs(self.lifetime)

    def epochs_within(self, start_s: int, end_s: int) -> int:
        """Count the epochs that were charged to periods that overlap [start, end)."""
        return _epochs(self._within(start_s, end_s))

    def _worst_person(self, group: Group, start_s: int, end_s: int) -> Costs:
        return _worst(self._within(start_s, end_s), group)

    def _within(self, start_s: int, end_s: int) -> Mapping[_Key, int]:
        # A period of another length (settings changed) counts in full where it overlaps: an
        # overestimate is safe.
        total: Counter[_Key] = Counter()
        for (start, end), keys in self.periods.items():
            if start < end_s and start_s < end:
                total.update(keys)
        return total

    def to_json(self) -> dict[str, Any]:
        """Return a checkpoint, which replaces all earlier entries for a reader."""
        written = {} if self.budget is None else {
            "budget": asdict(self.budget) | {"charged_in": list(map(list, self.budget_charged_in))}
        }  # fmt: skip
        return written | {
            "last_epoch": self.last_epoch,
            "periods": [
                [start, end, _rows(keys)] for (start, end), keys in sorted(self.periods.items())
            ],
            "lifetime": _rows(self.lifetime),
            "turns": list(self.client_cohorts_since),
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Ledger:
        """Read a checkpoint."""
        # Old checkpoints lack "turns": then the next R counts as a new one.
        last, since = body["last_epoch"], body.get("turns", (0, 0))
        budget = body.get("budget")
        return cls(
            None if last is None else int(last),
            {(int(s), int(e)): _keys(rows) for s, e, rows in body["periods"]},
            _keys(body["lifetime"]),
            (int(since[0]), int(since[1])),
            None if budget is None else PeriodBudget(
                rule_from_json(budget["rule"]), str(budget["shares_id"]), tuple(budget["epochs"])
            ),
            () if budget is None else tuple((int(s), int(e)) for s, e in budget["charged_in"]),
        )  # fmt: skip


def _epochs(keys: Mapping[_Key, int]) -> int:
    # Clients pay in every epoch, opt-in users perhaps once for several epochs.
    return sum(times for (group, *_), times in keys.items() if group == "clients")


def _worst(keys: Mapping[_Key, int], group: Group) -> Costs:
    """Return the worst-case costs: those of the worst cohort, for every R and assignment.

    A person's cohorts under two R or assignments are unrelated, so one person may be in the worst
    cohort of each.
    """
    cohorts: dict[tuple[int, str], dict[int, Counter[tuple[float, float]]]] = {}
    for (of_group, r, cohort, epsilon, delta, assignment), times in keys.items():
        if of_group == group:
            by_number = cohorts.setdefault((r, assignment), {})
            by_number.setdefault(cohort, Counter())[(epsilon, delta)] += times
    paid: Counter[tuple[float, float]] = Counter()
    for by_cohort in cohorts.values():
        # Element-wise maximum over cohorts: no cohort paid any cost more often, so no cohort's
        # composition is larger.
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
        (g, int(r), int(c), float(e), float(d), str(assignment[0]) if assignment else ""): int(n)
        for g, r, c, e, d, n, *assignment in rows
    }
