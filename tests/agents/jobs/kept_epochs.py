"""A keeper that opens and ends epochs in a model of the log."""

from __future__ import annotations

from blendstream.agents.jobs import epoch_schedule
from blendstream.agents.jobs.epoch_schedule import (
    next_keeper_move,
)
from blendstream.streams.budget.ledger import Cost, Limit
from blendstream.streams.releases import entries
from tests.agents.jobs.model_log import PLENTY, WINDOW_MS, ModelLog, plan

START = 1_000 * WINDOW_MS


def keep(
    log: ModelLog,
    now_ms: int,
    limit: Limit = PLENTY,
    ahead: int = 1,
    origin_ms: int = 0,
    **changes: object,
):
    """Let the keeper do everything that is due; return its next wait."""
    while True:
        move = next_keeper_move(
            log.log_state, plan(**changes), limit, now_ms, epochs_ahead=ahead, origin_ms=origin_ms
        )
        if isinstance(move, epoch_schedule.Open):
            log.commit(now_ms, entries.epoch_opened(move.parameters))
        elif isinstance(move, epoch_schedule.SealRecords):
            log.commit(now_ms, entries.records_sealed(move.epoch, [10 * move.epoch + 10] * 2))
        elif isinstance(move, epoch_schedule.SealReports):
            log.commit(now_ms, entries.reports_sealed(move.epoch, [10 * move.epoch + 10] * 2))
        elif isinstance(move, epoch_schedule.Pause):
            log.commit(
                now_ms,
                entries.service_paused(move.epoch, move.from_ms, move.resumes_at_ms, move.reason),
            )
        else:
            return move


T = 3
IN_PERIODS = {"period_epochs": T, "known_records": 1000, "optin_cohorts": 1, "cohorts": T}
#: One budget of (4, 1e-5) in ten windows.
ONE_BUDGET = Limit(600, optin=Cost(4.0, 1e-5), clients=Cost(100.0, 0.1))
