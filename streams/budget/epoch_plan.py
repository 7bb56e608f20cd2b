"""The parameters that are fixed when an epoch opens.

Promises: an epoch is validated, counted, noised and published by the parameters in the entry that
opened it, however settings change; a changed setting applies from the next epoch on. All times are
integer milliseconds since 1970, on whole seconds (documents use seconds).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import msgspec

from blendstream.blender.over_time.period_budget import calibrate_period
from blendstream.blender.paper.user_groups import PARTS
from blendstream.blender.values.errors import ParameterError
from blendstream.blender.values.parameters import PrivacyParameters
from blendstream.blender.values.record import MAX_QUERY_BYTES, MAX_URL_BYTES
from blendstream.streams.budget.budget_period import BudgetPeriod
from blendstream.streams.budget.ledger import (
    Cost,
    EpochCharge,
    Ledger,
    Limit,
    click_graph_cost,
    worst_of,
)
from blendstream.streams.wire.epoch_numbers import MAX_EPOCH, is_epoch
from blendstream.streams.wire.head_list_document import MAX_HEAD_LIST_BYTES

if TYPE_CHECKING:
    from blendstream.streams.settings import Settings

__all__ = [
    "MAX_LISTED_RECORDS",
    "ClickGraphPlan",
    "EpochParameters",
    "EpochPlan",
    "begin_period",
    "plan_from",
    "shares_ppm",
]

#: A record as JSON: every byte of query and URL escaped, its noisy count, brackets and commas.
_RECORD_BYTES = 2 * (MAX_QUERY_BYTES + MAX_URL_BYTES) + 40
#: Maximum list length, checked before noise is drawn: that many of the longest records still fit.
MAX_LISTED_RECORDS = (MAX_HEAD_LIST_BYTES - (1 << 20)) // _RECORD_BYTES


@dataclass(frozen=True, slots=True)
class ClickGraphPlan:
    """Parameters of the graph subgroup's query click graph (Korolova et al., Release-Data).

    ε and δ are those of Release-Data, for adding or removing a person; the ledger charges them as
    replace-one. ε is split: `selection_share` of it selects queries, `query_count_share` counts
    them, the rest counts clicks. `url_table` is the source of the candidate URLs: `head-list` (the
    last one published) or `file`.
    """

    epsilon: float
    delta: float
    queries_per_user: int
    clicks_per_user: int
    selection_share: float = 0.5
    query_count_share: float = 0.25
    url_table: str = "head-list"

    def __post_init__(self) -> None:
        """Check that the table of URLs is independent of the released data."""
        if self.url_table not in ("head-list", "file"):
            raise ParameterError(
                "url_table must be 'head-list' or 'file': candidate URLs taken from the data "
                f"itself would void the guarantee, got url_table={self.url_table!r}"
            )

    @property
    def cost(self) -> Cost:
        """Cost to a person of the graph subgroup, as replace-one."""
        return click_graph_cost(self.epsilon, self.delta)


@dataclass(frozen=True, slots=True)
class EpochPlan:
    """The next epoch according to the settings; the keeper makes an epoch's parameters of it."""

    window_ms: int
    grace_ms: int
    skew_ms: int
    privacy: PrivacyParameters
    profile: str
    cohorts: int
    key_id: str
    optin_partitions: int
    report_partitions: int
    topic_version: int = 1
    min_optin_users: int = 1
    min_reports: int = 1
    counting_deadline_ms: int = 0
    graph_share_ppm: int = 0
    click_graph: ClickGraphPlan | None = None
    #: Id of the secret that assigns opt-in users to cohorts; empty: there is one cohort.
    cohort_id: str = ""
    #: True: contributor keys are made of an application's space and the user id. False, in epochs
    #: opened before there were spaces: of the user id alone. No setting changes it.
    user_id_spaces: bool = True
    #: True if every report passes an admission hook (`gateway.admission`): a gateway without one
    #: accepts no reports of this epoch. It decides whose value of a disputed record is published.
    devices_admitted: bool = False
    #: R of the opt-in users; 0: `cohorts`, which is the clients' R.
    optin_cohorts: int = 0
    #: T: number of epochs that share one budget of the opt-in users; 0: a budget per epoch.
    period_epochs: int = 0
    #: Maximum number of known records. 0, in `paper` and in epochs opened before there was a limit:
    #: those of the last list whose counts are not too low.
    known_records: int = 0

    def __post_init__(self) -> None:
        """Check the plan's values and the conditions between them."""
        if self.window_ms < 1000 or self.window_ms % 1000:
            raise ParameterError(
                f"a window must last an integer number of seconds, got window_ms={self.window_ms}"
            )
        if self.grace_ms < 0 or self.skew_ms < 0 or self.counting_deadline_ms < 0:
            raise ParameterError("grace, skew and counting deadline must not be negative")
        if self.cohorts < 1 or self.optin_partitions < 1 or self.report_partitions < 1:
            raise ParameterError("cohorts and partitions must be at least 1")
        if (self.graph_share_ppm > 0) != (self.click_graph is not None):
            raise ParameterError(
                "a click graph and a share of the opt-in users for it must be set together, "
                f"got graph_share_ppm={self.graph_share_ppm}, click_graph="
                f"{'set' if self.click_graph else 'not set'}"
            )
        graph, most = self.click_graph, self.privacy.records_per_optin_user
        if graph is not None and min(graph.queries_per_user, graph.clicks_per_user) < most:
            raise ParameterError(
                "a click graph must count as many queries and clicks per user as are accepted, "
                f"records_per_optin_user={most}, got queries_per_user={graph.queries_per_user}, "
                f"clicks_per_user={graph.clicks_per_user}"
            )
        if self.privacy.head_list_cells > MAX_LISTED_RECORDS:
            raise ParameterError(
                f"head_list_cells must be at most {MAX_LISTED_RECORDS}, so that any list that may "
                f"be drawn fits into one document, got {self.privacy.head_list_cells}"
            )
        if self.period_epochs and self.profile != "sharp":
            raise ParameterError(
                "one budget for several epochs needs the profile sharp, whose noise it calibrates, "
                f"got profile={self.profile!r}"
            )
        if self.period_epochs and not self.known_records:
            raise ParameterError(
                "a budget period needs a limit to known records, got "
                f"period_epochs={self.period_epochs}, known_records={self.known_records}"
            )
        if self.known_records and self.profile != "sharp":
            raise ParameterError(
                f"only the profile sharp remembers records, got known_records={self.known_records} "
                f"with profile={self.profile!r}"
            )
        if self.period_epochs and self.optin_cohorts != 1:
            raise ParameterError(
                "opt-in users take part in every epoch of a budget period (optin_cohorts=1), got "
                f"optin_cohorts={self.optin_cohorts}"
            )
        if not 0 <= self.graph_share_ppm < PARTS:
            raise ParameterError(
                f"graph_share_ppm must be in 0..{PARTS - 1}, got {self.graph_share_ppm}"
            )

    @property
    def optin_cost(self) -> Cost:
        """Cost of an epoch to one opt-in user, who is in subgroup S, T or graph.

        In a budget period S and T pay once for all epochs; the graph is charged in addition.
        """
        if self.period_epochs:
            return Cost(0.0, 0.0) if self.click_graph is None else self.click_graph.cost
        both = Cost(self.privacy.epsilon, self.privacy.delta)
        return both if self.click_graph is None else worst_of(both, self.click_graph.cost)

    @property
    def client_cost(self) -> Cost:
        """Cost of an epoch to one device: only the paper's randomizer spends δ."""
        return Cost(self.privacy.epsilon, self.privacy.delta if self.profile == "paper" else 0.0)

    def charge(
        self, ledger: Ledger, limit: Limit, epoch: int, window_start_s: int,
        period: BudgetPeriod | None,
    ) -> EpochCharge:  # fmt: skip
        """Make the ledger's charge for opening an epoch with this plan."""
        return ledger.price(
            epoch, window_start_s, self.cohorts, limit,
            optin=self.optin_cost, clients=self.client_cost, cohort_id=self.cohort_id,
            optin_cohorts=self.optin_cohorts, period=period,
        )  # fmt: skip


