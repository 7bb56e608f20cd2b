"""The release log as workers read it: nothing is unknown before it was read to its end."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from streams.directory import ReleaseLogDirectory
from streams.epochs import EpochBook, Stem
from tests.counting import installation

if TYPE_CHECKING:
    from agents.stack import GivenServer, LocalKafka, LocalRedis

pytestmark = pytest.mark.integration


async def test_a_reader_that_was_given_up_on_stays_the_only_one(
    kafka: LocalKafka | GivenServer,
    redis_server: LocalRedis | GivenServer,
    name_prefix: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Taking a partition up has a deadline; the thread that reads the log for it has none.

    While it had an entry in hand, a second reader got the rest, reached the end without that
    entry, and the frames of its epoch were refused for good.
    """
    has_one, goes_on = threading.Event(), threading.Event()
    apply_message = EpochBook.apply_message

    def slowly_at_first(book: EpochBook, key: bytes | None, value: bytes | None) -> None:
        if not has_one.is_set():
            has_one.set()
            goes_on.wait(20)
        apply_message(book, key, value)

    monkeypatch.setattr(EpochBook, "apply_message", slowly_at_first)
    async with installation(kafka.url, redis_server.url, name_prefix) as made:
        for epoch in (1, 2, 3):
            made.open_epoch(epoch)
        directory = ReleaseLogDirectory(made.settings.kafka, made.kafka, made.topics.releases.name)
        known: list[list[int]] = []

        async def read() -> None:
            await directory.refresh_to_end()
            known.append([e.number for e in directory.book.unreleased(Stem.OPTIN_RECORDS)])

        given_up = asyncio.create_task(read())
        assert await asyncio.to_thread(has_one.wait, 20)
        given_up.cancel()
        second = asyncio.create_task(read())
        await asyncio.wait({second}, timeout=1)
        goes_on.set()
        await second
        assert known == [[1, 2, 3]]
        await directory.close()
