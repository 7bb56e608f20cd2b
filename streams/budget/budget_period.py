"""The fixed parameters of a budget period: epochs that share one budget for opt-in users.

The first epoch of a period fixes ε, δ, m_O, T, σ, θ and the opt-in subgroups; every other epoch
repeats them in the entry that opens it. `streams.budget.ledger` charges the period once, and
refuses an entry that would break the proof (docs/privacy-over-time.md).

Symbols: T = epochs of the period, σ = scale, θ = threshold, m_O = records per user and epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from blendstream.blender.over_time.period_budget import PeriodRule
from blendstream.blender.paper.user_groups import PARTS
from blendstream.blender.values.errors import require
from blendstream.streams.budget.composition import Cost

__all__ = ["BudgetPeriod", "rule_from_json"]


@dataclass(frozen=True, slots=True)
class BudgetPeriod:
    """One period. Its first epoch's number is its id.

    `shares` are the sizes of the subgroups S, T and graph in millionths; the master secret
    `share_key_id` assigns users to them, for all epochs of the period.
    """

    first_epoch: int
    rule: PeriodRule
    share_key_id: str
    shares: tuple[int, int, int]

    def __post_init__(self) -> None:
        """Check the sizes: every user is in exactly one subgroup."""
        require(
            len(self.shares) == 3 and min(self.shares) >= 0 and sum(self.shares) == PARTS,
            f"a period's shares must be S, T and graph, at least 0, and sum to {PARTS}, "
            f"got {list(self.shares)}",
        )

    @property
    def shares_id(self) -> str:
        """Secret and sizes as text. If they changed, users would change their subgroup."""
        return " ".join(map(str, (self.share_key_id, *self.shares)))

    @property
    def cost(self) -> Cost:
        """Cost to an opt-in user, once, for all epochs of the period."""
        return Cost(self.rule.epsilon, self.rule.delta)

    def index(self, epoch: int) -> int:
        """Return an epoch's index: 0 for the first of the period, T − 1 for its last."""
        place = epoch - self.first_epoch
        require(
            0 <= place < self.rule.epochs,
            f"a period of {self.rule.epochs} epochs that began with epoch {self.first_epoch} ends "
            f"with epoch {self.first_epoch + self.rule.epochs - 1}, got epoch {epoch}",
        )
        return place

    def published(self, epoch: int) -> dict[str, Any]:
        """Return the fields that describe the period in a publication of one of its epochs."""
        return {
            "id": self.first_epoch,
            "index": self.index(epoch),
            "shares_ppm": list(self.shares),
            **asdict(self.rule),
        }

    def to_json(self, epoch: int) -> dict[str, Any]:
        """Return the fields that describe the period in the entry that opens one of its epochs."""
        return self.published(epoch) | {"share_key_id": self.share_key_id}

    @classmethod
    def from_json(cls, epoch: int, body: Mapping[str, Any]) -> BudgetPeriod:
        """Read the fields that `to_json` wrote for this epoch."""
        s, t, graph = map(int, body["shares_ppm"])
        period = cls(
            int(body["id"]), rule_from_json(body), str(body["share_key_id"]), (s, t, graph)
        )
        require(
            body["index"] == period.index(epoch),
            f"epoch {epoch} must be number {period.index(epoch)} of the period that began with "
            f"epoch {period.first_epoch}, got {body['index']!r}",
        )
        return period


def rule_from_json(body: Mapping[str, Any]) -> PeriodRule:
    """Read the rule from a larger JSON object; each field must have the rule's type."""
    kinds = {"int": int, "float": float}
    values = {f.name: kinds[str(f.type)](body[f.name]) for f in fields(PeriodRule)}
    return PeriodRule(**values)
