"""Every entry is counted, or refused for exactly one reason; a replay decides alike."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from blendstream.agents.worker.entry_checks import (
    MAX_DEAD_LETTERS,
    judge_reports,
    unknown_to,
)
from blendstream.streams.names import InputStream, OptinSubgroup
from blendstream.streams.releases import entries
from blendstream.streams.releases.epoch_state import ReleaseLogState
from blendstream.streams.tables.batch_verdict import BatchVerdict, Delivery, Refusal
from blendstream.streams.wire.frames import (
    FrameKind,
    encode_marker,
)
from tests.agents.worker.judged_entries import (
    END,
    GRACE,
    KEYS,
    SKEW,
    START,
    UNTIL,
    delivered,
    judged_records,
    opened,
    person,
    published,
    records,
    reports,
    tables,
)
from tests.release_entries import estimates_entry, fold, log_state_of
from tests.report_frames import encode_reports


def judged_reports(*deliveries: Delivery, log_state: ReleaseLogState | None = None) -> BatchVerdict:
    log_state = log_state or log_state_of(opened(1), published(1))
    return judge_reports(0, deliveries, log_state, KEYS, tables())


# --- reports --------------------------------------------------------------------------------------


def test_legal_reports_are_counted_by_cell() -> None:
    verdict = judged_reports(delivered(reports([[0, 1, 0, 9], [2, 3, 0, 1]])))
    tally = verdict.epochs[1]
    assert (tally.received, tally.counted, dict(tally.refused)) == (2, 2, {})
    assert tally.cells is not None
    assert tally.cells.tolist() == [3, 2, 1, 1, 0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize("row", [[1, 0, 0, 1], [1, 1, 0, 1], [0, 1, 0, 10], [0, 1, 2, 2]])
def test_cells_out_of_order_repeated_or_beyond_the_list_are_malformed(row: list[int]) -> None:
    """The order of cells must carry nothing, and no answer may weigh twice."""
    verdict = judged_reports(delivered(reports([[0, 1, 0, 1], row])))
    assert verdict.epochs[1].refused == {Refusal.MALFORMED: 1}
    assert verdict.epochs[1].counted == 1
    assert [(x.offset, x.entry, x.reason) for x in verdict.letters] == [(0, 1, Refusal.MALFORMED)]


def test_the_wildcard_with_records_of_ones_own_choice_is_malformed_where_it_stands_alone() -> None:
    """They would be taken off the first records, which such an answer does not name."""
    rows = [[0, 9, 0, 9], [3, 9, 0, 9], [0, 9, 4, 9], [0, 1, 7, 8]]

    alone = judged_reports(
        delivered(reports(rows)),
        log_state=log_state_of(opened(1), published(1, wildcard_alone=True)),
    ).epochs[1]
    free = judged_reports(delivered(reports(rows))).epochs[1]

    assert (alone.received, alone.refused) == (4, Counter({Refusal.MALFORMED: 2}))
    assert alone.cells is not None
    assert alone.cells.tolist() == [3, 1, 0, 0, 0, 0, 0, 1, 1, 2]
    assert free.counted == 4


def test_a_malformed_report_does_not_use_its_contributor_up() -> None:
    verdict = judged_reports(delivered(reports([[1, 0, 0, 1], [0, 1, 0, 1]], people=[7, 7])))
    assert verdict.epochs[1].counted == 1


def test_the_first_report_of_a_contributor_counts_the_others_are_duplicates() -> None:
    frames = [
        delivered(reports([[0, 1, 0, 1]], people=[5])),
        delivered(reports([[8, 9, 8, 9], [2, 3, 2, 3]], people=[5, 6]), offset=1),
    ]
    tally = judged_reports(*frames).epochs[1]
    assert tally.refused == {Refusal.DUPLICATE: 1}
    assert tally.cells is not None
    assert tally.cells[[0, 1, 8, 9]].tolist() == [2, 2, 0, 0]


@pytest.mark.parametrize(
    ("at", "offset", "reason"),
    [
        (UNTIL + GRACE - 1, 4, None),
        (UNTIL + GRACE, 4, Refusal.LATE),
        (START, 5, Refusal.BEYOND_SEAL),  # At the seal's bound: accepted, and yet not counted.
        (UNTIL + GRACE, 5, Refusal.LATE),
    ],
)
def test_reports_are_late_by_append_time_and_beyond_the_seal(
    at: int, offset: int, reason: Refusal | None
) -> None:
    log_state = log_state_of(opened(1), published(1))
    fold(log_state, entries.reports_sealed(1, [5, 9, 9, 9]))
    found = judged_reports(
        delivered(reports([[0, 1, 0, 1]]), at=at, offset=offset), log_state=log_state
    )
    assert found.epochs[1].refused == ({reason: 1} if reason else {})


def test_wrong_epoch_unknown_list_and_wrong_size_are_told_apart() -> None:
    wrong = delivered(reports([[0, 1, 0, 1]], epoch=2))
    stranger = delivered(encode_reports(1, bytes(32), [person(1)], np.zeros((1, 4), int), 1))
    short = delivered(reports([[0, 1], [0, 1]]))
    records_in_reports = delivered(records((1, 0, b"q", b"u")))
    noise = delivered(b"noise")
    verdict = judged_reports(wrong, stranger, short, records_in_reports, noise)
    assert verdict.epochs[None].refused == {
        Refusal.WRONG_EPOCH: 1, Refusal.UNKNOWN_HEAD_LIST: 1, Refusal.MALFORMED: 2
    }  # fmt: skip
    assert verdict.epochs[1].refused == {Refusal.MALFORMED: 2}
    assert verdict.summary() == Counter(received=6, counted=0, refused=6)


def test_reports_of_a_released_epoch_are_late_and_keep_totals_only() -> None:
    log_state = log_state_of(opened(1), published(1), estimates_entry(1))
    stranger = delivered(encode_reports(1, bytes(32), [person(1)], np.zeros((1, 4), int), 1))
    verdict = judged_reports(delivered(reports([[0, 1, 0, 1]] * 3)), stranger, log_state=log_state)
    assert verdict.late == 4, (
        "whatever the head list: the log state has forgotten those of the past"
    )
    assert not verdict.epochs
    assert not unknown_to(log_state, [stranger]), "nothing to look up"


# --- opt-in records -------------------------------------------------------------------------------


def test_shares_are_disjoint_and_as_large_as_stated() -> None:
    """χ² with 2 degrees of freedom; 28 is passed once in a million seeds, this one is fixed."""
    n = 20_000
    entries = [(i, 0, b"q", b"u") for i in range(n)]
    frames = [delivered(records(*entries[i : i + 2000]), offset=i) for i in range(0, n, 2000)]
    tally = judged_records(*frames).epochs[1]
    found = {share: sum(counts.values()) for share, counts in tally.records.items()}
    assert sum(found.values()) == n
    wanted = {OptinSubgroup.S: 0.6 * n, OptinSubgroup.T: 0.3 * n, OptinSubgroup.GRAPH: 0.1 * n}
    assert sum((found[s] - wanted[s]) ** 2 / wanted[s] for s in OptinSubgroup) < 28


@pytest.mark.parametrize(
    ("at", "offset", "reason"),
    [
        (START - SKEW, 0, None),
        (START - SKEW - 1, 0, Refusal.EARLY),
        (END + GRACE - 1, 0, None),
        (END + GRACE, 0, Refusal.LATE),
        (START, 4, None),
        (START, 5, Refusal.BEYOND_SEAL),
        (END + GRACE, 5, Refusal.LATE),
    ],
)
def test_records_are_early_and_late_by_append_time(
    at: int, offset: int, reason: Refusal | None
) -> None:
    log_state = log_state_of(opened(1), entries.records_sealed(1, [5]))
    frame = delivered(records((1, 0, b"q", b"u")), at=at, offset=offset)
    verdict = judged_records(frame, log_state=log_state)
    assert verdict.epochs[1].refused == ({reason: 1} if reason else {})
    # An accepted entry that is not counted is a fault of the service: where it lies is kept.
    letters = [(letter.offset, letter.reason) for letter in verdict.letters]
    assert letters == ([(offset, reason)] if reason is Refusal.BEYOND_SEAL else [])


def test_somebody_without_a_record_takes_part_and_adds_to_none() -> None:
    """Otherwise the number of participants would reveal how many people had nothing to send."""
    shares = {who: share for share in OptinSubgroup for who in [_in_share(share, 1)]}
    frame = records(*((who, 0, b"", b"") for who in shares))
    tally = judged_records(delivered(frame)).epochs[1]
    assert (tally.received, tally.counted, tally.none) == (3, 3, 3)
    assert tally.users == dict.fromkeys(OptinSubgroup, 1)
    assert tally.records == {}
    assert sum(map(len, tally.fingerprints)) == 3


def test_none_is_an_answer_in_slot_0_and_the_first_answer_counts() -> None:
    who = _in_share(OptinSubgroup.S, 2)
    log_state = log_state_of(opened(2, records_per_user=2))
    frame = records(
        (who, 0, b"", b""),
        (who, 0, b"a", b"u"),  # Slot 0 has been answered.
        (who, 1, b"", b""),  # Only slot 0 can say it.
        (who, 1, b"b", b"u"),
        epoch=2,
    )
    tally = judged_records(delivered(frame), log_state=log_state).epochs[2]
    assert tally.refused == {Refusal.DUPLICATE: 1, Refusal.MALFORMED: 1}
    assert (tally.none, tally.users) == (
        1,
        {OptinSubgroup.S: 1, OptinSubgroup.T: 0, OptinSubgroup.GRAPH: 0},
    )
    assert tally.records == {OptinSubgroup.S: Counter({b"b\tu": 1})}


@pytest.mark.parametrize("kind", [FrameKind.OPTIN_RECORDS, FrameKind.CLIENT_REPORTS])
def test_a_marker_is_counted_as_nothing(kind: FrameKind) -> None:
    """Keepers may write any number of them and die: received = counted + refused stays true."""
    log_state = log_state_of(opened(1), published(1))
    markers = [delivered(encode_marker(kind, epoch, bytes(16)), at=UNTIL * 2) for epoch in (1, 7)]
    for verdict in (
        judged_records(*markers, log_state=log_state),
        judged_reports(*markers, log_state=log_state),
    ):
        assert not verdict.epochs
        assert not verdict.letters
        assert verdict.summary() == Counter(received=0, counted=0, refused=0)
    assert not unknown_to(log_state, markers), "an epoch that a marker names need not be known"


def test_text_that_no_gateway_writes_is_refused_and_quoted_nowhere() -> None:
    secret = b"my secret query"
    frame = records(
        (1, 0, secret * 20, b"u"), (2, 0, b"", b"u"), (3, 0, b"\xff", b"u"), (4, 0, b"a\tb", b"u"),
        (5, 0, "\x85".encode(), b"u"), (6, 0, b"q", b"u" * 1025), (7, 0, b"q", b"u"),
    )  # fmt: skip
    verdict = judged_records(delivered(frame))
    tally = verdict.epochs[1]
    assert tally.refused == {Refusal.TOO_LONG: 2, Refusal.MALFORMED: 4}
    assert tally.counted == 1
    assert "secret" not in repr(verdict.letters)
    assert {(x.entry, x.lengths) for x in verdict.letters if x.reason is Refusal.TOO_LONG} == {
        (0, (300, 1)), (5, (1, 1025))
    }  # fmt: skip


def _in_share(share: OptinSubgroup, epoch: int) -> int:
    """Somebody who falls into a share."""
    for who in range(1000):
        tally = judged_records(
            delivered(records((who, 0, b"q", b"u"), epoch=epoch)),
            log_state=log_state_of(opened(epoch)),
        ).epochs[epoch]
        if share in tally.records:
            return who
    raise AssertionError


def test_a_user_counts_at_most_m_distinct_records() -> None:
    """The limit is the guarantee: with m_O = 2, two records, and none of them twice."""
    who = _in_share(OptinSubgroup.S, 2)
    log_state = log_state_of(opened(2, records_per_user=2))
    frame = records(
        (who, 1, b"a", b"u"),
        (who, 0, b"a", b"u"),  # The same record in another slot.
        (who, 0, b"b", b"u"),  # A slot that was used, if only by a repetition.
        (who, 1, b"a", b"u"),  # A retry.
        (who, 2, b"c", b"u"),  # Over the limit.
        epoch=2,
    )
    tally = judged_records(delivered(frame), log_state=log_state).epochs[2]
    assert tally.refused == {Refusal.REPEATED: 1, Refusal.DUPLICATE: 2, Refusal.OVER_LIMIT: 1}
    assert tally.records == {OptinSubgroup.S: Counter({b"a\tu": 1})}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_t_counts_slot_zero_whatever_comes_first(order: tuple[int, int]) -> None:
    """One record a user, the same one however the network ordered them."""
    who = _in_share(OptinSubgroup.T, 3)
    log_state = log_state_of(opened(3, records_per_user=2))
    frame = records(*((who, slot, b"slot %d" % slot, b"u") for slot in order), epoch=3)
    tally = judged_records(delivered(frame), log_state=log_state).epochs[3]
    assert tally.records == {OptinSubgroup.T: Counter({b"slot 0\tu": 1})}
    assert tally.refused == {Refusal.SPARE: 1}


def test_an_epoch_never_opened_is_wrong_and_one_before_the_log_is_late() -> None:
    log_state = log_state_of(opened(3))
    future = delivered(records((1, 0, b"q", b"u"), epoch=4))
    past = delivered(records((1, 0, b"q", b"u"), epoch=2))
    verdict = judged_records(future, past, log_state=log_state)
    assert verdict.epochs[None].refused == {Refusal.WRONG_EPOCH: 1}
    assert verdict.late == 1
    assert unknown_to(log_state, [future])
    assert not unknown_to(log_state, [past])


def test_records_of_a_released_epoch_are_late() -> None:
    log_state = log_state_of(opened(1), published(1))
    assert judged_records(delivered(records((1, 0, b"q", b"u"))), log_state=log_state).late == 1


def test_letters_are_few_however_many_entries_are_refused() -> None:
    frames = [delivered(b"x", offset=i) for i in range(1000)]
    assert len(judged_reports(*frames).letters) == MAX_DEAD_LETTERS


def test_every_reason_can_happen() -> None:
    """A reason that no test produces would be a label that means nothing."""
    assert set(InputStream) == {"optin_records", "client_reports"}
    assert len(Refusal) == 11