def plan_from(settings: Settings) -> EpochPlan:
    """Make the plan of the next epoch from the settings."""
    graph, epoch = settings.click_graph, settings.epoch
    # In a budget period every opt-in user takes part in every epoch, and a client in one.
    epochs = settings.period_epochs
    clients = settings.privacy.cohorts or max(1, epochs)
    optin = settings.privacy.optin_cohorts or (1 if epochs else 0)
    return EpochPlan(
        window_ms=epoch.window_s * 1000,
        grace_ms=round(epoch.grace_s * 1000),
        skew_ms=round(epoch.allowed_skew_s * 1000),
        privacy=settings.privacy.parameters(),
        profile=settings.privacy.profile,
        cohorts=clients,
        key_id=settings.keys.current_id,
        optin_partitions=settings.topics.partitions,
        report_partitions=settings.topics.partitions,
        topic_version=settings.topics.version,
        min_optin_users=epoch.minimum_participants,
        min_reports=epoch.minimum_participants,
        counting_deadline_ms=epoch.counting_deadline_s * 1000,
        graph_share_ppm=round(graph.share * PARTS),
        click_graph=None
        if graph.share == 0
        else ClickGraphPlan(
            epsilon=graph.epsilon,
            delta=graph.delta,
            queries_per_user=graph.queries_per_user,
            clicks_per_user=graph.clicks_per_user,
            selection_share=graph.selection_share,
            query_count_share=graph.query_count_share,
            url_table="head-list" if graph.url_table_file is None else "file",
        ),
        cohort_id=settings.keys.cohort_id,
        devices_admitted=bool(settings.gateway.admission),
        optin_cohorts=optin,
        period_epochs=epochs,
        known_records=settings.budget.known_records if settings.privacy.profile == "sharp" else 0,
    )


