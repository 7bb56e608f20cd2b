"""Dead-letter records: they locate refused entries without their content, to correct senders.

A record is one JSON object: topic, partition, offset, entry within the frame (null: all of it),
reason, and the lengths of the entry's parts. The worker usually sends it once. It sends the record
again after a replay, and not at all if Kafka is slow, because counting never waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence

from aiokafka.errors import KafkaError
from faust.exceptions import FaustError

from blendstream.agents.worker.faust_app import CountingApp
from blendstream.streams.tables.batch_verdict import DeadLetter

__all__ = ["DeadLetters"]

_PATIENCE_S = 1.0


class DeadLetters:
    """Sends dead-letter records about one topic's entries."""

    def __init__(self, app: CountingApp, about: str, topic: str) -> None:
        self._about = about
        self._topic = app.topic(topic, value_type=bytes, value_serializer="raw")

    async def send(self, partition: int, letters: Sequence[DeadLetter]) -> None:
        """Send the records of one partition; drop the rest after a second or an error."""
        with contextlib.suppress(TimeoutError, KafkaError, FaustError):
            async with asyncio.timeout(_PATIENCE_S):
                for letter in letters:
                    await self._topic.send(value=self._encode(partition, letter))

    def _encode(self, partition: int, letter: DeadLetter) -> bytes:
        return json.dumps(
            {
                "topic": self._about,
                "partition": partition,
                "offset": letter.offset,
                "entry": letter.entry,
                "reason": letter.reason,
                "lengths": letter.lengths,
            }
        ).encode()
