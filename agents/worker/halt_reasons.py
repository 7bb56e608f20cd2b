"""Why a partition stands still until somebody looks, and what that somebody should do.

A stop is not an outage: Redis and Kafka answer, and what they say cannot be counted on without
losing or doubling something. Each message continues "partition 3 of topic …".

Some stops may rest on a stale answer of one broker. They have a question, `over`, which is asked
again and again: when it is answered with yes, the partition goes on by itself.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable

from blender.errors import BlenderError

__all__ = [
    "Stop",
    "StopReason",
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


class StopReason(enum.StrEnum):
    """Each is a metric's label and has an entry in the runbook."""

    TOPIC_RECREATED = "topic_recreated"
    OFFSET_BEYOND_END = "offset_beyond_end"
    LOG_BEHIND = "log_behind"
    PARTITIONS_CHANGED = "partitions_changed"
    NEWER_FRAME = "newer_frame"
    STORE_REFUSED = "store_refused"
    HALF_APPLIED = "half_applied"
    KEY_MISSING = "key_missing"


class Stop(BlenderError):
    """The partition must not be counted on, unless `over` says otherwise later."""

    def __init__(
        self, reason: StopReason, text: str, over: Callable[[], Awaitable[bool]] | None = None
    ) -> None:
        super().__init__(text)
        self.reason = reason
        self.over = over


def topic_recreated() -> Stop:
    return Stop(
        StopReason.TOPIC_RECREATED,
        "must be of the topic that Redis has counted, but that was deleted and made again; its "
        "offsets mean other records now. Move to a new topics.version, or rebuild the counts",
    )


def offset_beyond_end(offset: int, end: int, over: Callable[[], Awaitable[bool]]) -> Stop:
    return Stop(
        StopReason.OFFSET_BEYOND_END,
        f"must end at or after offset {offset}, which Redis has counted, but no broker knows of "
        f"more than {end}. If a broker is cut off, it goes on by itself when the others answer. "
        "Else this is another cluster's Redis, or the log was cut off: point redis.url and "
        "kafka.url at a pair that belongs together, or rebuild the counts",
        over,
    )


def log_behind(offset: int, position: int, over: Callable[[], Awaitable[bool]]) -> Stop:
    return Stop(
        StopReason.LOG_BEHIND,
        f"has a frame at offset {offset} whose gateway had read the release log up to {position}, "
        "further than it can be read here. If a broker is cut off, it goes on by itself when the "
        "others answer. If the log was restored from an older copy, or the frame is damaged, it "
        "goes on with the next record in the release log: restarting `blendstream jobs` writes one",
        over,
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


def released_too_much(through: int, over: Callable[[], Awaitable[bool]]) -> Stop:
    return Stop(
        StopReason.STORE_REFUSED,
        f"must go on with epochs that the release log has open, but Redis bars all up to {through} "
        "as released; this is another installation's Redis, or epochs were released out of turn. "
        "Rebuild the partition's counts",
        over,
    )


def store_refused(why: str) -> Stop:
    return Stop(
        StopReason.STORE_REFUSED,
        f"cannot be stored: {why}. Look at that key or permission, mend it, then start again",
    )


def key_missing(why: str) -> Stop:
    return Stop(StopReason.KEY_MISSING, f"cannot be judged: {why}")
