"""Frames are gathered while others are counted, within limits, and each is acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agents.worker.faust_app import batches
from streams.settings import Settings
from tests.counting import settings_values


def settings(**values: str) -> Any:
    given = settings_values("kafka://host:9092", "redis://host", "x", 1)
    return Settings.from_values(given | {f"worker.{k}": v for k, v in values.items()}).worker


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
                    partition=offset % 2, offset=offset, timestamp=1.0, value=b"x" * size
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


async def test_a_stream_that_fails_ends_the_batches_with_its_error() -> None:
    """Whenever it fails: else the agent would wait for ever."""
    frames = Frames([1, 1, 1], error=RuntimeError("the stream ended"))

    async def count_all() -> None:
        async with aclosing(batches(cast(Any, frames), settings())) as taken:
            async for _ in taken:
                await asyncio.sleep(0.1)

    with pytest.raises(RuntimeError, match="the stream ended"):
        await count_all()
