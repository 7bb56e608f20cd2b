"""However the log is cut into batches, every entry meets the same fate."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from blendstream.agents.worker.entry_checks import judge_optin_records, judge_reports
from blendstream.streams.names import OptinSubgroup
from blendstream.streams.releases.epoch_state import ReleaseLogState
from blendstream.streams.tables.batch_verdict import BatchVerdict, Delivery
from blendstream.streams.tables.fingerprints import FingerprintTable
from blendstream.streams.wire.frames import FrameKind, encode_marker
from tests.agents.worker.judged_entries import (
    KEYS,
    START,
    delivered,
    opened,
    published,
    records,
    reports,
)
from tests.release_entries import log_state_of

Judge = Callable[..., BatchVerdict]


def totals(
    judge: Judge, log: list[Delivery], cuts: list[int], log_state: ReleaseLogState
) -> Counter[object]:
    """Everything a log adds up to when it is judged batch by batch."""
    seen: dict[int, FingerprintTable] = defaultdict(FingerprintTable)
    found: Counter[object] = Counter()
    for start, end in zip([0, *cuts], [*cuts, len(log)], strict=True):
        verdict = judge(0, log[start:end], log_state, KEYS, seen)
        found["late"] += verdict.late
        for epoch, tally in verdict.epochs.items():
            assert tally.received == tally.counted + tally.refused.total()
            found[epoch, "received"] += tally.received
            for reason, n in tally.refused.items():
                found[epoch, reason] += n
            for share, counts in tally.records.items():
                for text, n in counts.items():
                    found[epoch, share, text] += n
            if tally.cells is not None:
                for cell, n in enumerate(tally.cells.tolist()):
                    found[epoch, "cell", cell] += n
            found[epoch, "fingerprints"] += sum(map(len, tally.fingerprints))
            found[epoch, "none"] += tally.none
            for share, n in tally.users.items():
                found[epoch, "users", share] += n
    return +found


texts = st.sampled_from([(b"a", b"u"), (b"b", b"u"), (b"\xff", b"u"), (b"", b"")])
entry = st.builds(
    lambda who, slot, text: (who, slot, *text), st.integers(0, 6), st.integers(0, 3), texts
)
optin_logs = st.lists(
    st.tuples(st.integers(1, 3), st.lists(entry, min_size=1, max_size=6)), max_size=8
)


def with_markers(data: st.DataObject, log: list[Delivery]) -> list[Delivery]:
    """The same log with markers anywhere in it."""
    marker = delivered(encode_marker(FrameKind.OPTIN_RECORDS, 1, bytes(16)))
    found = list(log)
    for at in data.draw(st.lists(st.integers(0, len(log)), max_size=4)):
        found.insert(at, marker)
    return found


def cuts_of(data: st.DataObject, size: int) -> list[int]:
    return sorted(data.draw(st.sets(st.integers(0, size))))


@given(frames=optin_logs, data=st.data())
def test_opt_in_records(frames: list[tuple[int, list[tuple[int, int, bytes, bytes]]]],
                        data: st.DataObject) -> None:  # fmt: skip
    log_state = log_state_of(opened(1), opened(2, records_per_user=3))
    log = [
        delivered(records(*entries, epoch=epoch), offset=i)
        for i, (epoch, entries) in enumerate(frames)
    ]
    whole = totals(judge_optin_records, log, [], log_state)
    assert totals(judge_optin_records, with_markers(data, log), [], log_state) == whole
    assert totals(judge_optin_records, log, cuts_of(data, len(log)), log_state) == whole
    assert sum(n for key, n in whole.items() if key[-1] == "received") == sum(  # type: ignore[index]
        len(entries) for _, entries in frames
    )


@given(frames=optin_logs)
def test_no_user_moves_a_record_by_more_than_one_or_counts_more_than_m(
    frames: list[tuple[int, list[tuple[int, int, bytes, bytes]]]],
) -> None:
    """What the noise of the head list relies on, whatever a user sends."""
    log_state = log_state_of(opened(2, records_per_user=3))
    for who in range(7):
        seen: dict[int, FingerprintTable] = defaultdict(FingerprintTable)
        log = [
            delivered(records(*mine, epoch=2), offset=i)
            for i, (_, entries) in enumerate(frames)
            if (mine := [e for e in entries if e[0] == who])
        ]
        counted: Counter[tuple[OptinSubgroup, bytes]] = Counter()
        verdict = judge_optin_records(0, log, log_state, KEYS, seen)
        for tally in verdict.epochs.values():
            for share, counts in tally.records.items():
                for text, n in counts.items():
                    counted[share, text] += n
        assert counted.total() <= 3
        assert max(counted.values(), default=0) <= 1
        assert sum(n for (share, _), n in counted.items() if share is OptinSubgroup.T) <= 1


@given(frames=optin_logs, data=st.data())
def test_the_number_of_users_does_not_depend_on_what_they_hold(
    frames: list[tuple[int, list[tuple[int, int, bytes, bytes]]]], data: st.DataObject
) -> None:
    """It is published as it is: the same people with other records, or with none, are as many."""
    log_state = log_state_of(opened(1), opened(2, records_per_user=3))
    some = st.sampled_from([(b"a", b"u"), (b"b", b"u")])
    some_or_none = some | st.just((b"", b""))

    def users() -> list[tuple[int, dict[OptinSubgroup, int]]]:
        log = [
            delivered(
                records(
                    *(
                        (who, slot, *data.draw(some if slot else some_or_none))
                        for who, slot, *_ in entries
                    ),
                    epoch=epoch,
                )
            )
            for epoch, entries in frames
        ]
        verdict = judge_optin_records(0, log, log_state, KEYS, defaultdict(FingerprintTable))
        return [(epoch, dict(t.users)) for epoch, t in verdict.epochs.items() if epoch is not None]

    assert users() == users()


@given(seed=st.integers(0, 2**32), data=st.data())
def test_client_reports(seed: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(seed)
    log_state = log_state_of(opened(1), published(1, cells=12))
    log = [
        delivered(
            reports(rng.integers(0, 13, (n, 4)).tolist(), people=rng.integers(0, 15, n).tolist()),
            at=START, offset=i,
        )
        for i, n in enumerate(rng.integers(1, 10, 6).tolist())
    ]  # fmt: skip
    whole = totals(judge_reports, log, [], log_state)
    assert totals(judge_reports, with_markers(data, log), [], log_state) == whole
    assert totals(judge_reports, log, cuts_of(data, len(log)), log_state) == whole