def begin_period(plan: EpochPlan, first_epoch: int) -> BudgetPeriod:
    """Make the budget period that this epoch begins. Calibrating its noise takes some seconds.

    The secret of its first epoch assigns users to subgroups for all its epochs.
    """
    rule = calibrate_period(
        plan.privacy.epsilon,
        plan.privacy.delta,
        plan.privacy.records_per_optin_user,
        plan.period_epochs,
    )
    s, t, graph = shares_ppm(plan).values()
    return BudgetPeriod(first_epoch, rule, plan.key_id, (s, t, graph))


#: Values for fields that entries of older releases lack.
_NOT_ALWAYS_WRITTEN = {
    "topic_version": 1,
    "cohort_id": "",
    "user_id_spaces": False,
    "devices_admitted": False,
    "known_records": 0,
}


@dataclass(frozen=True, slots=True)
class EpochParameters:
    """The parameters with which an epoch was opened."""

    epoch: int
    window_start_ms: int
    window_end_ms: int
    plan: EpochPlan
    charge: EpochCharge

    def __post_init__(self) -> None:
        """Check the epoch's number, and that it fits its budget period."""
        if not is_epoch(self.epoch):
            raise ParameterError(f"an epoch must be in 0..{MAX_EPOCH}, got {self.epoch}")
        period, privacy = self.period, self.plan.privacy
        if self.plan.period_epochs != (0 if period is None else period.rule.epochs):
            raise ParameterError(
                "an epoch's budget period must have as many epochs as its plan states, got "
                f"{self.plan.period_epochs} in the plan"
            )
        if period is None:
            return
        period.index(self.epoch)
        rule = period.rule
        fixed = (rule.epsilon, rule.delta, rule.records_per_user, period.shares)
        here = (
            privacy.epsilon, privacy.delta, privacy.records_per_optin_user,
            tuple(shares_ppm(self.plan).values()),
        )  # fmt: skip
        if fixed != here:
            raise ParameterError(
                "epsilon, delta, m_O and shares of an epoch must be those of its budget period, "
                f"{fixed}, got {here}"
            )

    @property
    def period(self) -> BudgetPeriod | None:
        """The budget period of this epoch, if any."""
        return self.charge.period

    @property
    def window_ms(self) -> int:
        """Length of the window."""
        return self.window_end_ms - self.window_start_ms

    @property
    def records_sealable_at_ms(self) -> int:
        """Time from which no record that the brokers append can be in time."""
        return self.window_end_ms + self.plan.grace_ms + self.plan.skew_ms

    @property
    def counting_deadline_ms(self) -> int:
        """Maximum wait for every partition after a seal; two windows unless set."""
        return self.plan.counting_deadline_ms or 2 * self.window_ms

    @property
    def head_list_deadline_ms(self) -> int:
        """Time after which no device has records of the window: reports would be empty."""
        return self.window_end_ms + 2 * self.window_ms

    def to_json(self) -> dict[str, Any]:
        """Return the fields of an `epoch_opened` entry."""
        plan = asdict(self.plan)
        # Derived from other fields.
        for name in ("window_ms", "graph_share_ppm", "optin_cohorts", "period_epochs"):
            del plan[name]
        # Among the privacy parameters, where an older release rejects unknown fields: it would
        # admit other users than were charged, or draw noise for another budget.
        if self.plan.optin_cohorts:
            plan["privacy"]["optin_cohorts"] = self.plan.optin_cohorts
        if self.period is not None:
            plan["privacy"]["period"] = self.period.to_json(self.epoch)
        return {
            **plan,
            "window_start_ms": self.window_start_ms,
            "window_end_ms": self.window_end_ms,
            "records_per_user": self.plan.privacy.records_per_optin_user,
            "shares_ppm": shares_ppm(self.plan),
            "charge": self.charge.to_json(),
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> EpochParameters:
        """Read the fields of an `epoch_opened` entry; `ValueError` or `KeyError` if invalid."""
        start, end, graph = body["window_start_ms"], body["window_end_ms"], body["click_graph"]
        privacy = dict(body["privacy"])
        optin_cohorts, stated = int(privacy.pop("optin_cohorts", 0)), privacy.pop("period", None)
        period = None if stated is None else BudgetPeriod.from_json(body["epoch"], stated)
        values = {
            **_NOT_ALWAYS_WRITTEN,
            **body,
            "window_ms": end - start,
            "graph_share_ppm": body["shares_ppm"]["graph"],
            # Built here, because the constructor rejects parameters unknown to this release.
            "privacy": PrivacyParameters(**privacy),
            "optin_cohorts": optin_cohorts,
            "period_epochs": 0 if period is None else period.rule.epochs,
            "click_graph": None if graph is None else ClickGraphPlan(**graph),
        }
        charge = EpochCharge.from_json(
            body["epoch"], body["charge"], optin_cohorts=optin_cohorts, period=period
        )
        try:
            plan = msgspec.convert(
                {field.name: values[field.name] for field in fields(EpochPlan)}, EpochPlan
            )
            return msgspec.convert({**body, "plan": plan, "charge": charge}, cls)
        except msgspec.ValidationError as error:
            raise ValueError(f"an epoch's parameters must have their types: {error}") from None


def shares_ppm(plan: EpochPlan) -> dict[str, int]:
    """Return the sizes of the subgroups S, T and graph in millionths, which sum to one million.

    The graph takes its part first; f_O divides the rest into S and T.
    """
    rest = PARTS - plan.graph_share_ppm
    selection = round(plan.privacy.selection_share * rest)
    return {"S": selection, "T": rest - selection, "graph": plan.graph_share_ppm}
