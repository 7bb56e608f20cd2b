"""What `doctor` reports about the release log: can readers reach its end, and if not, why."""

from __future__ import annotations

import asyncio
import time
from typing import Literal

from blendstream.blender.values.errors import BlenderError
from blendstream.streams.errors import StoreUnavailable
from blendstream.streams.kafka.kafka_clients import KafkaInspector
from blendstream.streams.kafka.topics import Topics
from blendstream.streams.releases.blocked import BlockedLog, find_blocked, patience_s
from blendstream.streams.settings import Settings

__all__ = ["check_release_log"]


async def check_release_log(
    settings: Settings, kafka: KafkaInspector
) -> tuple[Literal["ok", "note", "fix"], str]:
    """The grade of the finding, and one sentence."""
    topic = Topics(settings).releases.name
    try:
        if (await kafka.describe([topic]))[topic] is None:
            return "ok", "not created yet; nothing was released"
        blocked = await _answered(settings, kafka, topic)
    except BlenderError as error:
        return "fix", f"Kafka must say where it ends, got: {error}; run this again"
    if blocked is None:
        return "ok", "no transaction is left open; readers reach its end"
    timeout_s = settings.jobs.transaction_timeout_s
    if blocked.lasts(timeout_s):
        return "fix", blocked.sentence()
    if blocked.unknown:
        return "note", (
            f"{blocked.sentence()}; run this again: if readers still stop at that offset after "
            f"{patience_s(timeout_s):g} s, it blocks the log"
        )
    return "ok", f"a release is being committed at offset {blocked.committed_end}"


async def _answered(settings: Settings, kafka: KafkaInspector, topic: str) -> BlockedLog | None:
    """What blocks the log; asked again for a while, as its leader may have changed just now."""
    deadline = time.monotonic() + settings.kafka.request_timeout_s
    while True:
        try:
            return await find_blocked(settings.kafka, kafka, topic)
        except StoreUnavailable:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.5)
