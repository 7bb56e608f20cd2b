"""Why a partition stands still until somebody looks, and what that somebody should do.

A stop is not an outage: Redis and Kafka answer, and what they say cannot be counted on without
losing or doubling something. Each message continues "partition 3 of topic …".
"""

from __future__ import annotations

import enum

from blender.errors import BlenderError

__all__ = [
    "Stop",
    "StopReason",
    "half_applied",
    "key_missing",
    "newer_frame",
    "offset_beyond_end",
    "partitions_changed",
    "released_too_much",
    "store_refused",
    "topic_recreated",
]


class StopReason(enum.StrEnum):
    """Each is a metric's label and has an entry in the runbook."""

    TOPIC_RECREATED = "topic_recreated"
    OFFSET_BEYOND_END = "offset_beyond_end"
    PARTITIONS_CHANGED = "partitions_changed"
    NEWER_FRAME = "newer_frame"
    STORE_REFUSED = "store_refused"
    HALF_APPLIED = "half_applied"
    KEY_MISSING = "key_missing"


class Stop(BlenderError):
    """The partition must not be counted on."""

    def __init__(self, reason: StopReason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def topic_recreated() -> Stop:
    return Stop(
        StopReason.TOPIC_RECREATED,
        "must be of the topic that Redis has counted, but that was deleted and made again; its "
        "offsets mean other records now. Move to a new topics.version, or rebuild the counts",
    )


def offset_beyond_end(offset: int, end: int) -> Stop:
    return Stop(
        StopReason.OFFSET_BEYOND_END,
        f"must end at or after offset {offset}, which Redis has counted, but ends at {end}; this "
        "is another cluster's Redis, or the log was cut off. Point redis.url and kafka.url at a "
        "pair that belongs together, or rebuild the counts",
    )


def partitions_changed(wanted: int, found: int) -> Stop:
    return Stop(
        StopReason.PARTITIONS_CHANGED,
        f"must be one of {wanted}, but the topic now has {found}; a contributor would be counted "
        "in two of them. Raise topics.version to move to a new topic at an epoch's boundary",
    )


def newer_frame(version: int, offset: int) -> Stop:
    return Stop(
        StopReason.NEWER_FRAME,
        f"must hold frames of a version this release reads, but has version {version} at offset "
        f"{offset}; upgrade the workers, then start again. If no release writes that version, the "
        "frame is damaged: docs/operations.md, PartitionStopped, tells how to pass over it",
    )


def half_applied(offset: int) -> Stop:
    return Stop(
        StopReason.HALF_APPLIED,
        f"must not be counted on: the batch up to offset {offset} was stored in part, because "
        "Redis failed inside a script. Mend Redis, then rebuild the partition's counts",
    )


def released_too_much(through: int) -> Stop:
    return Stop(
        StopReason.STORE_REFUSED,
        f"must go on with epochs that the release log has open, but Redis bars all up to {through} "
        "as released; this is another installation's Redis, or epochs were released out of turn. "
        "Rebuild the partition's counts",
    )


def store_refused(why: str) -> Stop:
    return Stop(
        StopReason.STORE_REFUSED,
        f"cannot be stored: {why}. Look at that key or permission, mend it, then start again",
    )


def key_missing(why: str) -> Stop:
    return Stop(StopReason.KEY_MISSING, f"cannot be judged: {why}")
