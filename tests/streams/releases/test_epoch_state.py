"""The release log's entries fold into what every process must know of epochs."""

from __future__ import annotations

from typing import Any

import pytest

from blendstream.streams.errors import StoreMismatch
from blendstream.streams.names import InputStream, OptinSubgroup
from blendstream.streams.releases import entries
from blendstream.streams.releases.entries import Entry
from blendstream.streams.releases.epoch_state import KEPT_EPOCHS, ReleaseLogState, Stage
from tests.agents.worker.judged_entries import (
    END,
    GRACE,
    HEAD_LIST,
    START,
    UNTIL,
    opened,
    published,
)
from tests.release_entries import estimates_entry, fold, log_state_of

OPTIN, REPORTS = InputStream.OPTIN_RECORDS, InputStream.CLIENT_REPORTS
OTHER_LIST = bytes([255]) * 32


def test_states_move_forward_and_folding_again_changes_nothing() -> None:
    log: list[Entry | list[Entry]] = [
        opened(1), opened(2), entries.records_sealed(1, [3, 4]), published(1),
        entries.reports_sealed(1, [8, 9]), entries.epoch_abandoned(2, "x"),
        opened(3), entries.log_trimmed("optin_records", 1, [3, 4]),
    ]  # fmt: skip
    for log_state in (log_state_of(*log), log_state_of(*log, *log)):
        first = log_state.epochs[1]
        assert (first.released(OPTIN), first.released(REPORTS)) == (True, False)
        assert first.beyond_seal(OPTIN, 0, 3)
        assert not first.beyond_seal(OPTIN, 1, 3)
        assert first.beyond_seal(REPORTS, 2, 0)  # A partition that the seal does not know.
        assert [e.epoch for e in log_state.unreleased(OPTIN)] == [3]
        assert [e.epoch for e in log_state.unreleased(REPORTS)] == [1, 3]
        assert log_state.released_through(OPTIN) == 2
        assert log_state.released_through(REPORTS) == 0
        asked = ((OPTIN, 1), (REPORTS, 1), (OPTIN, 9))
        assert [log_state.trimmed_below(stem, 1, p) for stem, p in asked] == [4, 0, 0]
        reported_on = log_state.reported_on(HEAD_LIST)
        assert reported_on is first
        assert first.head_list is not None
        assert first.head_list.cells_per_report == 4


def test_entries_are_judged_by_the_times_and_shares_that_were_committed() -> None:
    """Settings, or the rule by which shares are made of them, may have changed since."""
    shares = {"S": 1, "T": 899_999, "graph": 100_000}
    state = log_state_of(opened(1) | {"shares_ppm": shares}).epochs[1]
    assert state.shares_ppm == {OptinSubgroup(name): ppm for name, ppm in shares.items()}
    assert (state.early_before_ms(OPTIN), state.early_before_ms(REPORTS)) == (START - 500, 0)
    assert (state.late_from_ms(OPTIN), state.late_from_ms(REPORTS)) == (END + GRACE, None)
    state = log_state_of(opened(1), published(1)).epochs[1]
    assert state.late_from_ms(REPORTS) == UNTIL + GRACE


def test_reports_on_a_list_are_looked_up_until_its_epoch_and_all_before_it_are_over() -> None:
    """From then on its number alone decides, also in a state that never read its entries."""
    log: list[Entry | list[Entry]] = [
        opened(1), opened(2), published(2), estimates_entry(2), published(1, OTHER_LIST),
    ]  # fmt: skip
    log_state = log_state_of(*log)
    assert log_state.reported_on(HEAD_LIST) is log_state.epochs[2]
    assert (log_state.released_through(OPTIN), log_state.released_through(REPORTS)) == (2, 0)
    log.append(estimates_entry(1))
    for log_state in (log_state_of(*log), log_state_of(*log, *log)):
        assert log_state.reported_on(HEAD_LIST) is log_state.reported_on(OTHER_LIST) is None
        for stem in InputStream:
            assert log_state.unreleased(stem) == []
            assert log_state.released_through(stem) == 2
            assert [log_state.is_past(n, stem) for n in (0, 1, 2, 3)] == [True, True, True, False]


def test_the_log_state_stays_small_however_long_the_log() -> None:
    """Each run of messages iterates over every epoch in memory: 9 000 epochs took 3.4 ms."""
    log_state, longest = ReleaseLogState(), 0
    for number in range(500):
        fold(log_state, opened(number), published(number, number.to_bytes(32, "big")))
        if number >= 2:
            fold(log_state, estimates_entry(number - 2))
        longest = max(longest, len(log_state.epochs))
    assert longest <= KEPT_EPOCHS + 4
    assert [e.epoch for e in log_state.unreleased(REPORTS)] == [498, 499]
    assert log_state.released_through(REPORTS) == 497
    assert len(log_state._epoch_of_list) == 2
    fold(log_state, opened(3))
    assert 3 not in log_state.epochs, "an epoch that is over and forgotten does not open again"


