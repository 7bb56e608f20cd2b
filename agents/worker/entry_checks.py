"""Validate each entry of a batch: count it, or refuse it for one reason.

The functions are pure: they take frames, the log state, the epoch keys and the fingerprints seen so
far, and return a verdict, which `streams.tables.count_table` stores in one step. The only argument
that they change is the fingerprint table, which the caller discards if it does not store the
verdict.

Promises: every entry of every frame is either counted, or refused for exactly one reason. A marker
has no entry and adds nothing. The same log yields the same verdicts however it is cut into batches,
because a verdict depends on the entry's broker append time, its offset, and the entries before it
in its partition.
Assumes: all entries of one contributor and epoch are in one partition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from blendstream.blender.paper.user_groups import partition_users
from blendstream.blender.values.answer_shape import AnswerShape
from blendstream.blender.values.record import MAX_QUERY_BYTES, MAX_URL_BYTES
from blendstream.streams.epoch_keys import EpochKeys
from blendstream.streams.names import InputStream, OptinSubgroup
from blendstream.streams.releases.epoch_state import EpochState, HeadListRelease, ReleaseLogState
from blendstream.streams.releases.reader import UnknownFrame
from blendstream.streams.tables.batch_verdict import (
    MAX_DEAD_LETTERS,
    SEPARATOR,
    BatchVerdict,
    Delivery,
    Refusal,
)
from blendstream.streams.tables.fingerprints import FingerprintTable, siphash
from blendstream.streams.wire.frames import Marker, OptinFrame, RefusedFrame, ReportFrame

__all__ = [
    "judge_optin_records",
    "judge_reports",
    "unknown_to",
]


def unknown_to(log_state: ReleaseLogState, deliveries: Iterable[Delivery]) -> list[UnknownFrame]:
    """Return the frames that name an epoch or head list that the log state does not have (yet)."""
    unknown = []
    for delivery in deliveries:
        frame = delivery.frame
        if isinstance(frame, ReportFrame):
            known = log_state.reported_on(frame.head_list_id) is not None
            stem = InputStream.CLIENT_REPORTS
        elif isinstance(frame, OptinFrame):
            known = frame.epoch in log_state.epochs
            stem = InputStream.OPTIN_RECORDS
        else:
            continue
        if not known and not log_state.is_past(frame.epoch, stem):
            unknown.append(UnknownFrame(delivery.offset, delivery.append_ms, frame.log_position))
    return unknown


def judge_reports(
    partition: int,
    deliveries: Sequence[Delivery],
    log_state: ReleaseLogState,
    keys: Mapping[int, EpochKeys],
    seen: Mapping[int, FingerprintTable],
) -> BatchVerdict:
    """Validate a batch of client reports. `keys` and `seen` contain every unreleased epoch."""
    verdict = BatchVerdict()
    accepted: dict[int, tuple[HeadListRelease, list[Delivery]]] = {}
    past = log_state.released_through(InputStream.CLIENT_REPORTS)
    for delivery in deliveries:
        frame = delivery.frame
        if not isinstance(frame, ReportFrame):
            _pass_or_refuse(verdict, delivery)
            continue
        # Checked before the head list, which the log state may have forgotten or never read.
        if frame.epoch <= past:
            verdict.late += len(frame)
            continue
        epoch = log_state.reported_on(frame.head_list_id)
        if epoch is None:
            verdict.refuse(None, delivery, Refusal.UNKNOWN_HEAD_LIST, len(frame))
            continue
        if epoch.epoch != frame.epoch:
            verdict.refuse(None, delivery, Refusal.WRONG_EPOCH, len(frame))
            continue
        if _refuse_untimely(
            verdict, epoch, InputStream.CLIENT_REPORTS, partition, delivery, len(frame)
        ):
            continue
        head_list = epoch.head_list
        assert head_list is not None, "the list was found by its id"
        if frame.cells.shape[1] != head_list.cells_per_report:
            verdict.refuse(epoch.epoch, delivery, Refusal.MALFORMED, len(frame))
        else:
            accepted.setdefault(epoch.epoch, (head_list, []))[1].append(delivery)
    for number, (head_list, frames) in accepted.items():
        _count_reports(verdict, number, head_list, frames, keys[number], seen[number])
    return verdict


def _count_reports(
    verdict: BatchVerdict,
    epoch: int,
    head_list: HeadListRelease,
    deliveries: list[Delivery],
    keys: EpochKeys,
    seen: FingerprintTable,
) -> None:
    frames = [d.frame for d in deliveries if isinstance(d.frame, ReportFrame)]
    contributors = np.concatenate([f.contributors for f in frames])
    cells = np.concatenate([f.cells for f in frames])
    tally = verdict.tally(epoch)
    tally.received += len(cells)

    shape = AnswerShape(
        head_list.cells, head_list.cells_per_answer, head_list.answers, head_list.wildcard_alone
    )
    legal = shape.allows_rows(cells)
    if not legal.all():
        tally.refused[Refusal.MALFORMED] += int(np.count_nonzero(~legal))
        _add_dead_letters(verdict, deliveries, np.flatnonzero(~legal))
        contributors, cells = contributors[legal], cells[legal]

    fingerprints = siphash(keys.fingerprint, contributors)
    new = seen.add(fingerprints)
    if not new.all():
        tally.refused[Refusal.DUPLICATE] += int(np.count_nonzero(~new))
        fingerprints, cells = fingerprints[new], cells[new]
    tally.fingerprints.append(fingerprints)
    tally.cells = np.bincount(cells.ravel(), minlength=head_list.cells)


def judge_optin_records(
    partition: int,
    deliveries: Sequence[Delivery],
    log_state: ReleaseLogState,
    keys: Mapping[int, EpochKeys],
    seen: Mapping[int, FingerprintTable],
) -> BatchVerdict:
    """Validate a batch of opt-in records. `keys` and `seen` contain every unreleased epoch."""
    verdict = BatchVerdict()
    accepted: dict[int, tuple[EpochState, list[Delivery]]] = {}
    for delivery in deliveries:
        frame = delivery.frame
        if not isinstance(frame, OptinFrame):
            _pass_or_refuse(verdict, delivery)
            continue
        epoch = log_state.epochs.get(frame.epoch)
        if epoch is None:
            if log_state.is_past(frame.epoch, InputStream.OPTIN_RECORDS):
                verdict.late += len(frame)
            else:
                verdict.refuse(None, delivery, Refusal.WRONG_EPOCH, len(frame))
        elif not _refuse_untimely(
            verdict, epoch, InputStream.OPTIN_RECORDS, partition, delivery, len(frame)
        ):
            accepted.setdefault(epoch.epoch, (epoch, []))[1].append(delivery)
    for number, (epoch, frames) in accepted.items():
        _count_records(verdict, epoch, frames, keys[number], seen[number])
    return verdict


def _count_records(
    verdict: BatchVerdict,
    epoch: EpochState,
    deliveries: list[Delivery],
    keys: EpochKeys,
    seen: FingerprintTable,
) -> None:
    frames = [d.frame for d in deliveries if isinstance(d.frame, OptinFrame)]
    contributors = np.concatenate([f.contributors for f in frames])
    slots = np.concatenate([f.slots for f in frames])
    texts = _Texts.of(frames)
    per_user = epoch.parameters.plan.privacy.records_per_optin_user
    tally = verdict.tally(epoch.epoch)
    tally.received += len(slots)
    subgroups = _subgroups(epoch, keys, contributors)

    # Each step refuses some entries and keeps the others, in log order, for the next step.
    remaining = np.arange(len(slots))

    def keep(mask: NDArray[np.bool_], reason: Refusal) -> NDArray[np.intp]:
        refused = int(np.count_nonzero(~mask))
        if refused:
            tally.refused[reason] += refused
        return remaining[mask]

    none = np.concatenate([f.without_record() for f in frames])
    too_long = texts.too_long()
    malformed = texts.malformed() & ~too_long & ~none
    for fault, reason in ((too_long, Refusal.TOO_LONG), (malformed, Refusal.MALFORMED)):
        if fault.any():
            _add_dead_letters(verdict, deliveries, np.flatnonzero(fault), reason)
            remaining = keep(~fault[remaining], reason)
    remaining = keep(subgroups[remaining] < len(OptinSubgroup), Refusal.MALFORMED)
    remaining = keep(slots[remaining] < per_user, Refusal.OVER_LIMIT)
    # Departure: T counts slot 0 only (docs/decisions/0110-one-quantity.md).
    remaining = keep((subgroups[remaining] != _T) | (slots[remaining] == 0), Refusal.SPARE)

    rows = np.column_stack((contributors[remaining], slots[remaining].astype(np.uint64)))
    fingerprints = siphash(keys.fingerprint, rows)
    new = seen.add(fingerprints)
    tally.fingerprints.append(fingerprints[new])
    remaining = keep(new, Refusal.DUPLICATE)
    # Before repeated records are refused: the number of users must not depend on their records.
    for number, subgroup in enumerate(OptinSubgroup):
        first = (subgroups[remaining] == number) & (slots[remaining] == 0)
        tally.users[subgroup] += int(np.count_nonzero(first))
    tally.none += int(np.count_nonzero(none[remaining]))
    remaining = remaining[~none[remaining]]
    if per_user > 1:
        # In S and the graph subgroup, one user changes a record's count by at most one: the noise
        # depends on it.
        whose = (contributors[i].tobytes() for i in remaining)
        copies = np.array(
            [
                keys.record_of(*pair)
                for pair in zip(whose, texts.of_entries(remaining), strict=True)
            ],
            dtype=np.uint64,
        )
        new = seen.add(copies)
        tally.fingerprints.append(copies[new])
        remaining = keep(new, Refusal.REPEATED)
    for number, subgroup in enumerate(OptinSubgroup):
        records = Counter(texts.of_entries(remaining[subgroups[remaining] == number]))
        if records:
            tally.records[subgroup] = records


_T: Final = list(OptinSubgroup).index(OptinSubgroup.T)


def _subgroups(
    epoch: EpochState, keys: EpochKeys, contributors: NDArray[np.uint64]
) -> NDArray[np.intp]:
    """Return the number of each contributor's subgroup.

    In a budget period the gateway encodes it in the key; a number of no subgroup was not written by
    a gateway of this epoch.
    """
    if epoch.parameters.period is not None:
        raw = np.ascontiguousarray(contributors, dtype="<u8").tobytes()
        size = len(raw) // max(1, len(contributors))
        subgroups = [keys.subgroup_in(raw[i : i + size]) for i in range(0, len(raw), size)]
        return np.array(subgroups, dtype=np.intp)
    points = siphash(keys.share, contributors)
    return partition_users(
        points, [epoch.shares_ppm.get(subgroup, 0) for subgroup in OptinSubgroup]
    )


def _refuse_untimely(
    verdict: BatchVerdict,
    epoch: EpochState,
    stem: InputStream,
    partition: int,
    delivery: Delivery,
    entries: int,
) -> bool:
    """Refuse a message that is late, behind the seal or early; False if it is in time."""
    if epoch.released(stem):
        verdict.late += entries
        return True
    late_from = epoch.late_from_ms(stem)
    assert late_from is not None, "a report's head list is published"
    if delivery.append_ms >= late_from:
        verdict.refuse(epoch.epoch, delivery, Refusal.LATE, entries)
        return True
    if epoch.beyond_seal(stem, partition, delivery.offset):
        # The gateway answered "accepted". That cannot happen while the brokers' clocks differ by
        # no more than the allowed skew, so this has a separate reason, not LATE.
        verdict.refuse(epoch.epoch, delivery, Refusal.BEYOND_SEAL, entries)
        return True
    if delivery.append_ms < epoch.early_before_ms(stem):
        verdict.refuse(epoch.epoch, delivery, Refusal.EARLY, entries)
        return True
    return False


def _pass_or_refuse(verdict: BatchVerdict, delivery: Delivery) -> None:
    """Ignore a marker; refuse any other message that has no entries of this input stream."""
    if isinstance(delivery.frame, Marker):
        return
    too_long = isinstance(delivery.frame, RefusedFrame) and delivery.frame.too_long
    verdict.refuse(None, delivery, Refusal.TOO_LONG if too_long else Refusal.MALFORMED, 1)


def _add_dead_letters(
    verdict: BatchVerdict,
    deliveries: Sequence[Delivery],
    entries: NDArray[np.intp],
    reason: Refusal = Refusal.MALFORMED,
) -> None:
    ends = np.cumsum([_size(d) for d in deliveries])
    for entry in entries[:MAX_DEAD_LETTERS].tolist():
        number = int(np.searchsorted(ends, entry, side="right"))
        delivery = deliveries[number]
        within = entry - (int(ends[number - 1]) if number else 0)
        lengths: tuple[int, ...] = (delivery.size,)
        if isinstance(delivery.frame, OptinFrame):
            frame = delivery.frame
            lengths = (int(frame.query_lengths[within]), int(frame.url_lengths[within]))
        verdict.letter(delivery.offset, within, reason, lengths)


def _size(delivery: Delivery) -> int:
    frame = delivery.frame
    return len(frame) if isinstance(frame, OptinFrame | ReportFrame) else 1


@dataclass(frozen=True, slots=True)
class _Texts:
    """The joined text of a batch's opt-in records, for checks over all entries together.

    Entry i has its query from `starts[i]` to `middles[i]` and its URL from there to `ends[i]`.
    """

    text: bytes
    starts: NDArray[np.int64]
    middles: NDArray[np.int64]
    ends: NDArray[np.int64]

    @classmethod
    def of(cls, frames: Sequence[OptinFrame]) -> _Texts:
        """Join the text of these frames."""
        queries = np.concatenate([f.query_lengths for f in frames]).astype(np.int64)
        urls = np.concatenate([f.url_lengths for f in frames]).astype(np.int64)
        ends = np.cumsum(queries + urls)
        return cls(b"".join(f.text for f in frames), ends - queries - urls, ends - urls, ends)

    def of_entries(self, entries: NDArray[np.intp]) -> list[bytes]:
        """Return `query TAB url` of each of these entries."""
        text, parts = self.text, (self.starts[entries], self.middles[entries], self.ends[entries])
        return [
            text[start:middle] + SEPARATOR + text[middle:end]
            for start, middle, end in zip(*(part.tolist() for part in parts), strict=True)
        ]

    def too_long(self) -> NDArray[np.bool_]:
        """Return True per entry whose query or URL exceeds its limit."""
        queries, urls = self.middles - self.starts, self.ends - self.middles
        return np.asarray((queries > MAX_QUERY_BYTES) | (urls > MAX_URL_BYTES))

    def malformed(self) -> NDArray[np.bool_]:
        """Return True per entry without query or URL, with control characters, or not in UTF-8."""
        malformed = (self.starts == self.middles) | (self.middles == self.ends)
        data = np.frombuffer(self.text, np.uint8)
        control = np.flatnonzero((data < 0x20) | (data == 0x7F))
        malformed[np.searchsorted(self.ends, control, side="right")] = True
        if self.text.isascii():
            return np.asarray(malformed)
        # U+0080 to U+009F are control characters too, and two bytes long.
        leads = np.flatnonzero(data[:-1] == 0xC2)
        control = leads[(data[leads + 1] & 0xE0) == 0x80]
        malformed[np.searchsorted(self.ends, control, side="right")] = True
        if not self._all_utf_8(data):
            pairs = ((self.starts, self.middles), (self.middles, self.ends))
            for starts, ends in pairs:
                for i, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
                    malformed[i] |= not _is_utf_8(self.text[start:end])
        return np.asarray(malformed)

    def _all_utf_8(self, data: NDArray[np.uint8]) -> bool:
        """Return True if the joined text is UTF-8 and no entry's text starts inside a character."""
        begins = np.concatenate([self.starts, self.middles])
        first = data[begins[begins < len(data)]]
        return bool(((first & 0xC0) != 0x80).all()) and _is_utf_8(self.text)


def _is_utf_8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
