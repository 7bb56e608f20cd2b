"""Frames are gathered while others are counted, within limits, and each is acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka import ConsumerRecord

from blendstream.agents.worker.faust_app import JoinedMessages, batches
from blendstream.streams.settings import Settings
from blendstream.streams.wire.frames import MAX_FRAME_BYTES
from tests.service.settings import service_values


def settings(**values: str) -> Any:
    given = service_values()
    return Settings.from_values(given | {f"worker.{k}": v for k, v in values.items()}).worker


def joined(sizes: list[int], first: int = 0) -> list[ConsumerRecord[Any, Any]]:
    """Messages of one partition as Faust takes them."""
    records = [
        ConsumerRecord("t", 1, offset, 1_000 + offset, 1, None, b"x" * size, None, -1, size, ())
        for offset, size in enumerate(sizes, first)
    ]
    return list(JoinedMessages.of(records))


@dataclass
class Frames:
    """A Faust stream, as much of it as a batch looks at."""

    sizes: list[int]
    error: Exception | None = None
    taken: int = 0
    acknowledged: list[int] = field(default_factory=list)
    enable_acks: bool = True

    async def events(self) -> AsyncIterator[Any]:
        for offset, size in enumerate(self.sizes):
            self.taken += 1
            yield SimpleNamespace(
                message=SimpleNamespace(
                    partition=offset % 2, offset=offset, value=joined([size], offset)[0].value
                )
            )
            await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        await asyncio.Event().wait()

    async def ack(self, event: Any) -> None:
        self.acknowledged.append(event.message.offset)


async def test_the_next_batch_is_gathered_while_one_is_counted_and_no_further() -> None:
    frames = Frames([1] * 25)
    async with aclosing(batches(cast(Any, frames), settings(batch_frames="10"))) as taken:
        first = await anext(taken)
        counted = sum(map(len, first.values()))
        await asyncio.sleep(0.2)
        assert frames.taken == counted + 10, "one batch ahead, not more"
        assert frames.acknowledged == [], "nothing is settled yet"
        second = await anext(taken)
        assert frames.acknowledged == list(range(counted))
        assert [m.offset for m in second[0] + second[1]] == [
            *range(counted + counted % 2, counted + 10, 2),
            *range(counted + 1 - counted % 2, counted + 10, 2),
        ]
    assert frames.acknowledged == list(range(counted + 10))
    assert frames.enable_acks is False


async def test_what_is_gathered_is_bounded_in_bytes() -> None:
    frames = Frames([100_000] * 100)
    given = settings(batch_frames="90", buffer_bytes=str(1024 * 1024))
    async with aclosing(batches(cast(Any, frames), given)) as taken:
        counted = sum(map(len, (await anext(taken)).values()))
        await asyncio.sleep(0.2)
        assert frames.taken == counted + 6, "half a MiB ahead"


def test_faust_takes_many_small_messages_as_one_and_none_is_lost() -> None:
    """One by one they cost 100 µs each, 9 000 a second."""
    for sizes in ([], [5] * 3, [60] * 1000, [100_000] * 7, [300_000, 5, 300_000, 5, 5]):
        found = joined(sizes, first=40)
        messages = [message for record in found for message in record.value.messages]
        assert [m.offset for m in messages] == list(range(40, 40 + len(sizes)))
        assert [len(m.value) for m in messages] == sizes
        assert [m.append_ms for m in messages] == [1_000 + m.offset for m in messages]
        assert [r.offset for r in found] == [r.value.messages[-1].offset for r in found]
        assert len(found) <= max(1, len(sizes) // 256 + 1, len(sizes) - 1)
        for record in found:
            parts = [len(m.value) for m in record.value.messages]
            assert len(parts) == 1 or sum(parts) <= MAX_FRAME_BYTES, "buffers count messages"


async def test_a_stream_that_fails_ends_the_batches_with_its_error() -> None:
    """At any time: otherwise the agent would wait forever."""
    frames = Frames([1, 1, 1], error=RuntimeError("the stream ended"))

    async def count_all() -> None:
        async with aclosing(batches(cast(Any, frames), settings())) as taken:
            async for _ in taken:
                await asyncio.sleep(0.1)

    with pytest.raises(RuntimeError, match="the stream ended"):
        await count_all()