def test_a_copy_does_not_change_with_the_log_state() -> None:
    """Validation uses a copy while the reader continues to fold the log."""
    log_state = log_state_of(opened(1))
    copied = log_state.copy()
    fold(log_state, opened(2), published(2), entries.epoch_abandoned(1, "x"))
    fold(
        log_state,
        entries.log_trimmed("optin_records", 1, [3]),
        entries.fence("id", entries.Kind.KEEPER),
    )
    assert [e.epoch for e in copied.unreleased(OPTIN)] == [1]
    assert (copied.released_through(OPTIN), copied.trimmed_below(OPTIN, 1, 0)) == (0, 0)
    assert (copied.reported_on(HEAD_LIST), list(copied.fence_ids), copied.read_upto) == (
        None,
        [],
        1,
    )
    for same in (log_state, log_state.copy()):
        assert [e.epoch for e in same.unreleased(REPORTS)] == [2]
        assert (same.released_through(REPORTS), same.trimmed_below(OPTIN, 1, 0)) == (1, 3)
        assert same.reported_on(HEAD_LIST) is log_state.epochs[2]
        assert list(same.fence_ids) == ["id"]


def test_what_was_removed_from_one_version_of_a_topic_says_nothing_of_another() -> None:
    """Offsets start at 0 again: losses of the new topic would look like removals on purpose."""
    old = {"entry": "log_trimmed", "topic": "optin_records", "bounds": [5_000]}
    new = old | {"topic_version": 2, "bounds": [7]}
    log_state = log_state_of(old)
    assert [log_state.trimmed_below(OPTIN, version, 0) for version in (1, 2)] == [5_000, 0]
    log_state = log_state_of(old, new, old)  # A checkpoint repeats both.
    assert [log_state.trimmed_below(OPTIN, version, 0) for version in (1, 2)] == [5_000, 7]


def test_a_second_head_list_or_seal_of_an_epoch_is_not_taken() -> None:
    """Devices and workers have seen the entry that was committed first."""
    log_state = log_state_of(
        opened(1), entries.records_sealed(1, [3]), published(1, bounds=[9]),
        published(1, OTHER_LIST, cells=99),
    )  # fmt: skip
    assert log_state.reported_on(OTHER_LIST) is None
    state = log_state.epochs[1]
    assert state.head_list is not None
    assert state.head_list.cells == 10
    assert state.records_sealed is not None
    assert state.records_sealed.bounds == (3,)
    assert log_state.recorded_twice == 1


def test_what_comes_after_an_epoch_was_abandoned_changes_nothing() -> None:
    """A job may commit what it drew before it learnt of it."""
    log_state = log_state_of(opened(1), opened(2), entries.epoch_abandoned(2, "x"), published(2))
    assert log_state.epochs[2].stage is Stage.ABANDONED
    assert log_state.epochs[2].head_list is None
    assert log_state.reported_on(HEAD_LIST) is None


def test_other_messages_are_passed_over() -> None:
    log_state = log_state_of({"entry": "ledger_charged"})
    for key, value in ((b"document", b"\x00\x01"), (None, None), (entries.ENTRY_KEY, None)):
        log_state.apply(log_state.read_upto, 7, key, value)
    assert log_state.unreleased(OPTIN) == []
    assert log_state.released_through(OPTIN) == -1
    assert (log_state.read_upto, log_state.last_ms) == (4, 7), "read all the same"


def without(entry: Entry, name: str) -> Entry:
    return {key: value for key, value in entry.items() if key != name}


def changed(epoch: int, **changes: Any) -> list[Entry]:
    """A head list that is not as a job writes it."""
    sealed, released = published(epoch)
    return [sealed, released | changes]


DAMAGED: list[Any] = [
    opened(1) | {"epoch": -1}, opened(1) | {"epoch": True}, opened(1) | {"epoch": "1"},
    without(opened(1), "window_end_ms"), without(opened(1), "charge"),
    opened(1) | {"privacy": opened(1)["privacy"] | {"records_per_optin_user": 0}},
    opened(1) | {"shares_ppm": {"S": 1, "graph": 0}},
    opened(1) | {"shares_ppm": {"X": 1_000_000, "graph": 0}},
    [opened(1), *changed(1, cells=0)], [opened(1), *changed(1, answers="2")],
    [opened(1), *changed(1, documents=[])],
    [opened(1), entries.records_sealed(1, [-1])],
    [opened(1), {"entry": "records_sealed", "epoch": 1, "bounds": "12"}],
    {"entry": "log_trimmed", "topic": "x", "bounds": []},
]  # fmt: skip


@pytest.mark.parametrize("damaged", DAMAGED)
def test_an_entry_that_we_cannot_have_written_is_an_error_each_time(damaged: Any) -> None:
    """The log is ours: guessing what a damaged entry meant could count what was released, and
    going on behind it could draw again what it released."""
    log_state = log_state_of(opened(0))
    for _ in range(2):
        with pytest.raises(StoreMismatch, match="entry at offset 1 must be one that this release"):
            fold(log_state, damaged)
        assert log_state.read_upto == 1


@pytest.mark.parametrize("value", [b"{", b"[]", b"7"])
def test_a_record_that_is_no_entry_is_an_error_each_time(value: bytes) -> None:
    log_state = ReleaseLogState()
    for _ in range(2):
        with pytest.raises(StoreMismatch, match="must be a JSON array of objects"):
            log_state.apply(0, 1, entries.ENTRY_KEY, value)
