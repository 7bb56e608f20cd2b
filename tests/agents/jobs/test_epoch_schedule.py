"""The state machine: forward only, in order, to the end, whatever the clock and the workers do."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from blendstream.agents.jobs import epoch_schedule
from blendstream.agents.jobs.epoch_lifecycle import CHECKPOINT_EPOCHS, _checkpoint
from blendstream.agents.jobs.epoch_schedule import (
    next_estimates,
    next_head_list,
    next_keeper_move,
    reports_until_ms,
)
from blendstream.streams.budget.ledger import GROUPS, Cost, Limit
from blendstream.streams.releases import entries
from blendstream.streams.releases.entries import IncompleteReason
from blendstream.streams.releases.epoch_state import ReleaseLogState, Stage
from tests.agents.jobs.kept_epochs import START, keep
from tests.agents.jobs.model_log import PLENTY, WINDOW_MS, ModelLog, plan

ORDER = [
    Stage.COLLECTING, Stage.SEALED, Stage.REPORTING, Stage.REPORTS_SEALED, Stage.PUBLISHED,
]  # fmt: skip


ALL = [1_000_000, 1_000_000]


def test_the_first_epoch_opens_on_a_whole_window_and_the_next_one_ahead():
    """So that gateways know the next epoch before it begins."""
    log = ModelLog()
    keep(log, START + 7_000)

    first, second = log.log_state.epochs[0], log.log_state.epochs[1]
    assert first.parameters.window_start_ms == START
    assert second.parameters.window_start_ms == first.parameters.window_end_ms
    assert sorted(log.log_state.epochs) == [0, 1]


def test_the_rule_for_user_ids_changes_with_the_next_epoch_that_opens():
    """Epochs opened by code that knew no spaces of user ids say nothing of them, and must be read
    as before to their end: else a user would have two keys in one epoch."""
    log = ModelLog()
    move = next_keeper_move(log.log_state, plan(), PLENTY, START, epochs_ahead=1, origin_ms=0)
    assert isinstance(move, epoch_schedule.Open)
    entry = entries.epoch_opened(move.parameters)
    del entry["user_id_spaces"]
    log.commit(START, entry)

    keep(log, START)

    rules = [state.parameters.plan.user_id_spaces for state in log.reread().epochs.values()]
    assert rules == [False, True]


def test_records_are_sealed_after_window_grace_and_skew_and_not_before():
    """Earlier, a record appended in time by the broker's clock could miss the seal."""
    log = ModelLog()
    keep(log, START)
    due = START + WINDOW_MS + 5_000 + 1_000

    keep(log, due - 1)
    assert log.log_state.epochs[0].stage is Stage.COLLECTING
    keep(log, due)
    assert log.log_state.epochs[0].stage is Stage.SEALED


def test_reports_are_sealed_after_their_end_grace_and_skew_and_not_before():
    """Earlier, a report appended in time by the broker's clock could miss the seal."""
    log = ModelLog()
    keep(log, START)
    published = START + WINDOW_MS + 10_000
    keep(log, published)
    until = START + 2 * WINDOW_MS
    log.head_list(0, published, until)

    keep(log, until + 5_000 + 1_000 - 1)
    assert log.log_state.epochs[0].stage is Stage.REPORTING
    keep(log, until + 5_000 + 1_000)
    assert log.log_state.epochs[0].stage is Stage.REPORTS_SEALED


