"""POST /v1/reports: validate devices' reports against their head lists and queue them.

    body ──▶ entries ──▶ head list known? shape? in time? ──▶ contributor key ──▶ frame ──▶ verdicts

Promises: a device's id is hashed under the epoch's key before the report is validated or packed,
and the id is not stored. An accepted report was appended in time by the broker's clock, by which
the workers decide too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Final, TypeGuard

import numpy as np
from numpy.typing import NDArray

from blendstream.agents.gateway.http.request_types import Report
from blendstream.agents.gateway.state.frame_writer import FrameWriter
from blendstream.agents.gateway.state.submission_targets import ReportTarget
from blendstream.agents.gateway.state.verdicts import (
    ACCEPTED,
    BUSY,
    NO_ADMISSION,
    QueuedSlice,
    Reason,
    Verdict,
    refusal,
)
from blendstream.streams.epoch_keys import EpochKeys
from blendstream.streams.wire.frames import CONTRIBUTOR_BYTES

__all__ = ["UNKNOWN", "queue_on_one_head_list", "queue_reports"]

_IDENTITY_BYTES: Final = 16


UNKNOWN = refusal(
    Reason.UNKNOWN_HEAD_LIST,
    "head_list must be the id of a published head list that still accepts reports; fetch the "
    "current one",
)
_PAST = refusal(
    Reason.LATE, "the time for reports on this head list has ended; fetch the current head list"
)
_NOT_HEX = refusal(
    Reason.MALFORMED, "contributor must be 128 random bits: 32 lower-case hexadecimal digits"
)


def queue_reports(
    entries: Sequence[Report | str],
    targets: Mapping[str, ReportTarget],
    past: Collection[str],
    writer: FrameWriter,
    *,
    now_ms: float,
    unknown: Verdict | None,
) -> QueuedSlice | None:
    """Validate each entry (a string is a decoding fault) and queue the valid ones.

    `past` are head lists that accept no more reports. `unknown` is the verdict on reports on other
    head lists; if it is None and there are such reports, nothing is queued and `None` is returned.
    """
    # Nearly every request has well-formed reports on one known head list.
    first = entries[0]
    if isinstance(first, Report):
        target = targets.get(first.head_list)
        if target is not None and _all_on_one_head_list(entries, first.head_list):
            return queue_on_one_head_list(entries, target, writer, now_ms)
    return _queue_mixed(entries, targets, past, writer, now_ms, unknown)


def _queue_mixed(
    entries: Sequence[Report | str],
    targets: Mapping[str, ReportTarget],
    past: Collection[str],
    writer: FrameWriter,
    now_ms: float,
    unknown: Verdict | None,
) -> QueuedSlice | None:
    by_head_list: dict[str, list[int]] = {}
    for i, entry in enumerate(entries):
        if not isinstance(entry, str):
            by_head_list.setdefault(entry.head_list, []).append(i)
    if unknown is None:
        if not all(head_list in targets or head_list in past for head_list in by_head_list):
            return None
        unknown = UNKNOWN
    queued = QueuedSlice(
        [refusal(Reason.MALFORMED, e) if isinstance(e, str) else unknown for e in entries]
    )
    for head_list, places in by_head_list.items():
        target = targets.get(head_list)
        if target is not None:
            reports = [entry for i in places if not isinstance(entry := entries[i], str)]
            part = queue_on_one_head_list(reports, target, writer, now_ms)
            for i, verdict in zip(places, part.verdicts, strict=True):
                queued.verdicts[i] = verdict
            queued.waiting += [
                (delivered, judge, [places[row] for row in rows])
                for delivered, judge, rows in part.waiting
            ]
        elif head_list in past:
            for i in places:
                queued.verdicts[i] = _PAST
    return queued


def _all_on_one_head_list(
    entries: Sequence[Report | str], head_list: str
) -> TypeGuard[Sequence[Report]]:
    """Return True if every entry was decoded and is on this head list."""
    try:
        return {entry.head_list for entry in entries} == {head_list}  # type: ignore[union-attr]
    except AttributeError:  # a sentence in place of an entry
        return False


def queue_on_one_head_list(
    reports: Sequence[Report], target: ReportTarget, writer: FrameWriter, now_ms: float
) -> QueuedSlice:
    """Validate reports on one head list, with operations on whole columns; queue the valid ones.

    This function validates every report, single or in a batch. It checks for permanent faults
    first: a sender must not retry a report that will be refused in the end.
    """
    keys, bad_ids = _contributor_keys(reports, target.keys)
    good = ACCEPTED
    if now_ms >= target.late_from_ms:
        good = target.late
    elif not target.admitted:
        good = NO_ADMISSION
    queued = QueuedSlice([good] * len(reports))
    verdicts = queued.verdicts
    cells, fits = _cells(reports, target)
    for i in np.flatnonzero(~fits).tolist():
        verdicts[i] = target.wrong_shape
    for i in bad_ids:
        verdicts[i] = _NOT_HEX
    if good is not ACCEPTED:
        return queued
    fits[bad_ids] = False
    partitions = target.keys.partitions_of(keys, target.partitions)
    frames = target.frames
    # One stable sort groups the reports by partition, in order of arrival.
    order = np.argsort(partitions, kind="stable")
    order = order[fits[order]]
    if not len(order):
        return queued
    # All columns are reordered once, which is cheaper than per partition.
    keys = np.frombuffer(keys, dtype=f"V{CONTRIBUTOR_BYTES}")[order].tobytes()
    packed = cells[order].tobytes()
    cell_bytes = cells.itemsize * cells.shape[1]
    in_order = partitions[order]
    starts = [0, *(np.flatnonzero(np.diff(in_order)) + 1).tolist()]
    for start, end, partition in zip(
        starts, [*starts[1:], len(order)], in_order[starts].tolist(), strict=True
    ):
        rows = order[start:end]
        if not writer.has_room((end - start) * frames.entry_bytes) or writer.is_stalled(
            frames.topic, partition
        ):
            for i in rows.tolist():
                verdicts[i] = BUSY
            continue
        done = 0
        for count, delivered in writer.add_reports(
            frames,
            partition,
            keys[start * CONTRIBUTOR_BYTES : end * CONTRIBUTOR_BYTES],
            packed[start * cell_bytes : end * cell_bytes],
        ):
            queued.waiting.append((delivered, target, rows[done : done + count]))
            done += count
    return queued


def _contributor_keys(reports: Sequence[Report], keys: EpochKeys) -> tuple[bytes, list[int]]:
    """Return all contributors' keys, joined, and the indexes of malformed ids."""
    bad: list[int] = []
    joined = "".join([report.contributor for report in reports])
    try:
        identities = bytes.fromhex(joined)
    except ValueError:
        identities = b""
    if len(identities) != _IDENTITY_BYTES * len(reports) or identities.hex() != joined:
        each = [_identity(report.contributor) for report in reports]
        bad = [i for i, identity in enumerate(each) if identity is None]
        identities = b"".join(identity or bytes(_IDENTITY_BYTES) for identity in each)
    return keys.contributors_of(identities, _IDENTITY_BYTES), bad


