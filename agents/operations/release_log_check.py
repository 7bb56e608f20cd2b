"""Check for `doctor` whether readers can reach the release log's end, and if not, why."""

from __future__ import annotations

import asyncio
import time
from typing import Literal

from blendstream.blender.values.errors import BlenderError
from blendstream.streams.errors import StoreUnavailable
from blendstream.streams.kafka.kafka_clients import KafkaInspector
from blendstream.streams.kafka.topics import Topics
from blendstream.streams.releases.blocked import OpenTransaction, find_open
from blendstream.streams.settings import Settings

__all__ = ["check_release_log"]


async def check_release_log(
    settings: Settings, kafka: KafkaInspector
) -> tuple[Literal["ok", "fix"], str]:
    """Return the grade of the finding, and one sentence."""
    topic = Topics(settings).releases.name
    try:
        if (await kafka.describe([topic]))[topic] is None:
            return "ok", "not created yet; nothing was released"
        found = await _find_open(settings, kafka, topic)
    except BlenderError as error:
        return "fix", f"Kafka must report its end, got: {error}; run this again"
    if found is None:
        return "ok", "no transaction is left open; readers reach its end"
    if found.blocks:
        return "fix", found.sentence()
    return "ok", f"a release is being committed at offset {found.last_stable_offset}"


async def _find_open(
    settings: Settings, kafka: KafkaInspector, topic: str
) -> OpenTransaction | None:
    """Return the log's open transaction, if any; retry for a while, as its leader may change."""
    deadline = time.monotonic() + settings.kafka.request_timeout_s
    while True:
        try:
            return await find_open(kafka, topic, settings.jobs.transaction_timeout_s)
        except StoreUnavailable:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.5)