@pytest.mark.parametrize(
    ("after_window_ms", "windows"),
    [(0, 1), (WINDOW_MS // 2, 1), (WINDOW_MS // 2 + 1, 2), (WINDOW_MS, 2), (WINDOW_MS + 30_001, 3)],
)
def test_reports_run_to_the_end_of_a_window_of_which_half_remains(
    after_window_ms: int, windows: int
):
    """A reporting time shorter than half a window would leave most devices out."""
    log = ModelLog()
    keep(log, START)
    parameters = log.log_state.epochs[0].parameters
    end = parameters.window_end_ms

    assert reports_until_ms(parameters, end + after_window_ms) == end + windows * WINDOW_MS


def test_a_head_list_after_the_devices_forgot_the_window_is_not_reported_against():
    """No device could report; the epoch continues with the opt-in group and states the reason."""
    log = ModelLog()
    keep(log, START)
    parameters = log.log_state.epochs[0].parameters
    late = parameters.head_list_deadline_ms + 1
    keep(log, late)
    move = next_head_list(log.log_state, ALL, late)

    assert isinstance(move, epoch_schedule.BuildHeadList)
    assert move.reasons == (IncompleteReason.HEAD_LIST_TOO_LATE,)
    assert move.reports_until_ms == parameters.window_end_ms


def test_the_head_list_waits_for_every_partition_and_then_no_longer_than_its_deadline():
    """A worker that never comes back must not hold the epoch for ever."""
    log = ModelLog()
    keep(log, START)
    sealed_at = START + WINDOW_MS + 6_000
    keep(log, sealed_at)
    behind = [10, 9]

    waiting = next_head_list(log.log_state, behind, sealed_at)
    assert isinstance(waiting, epoch_schedule.Wait)
    assert "partitions 1" in waiting.why
    assert isinstance(
        next_head_list(log.log_state, [10, 10], sealed_at), epoch_schedule.BuildHeadList
    )
    assert waiting.until_ms is not None
    given_up = next_head_list(log.log_state, behind, waiting.until_ms)
    assert isinstance(given_up, epoch_schedule.BuildHeadList)
    assert IncompleteReason.NOT_ALL_COUNTED in given_up.reasons


def test_head_lists_are_built_in_order_because_each_knows_the_last():
    """Known keys of epoch 1 are the published records of epoch 0."""
    log = ModelLog()
    keep(log, START, ahead=3)
    keep(log, START + 4 * WINDOW_MS, ahead=3)
    assert [s.stage for _, s in sorted(log.log_state.epochs.items())][:3] == [Stage.SEALED] * 3

    for expected in (0, 1, 2):
        now = START + 4 * WINDOW_MS
        move = next_head_list(log.log_state, ALL, now)
        assert isinstance(move, epoch_schedule.BuildHeadList)
        assert move.epoch == expected
        log.head_list(move.epoch, now, move.reports_until_ms)


def test_a_gap_longer_than_epochs_were_open_ahead_is_passed_over_and_numbers_go_on():
    """Nothing was accepted in the gap; empty epochs would only be paid for."""
    log = ModelLog()
    keep(log, START)
    later = START + 10 * WINDOW_MS + 123
    keep(log, later)

    assert sorted(log.log_state.epochs) == [0, 1, 2, 3]
    assert log.log_state.epochs[2].parameters.window_start_ms == START + 10 * WINDOW_MS


def test_changed_settings_wait_for_the_next_epoch():
    """The parameters that devices and gateways have of an open epoch stay valid."""
    log = ModelLog()
    keep(log, START)
    opened = {n: s.parameters for n, s in log.log_state.epochs.items()}
    keep(log, START + WINDOW_MS, window_ms=2 * WINDOW_MS, cohorts=3)

    assert all(log.log_state.epochs[n].parameters == p for n, p in opened.items())
    changed = log.log_state.epochs[max(log.log_state.epochs)].parameters
    assert changed.plan.cohorts == 3
    assert changed.window_ms == 2 * WINDOW_MS
    assert changed.window_start_ms == opened[max(opened)].window_end_ms


def test_the_limit_pauses_the_service_says_until_when_and_it_resumes_by_itself():
    """Paused, nothing opens; the period after, numbering goes on."""
    limit = Limit(10 * WINDOW_MS // 1000, optin=Cost(8.0, 1e-4), clients=Cost(8.0, 1e-4))
    log = ModelLog()
    keep(log, START, limit)
    keep(log, START + WINDOW_MS, limit)
    notice = log.log_state.paused_at(START + 3 * WINDOW_MS)

    assert sorted(log.log_state.epochs) == [0, 1]
    assert notice is not None
    assert notice.resumes_at_ms == START + 10 * WINDOW_MS
    assert log.log_state.paused_at(START + WINDOW_MS) is None
    for minute in range(2, 9):
        keep(log, START + minute * WINDOW_MS, limit)
    assert sorted(log.log_state.epochs) == [0, 1]
    pauses = [r for r in log.records if b"service_paused" in r[3]]
    assert len(pauses) == 1
    keep(log, START + 10 * WINDOW_MS, limit)
    assert log.log_state.epochs[2].parameters.window_start_ms == START + 10 * WINDOW_MS
    assert log.log_state.paused_at(START + 10 * WINDOW_MS) is None


def test_a_pause_ends_where_the_next_epoch_begins_even_sooner_than_announced():
    """Somebody raised the limit: gateways must not go on refusing for a window that is open, also
    when a checkpoint repeats the notice after the opening."""
    limit = Limit(10 * WINDOW_MS // 1000, optin=Cost(8.0, 1e-4), clients=Cost(8.0, 1e-4))
    log = ModelLog()
    keep(log, START, limit)
    keep(log, START + WINDOW_MS, limit)
    now_ms = START + 4 * WINDOW_MS + 1
    announced = log.log_state.paused_at(now_ms)
    assert announced is not None

    keep(log, now_ms, PLENTY)
    assert log.log_state.epochs[2].parameters.window_start_ms == START + 4 * WINDOW_MS
    assert log.log_state.paused_at(now_ms) is None
    assert log.log_state.paused_at(START + 3 * WINDOW_MS) is not None
    log.commit(
        now_ms,
        entries.service_paused(
            announced.epoch, announced.from_ms, announced.resumes_at_ms, announced.reason
        ),
    )
    assert log.log_state.paused_at(now_ms) is None


def test_windows_keep_their_time_of_day_over_a_pause():
    """Daily windows that begin at five in the morning do not begin at midnight ever after."""
    limit = Limit(10 * WINDOW_MS // 1000, optin=Cost(8.0, 1e-4), clients=Cost(8.0, 1e-4))
    log, origin_ms = ModelLog(), 25_000
    for minute in range(12):
        now_ms = START + origin_ms + minute * WINDOW_MS
        keep(log, now_ms, limit, origin_ms=origin_ms)

    starts = [s.parameters.window_start_ms for s in log.log_state.epochs.values()]
    assert {start % WINDOW_MS for start in starts} == {origin_ms}
    assert starts[2] == START + 10 * WINDOW_MS + origin_ms, "the first window of the next period"


def test_an_abandoned_epoch_stays_abandoned_whatever_is_committed_after_it():
    """A job that was about to commit when the operator spoke must not bring it back."""
    log = ModelLog()
    keep(log, START)
    keep(log, START + WINDOW_MS + 6_000)
    log.commit(START + WINDOW_MS + 7_000, entries.epoch_abandoned(0, "test"))
    log.head_list(0, START + WINDOW_MS + 8_000, START + 2 * WINDOW_MS)

    state = log.log_state.epochs[0]
    assert state.stage is Stage.ABANDONED
    assert state.head_list is None


def test_the_first_release_wins_should_the_log_ever_hold_two():
    """All readers must agree on one, whatever happened."""
    log = ModelLog()
    keep(log, START)
    keep(log, START + WINDOW_MS + 6_000)
    log.head_list(0, START + WINDOW_MS + 7_000, START + 2 * WINDOW_MS)
    first = log.log_state.epochs[0].head_list
    log.head_list(0, START + WINDOW_MS + 8_000, START + 9 * WINDOW_MS)

    assert log.log_state.epochs[0].head_list == first


def test_a_checkpoint_repeats_what_was_removed_from_each_version_of_a_topic():
    """Hidden behind it, what went on purpose would pass for lost."""
    log = ModelLog()
    for window in range(CHECKPOINT_EPOCHS):
        keep(log, START + window * WINDOW_MS)
    log.commit(START, entries.log_trimmed("optin_records", 1, [5_000, 5_100]))
    log.commit(START, entries.log_trimmed("optin_records", 2, [7, 0]))

    reader = ModelLog()
    reader.commit(START, *_checkpoint(log.log_state))

    assert reader.log_state.trimmed == log.log_state.trimmed
    assert len(reader.log_state.trimmed) == 2


class ServiceForAYear(RuleBasedStateMachine):
    """Random time, random workers, random order of jobs, new readers at any moment.

    Not a failure: an epoch that waits while its deadline has not come; a pause; a gap in the
    windows after an outage; an incomplete publication.
    """

    def __init__(self) -> None:
        super().__init__()
        self.log = ModelLog()
        self.now = START
        self.limit = Limit(20 * WINDOW_MS // 1000, optin=Cost(40.0, 1e-3), clients=Cost(40.0, 1e-3))
        self.counted = [0, 0]
        self.ranks: dict[int, int] = {}
        self.changes: dict[str, object] = {}

    @rule(step=st.sampled_from([1, 500, 7_000, 30_000, WINDOW_MS, 3 * WINDOW_MS, 15 * WINDOW_MS]))
    def time_passes(self, step: int) -> None:
        self.now += step

    @rule()
    def keeper_runs(self) -> None:
        keep(self.log, self.now, self.limit, **self.changes)

    @rule(at=st.lists(st.integers(0, 2_000), min_size=2, max_size=2))
    def workers_are_at(self, at: list[int]) -> None:
        self.counted = at

    @rule(cohorts=st.integers(1, 3), windows=st.integers(1, 2))
    def settings_change(self, cohorts: int, windows: int) -> None:
        self.changes = {"cohorts": cohorts, "window_ms": windows * WINDOW_MS}

    @rule()
    def head_list_job_runs(self) -> None:
        move = next_head_list(self.log.log_state, self.counted, self.now)
        if isinstance(move, epoch_schedule.BuildHeadList):
            lower = [s for n, s in self.log.log_state.epochs.items() if n < move.epoch]
            assert all(s.head_list is not None or s.stage.over for s in lower)
            self.log.head_list(move.epoch, self.now, move.reports_until_ms)

    @rule()
    def estimate_job_runs(self) -> None:
        move = next_estimates(self.log.log_state, self.counted, self.now)
        if isinstance(move, epoch_schedule.BuildEstimates):
            self.log.estimates(move.epoch, self.now, move.reasons)

    @precondition(lambda self: self.log.log_state.unfinished())
    @rule(data=st.data())
    def operator_abandons(self, data: st.DataObject) -> None:
        chosen = data.draw(st.sampled_from([s.epoch for s in self.log.log_state.unfinished()]))
        self.log.commit(self.now, entries.epoch_abandoned(chosen, "drill"))

    @rule()
    def keeper_writes_a_checkpoint_and_a_reader_starts_there(self) -> None:
        before = self.log.log_state
        start = before.checkpoint_offset()
        self.log.commit(self.now, entries.checkpoint(before.ledger, start))
        fresh = ReleaseLogState(before.ledger, start)
        for record in self.log.records[start:]:
            fresh.apply(*record)
        assert fresh.epochs == before.epochs
        assert fresh.ledger == before.ledger

    @invariant()
    def states_only_move_forward(self) -> None:
        for number, state in self.log.log_state.epochs.items():
            rank = len(ORDER) if state.stage is Stage.ABANDONED else ORDER.index(state.stage)
            assert rank >= self.ranks.get(number, 0)
            self.ranks[number] = rank

    @invariant()
    def windows_do_not_overlap_and_numbers_have_no_gap(self) -> None:
        states = [s for _, s in sorted(self.log.log_state.epochs.items())]
        for one, two in itertools.pairwise(states):
            assert one.parameters.window_end_ms <= two.parameters.window_start_ms
        assert all(
            n <= (self.log.log_state.ledger.last_epoch or 0) for n in self.log.log_state.epochs
        )

    @invariant()
    def no_period_is_overspent(self) -> None:
        for start, end in self.log.log_state.ledger.periods:
            for group in GROUPS:
                spent = self.log.log_state.ledger.spent(group, start, end, delta=1e-3)
                assert spent.epsilon <= 40.0 + 1e-6

    def teardown(self) -> None:
        """With time alone, and workers that never move again, every open epoch ends."""
        assert self.log.reread().epochs.keys() >= self.log.log_state.epochs.keys()
        open_now = [s.epoch for s in self.log.log_state.unfinished()]
        for _ in range(20 + 4 * len(open_now)):
            self.now += WINDOW_MS
            self.keeper_runs()
            for _ in range(3):
                self.head_list_job_runs()
                self.estimate_job_runs()
        stages = {
            n: self.log.log_state.epochs[n].stage
            for n in open_now
            if n in self.log.log_state.epochs
        }
        assert all(stage.over for stage in stages.values()), stages


TestServiceForAYear = pytest.mark.long(ServiceForAYear.TestCase)
TestServiceForAYear.settings = settings(
    max_examples=30, stateful_step_count=40, deadline=None, derandomize=True, database=None
)


@given(st.integers(0, 40), st.integers(0, 3 * WINDOW_MS))
def test_reports_end_never_before_half_a_window_from_now(windows: int, more: int):
    """Unless the list is too late for anyone to answer."""
    log = ModelLog()
    keep(log, START)
    parameters = log.log_state.epochs[0].parameters
    now = parameters.window_end_ms + windows * WINDOW_MS // 4 + more
    until = reports_until_ms(parameters, now)

    if now <= parameters.head_list_deadline_ms:
        assert WINDOW_MS <= 2 * (until - now) < 3 * WINDOW_MS
        assert (until - parameters.window_end_ms) % WINDOW_MS == 0
    else:
        assert until == parameters.window_end_ms
