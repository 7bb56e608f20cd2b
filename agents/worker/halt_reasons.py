"""Reasons for halting a partition until an operator intervenes, each with the remedy.

A halt is not an outage: Redis and Kafka respond, but counting their data would lose entries or
count some twice. Each message continues "partition 3 of topic …".

A stale response of one broker may cause some halts. These have a check, `over`, which the worker
repeats: as soon as it returns True, the worker resumes the partition without an operator.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable

from blendstream.blender.values.errors import BlenderError

__all__ = [
    "HaltReason",
    "PartitionHalt",
    "half_applied",
    "key_missing",
    "log_behind",
    "newer_frame",
    "offset_beyond_end",
    "partitions_changed",
    "released_too_much",
    "store_refused",
    "topic_recreated",
]


class HaltReason(enum.StrEnum):
    """Values of the metric label `reason`; each has an entry in the runbook."""

    TOPIC_RECREATED = "topic_recreated"
    OFFSET_BEYOND_END = "offset_beyond_end"
    LOG_BEHIND = "log_behind"
    PARTITIONS_CHANGED = "partitions_changed"
    NEWER_FRAME = "newer_frame"
    STORE_REFUSED = "store_refused"
    HALF_APPLIED = "half_applied"
    KEY_MISSING = "key_missing"


class PartitionHalt(BlenderError):
    """Raised where a partition must not be counted further, until `over` returns True."""

    def __init__(
        self, reason: HaltReason, text: str, over: Callable[[], Awaitable[bool]] | None = None
    ) -> None:
        super().__init__(text)
        self.reason = reason
        self.over = over


def topic_recreated() -> PartitionHalt:
    return PartitionHalt(
        HaltReason.TOPIC_RECREATED,
        "must belong to the topic that Redis has counted, but the topic was deleted and recreated, "
        "so Redis's offsets no longer match. Raise topics.version, or run `blendstream rebuild`",
    )


def offset_beyond_end(offset: int, end: int, over: Callable[[], Awaitable[bool]]) -> PartitionHalt:
    return PartitionHalt(
        HaltReason.OFFSET_BEYOND_END,
        f"must end at or after offset {offset}, which Redis has counted, but no broker has more "
        f"than {end}. If a broker is cut off, counting resumes by itself when the others answer. "
        "Otherwise this is another cluster's Redis, or the topic lost its end: point redis.url and "
        "kafka.url at a pair that belongs together, or run `blendstream rebuild`",
        over,
    )


def log_behind(offset: int, position: int, over: Callable[[], Awaitable[bool]]) -> PartitionHalt:
    return PartitionHalt(
        HaltReason.LOG_BEHIND,
        f"has a frame at offset {offset} whose gateway had read the release log up to {position}, "
        "further than this worker can read it. If a broker is cut off, counting resumes by itself "
        "when the others answer. If the log was restored from an older copy, or the frame is "
        "damaged, counting resumes after the next record in the release log: restarting "
        "`blendstream jobs` writes one",
        over,
    )


def partitions_changed(wanted: int, actual: int) -> PartitionHalt:
    return PartitionHalt(
        HaltReason.PARTITIONS_CHANGED,
        f"must be one of {wanted}, but the topic now has {actual}; a contributor would be counted "
        "in two of them. Raise topics.version to move to a new topic at an epoch's boundary",
    )


def newer_frame(version: int, offset: int) -> PartitionHalt:
    return PartitionHalt(
        HaltReason.NEWER_FRAME,
        f"must hold frames of a version this release reads, but has version {version} at offset "
        f"{offset}; upgrade the workers, then start again. If no release writes that version, the "
        "frame is damaged: docs/runbook.md, PartitionHalted, says how to skip it",
    )


def half_applied(offset: int) -> PartitionHalt:
    return PartitionHalt(
        HaltReason.HALF_APPLIED,
        f"must not be counted further: the batch up to offset {offset} was only partly stored, "
        "because Redis failed inside a script. Repair Redis, then run `blendstream rebuild`",
    )


def released_too_much(through: int, over: Callable[[], Awaitable[bool]]) -> PartitionHalt:
    return PartitionHalt(
        HaltReason.STORE_REFUSED,
        "must continue with the epochs that are open in the release log, but Redis says that all "
        f"up to {through} are released; this is another installation's Redis, or epochs were "
        "released out of order. Run `blendstream rebuild`",
        over,
    )


def store_refused(why: str) -> PartitionHalt:
    return PartitionHalt(
        HaltReason.STORE_REFUSED,
        f"cannot be stored: {why}. Correct that key or permission, then restart the worker",
    )


def key_missing(why: str) -> PartitionHalt:
    return PartitionHalt(HaltReason.KEY_MISSING, f"cannot be judged: {why}")