def _identity(text: str) -> bytes | None:
    # `fromhex` also accepts white space and capitals, which `hex` does not write.
    try:
        identity = bytes.fromhex(text)
    except ValueError:
        return None
    return identity if len(identity) == _IDENTITY_BYTES and identity.hex() == text else None


def _cells(
    reports: Sequence[Report], target: ReportTarget
) -> tuple[NDArray[np.unsignedinteger], NDArray[np.bool_]]:
    """Return a row of packed cells per report, and which reports fit the head list."""
    rows = [report.answers for report in reports]
    fits = np.ones(len(rows), dtype=np.bool_)
    wide, answers = target.shape.cells_per_answer, target.shape.answers
    if set(map(len, rows)) != {answers} or set(map(len, chain.from_iterable(rows))) != {wide}:
        stand_in = [list(range(wide))] * answers
        for i, row in enumerate(rows):
            if len(row) != answers or any(len(answer) != wide for answer in row):
                fits[i] = False
                rows[i] = stand_in
    flat = np.fromiter(
        chain.from_iterable(chain.from_iterable(rows)),
        dtype=np.int64,
        count=len(rows) * answers * wide,
    )
    cells = flat.reshape(len(rows), answers * wide)
    fits &= target.shape.allows_rows(cells)
    return cells.astype(target.dtype), fits
