"""A log with charged epochs for the verbs that show budgets."""

from __future__ import annotations

from blendstream.agents.jobs.job_context import limit_from
from blendstream.streams.budget.epoch_plan import plan_from
from blendstream.streams.settings import Settings
from tests.agents.jobs.kept_epochs import keep
from tests.agents.jobs.model_log import ModelLog

PERIOD_MS = 86_400_000
START = 20_000 * PERIOD_MS


def kept(settings: Settings, now_ms: int, log: ModelLog) -> ModelLog:
    """The log after the keeper did all that is due."""
    plan = plan_from(settings)
    changes = {name: getattr(plan, name) for name in plan.__slots__}
    keep(log, now_ms, limit_from(settings), **changes)
    return log
