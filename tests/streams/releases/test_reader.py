"""Tests of the shared log reader: it skips no record, and reports no end before it is folded."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from blendstream.streams.errors import StoreMismatch, StoreUnavailable
from blendstream.streams.kafka.kafka_clients import KafkaInspector
from blendstream.streams.names import InputStream
from blendstream.streams.releases import entries
from blendstream.streams.releases.entries import Kind
from blendstream.streams.releases.epoch_state import ReleaseLogState
from blendstream.streams.releases.log_consumer import LogRecord
from blendstream.streams.releases.reader import LogFollower, LogReader, UnknownFrame
from blendstream.streams.settings import Settings
from tests.agents.worker.judged_entries import opened
from tests.listed_log import ListedLog, listed_log
from tests.service.settings import service_values

__all__ = ["listed_log"]

SETTINGS = Settings.from_values(service_values())
OPTIN = InputStream.OPTIN_RECORDS
DAMAGED = {"entry": "epoch_opened", "epoch": "not a number"}


class TwoBrokers(KafkaInspector):
    """End offsets as the process's broker reports them, and the highest of all brokers."""

    def __init__(self, own: int, furthest: int) -> None:
        super().__init__(SETTINGS.kafka)
        self.own, self.furthest, self.asked_all = own, furthest, 0

    async def ends(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        return dict.fromkeys(partitions, self.own)

    async def max_end_offset(self, topic: str, partition: int) -> int:
        self.asked_all += 1
        return self.furthest


def follower(own: int, furthest: int | None = None, **options: object) -> LogFollower:
    ends = TwoBrokers(own, own if furthest is None else furthest)
    return LogFollower(SETTINGS.kafka, ends, "x.releases", **options)  # type: ignore[arg-type]


def epochs(log_state: ReleaseLogState) -> list[int]:
    return [state.epoch for state in log_state.unreleased(OPTIN)]


async def test_a_record_that_cannot_be_folded_is_met_again_and_never_passed_over(
    listed_log: ListedLog,
) -> None:
    """A second caller once received the records after the damaged one, and so did jobs."""
    listed_log.append(opened(1))
    listed_log.append(DAMAGED)
    listed_log.append(opened(2))
    looking = LogReader(SETTINGS.kafka, "x.releases")
    for _ in range(3):
        with pytest.raises(StoreMismatch, match="entry at offset 1"):
            await looking.catch_up()
        assert epochs(looking.log_state) == [1]
    following = follower(3)
    following._timeout_s = 0.5
    for _ in range(3):
        with pytest.raises(StoreMismatch, match="entry at offset 1"):
            await following.refresh_to_end()
        assert epochs(following.stable_state) == [1]


async def test_what_was_fetched_when_kafka_failed_is_fetched_again(listed_log: ListedLog) -> None:
    listed_log.append(opened(1))
    following = follower(1)
    listed_log.failure = StoreUnavailable("away")
    with pytest.raises(StoreUnavailable, match="away"):
        await following.refresh_to_end()
    await following.refresh_to_end()
    assert epochs(following.stable_state) == [1]


async def test_a_state_in_use_does_not_change(listed_log: ListedLog) -> None:
    listed_log.append(opened(1))
    following = follower(1)
    before = following.stable_state
    await following.refresh_to_end()
    judged_by = following.stable_state
    assert following.stable_state is judged_by, "copied once, however often it is asked for"
    listed_log.append(opened(2))
    following._ends.own = 2  # type: ignore[attr-defined]
    await following.refresh_to_end()
    assert [epochs(log_state) for log_state in (before, judged_by, following.stable_state)] == [
        [],
        [1],
        [1, 2],
    ]


class Published:
    """A gateway's listener, which may fail."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.published: list[int] = []
        self.fails = False

    def take(self, log_state: ReleaseLogState, record: LogRecord) -> None:
        assert log_state.read_upto == record.offset + 1, (
            "told of each record as the log state has it"
        )
        self.taken.append(record.offset)

    def publish(self, log_state: ReleaseLogState) -> None:
        if self.fails:
            raise LookupError("a master secret is missing")
        self.published = list(self.taken)


async def test_nobody_hears_that_the_end_was_reached_before_it_was_published(
    listed_log: ListedLog,
) -> None:
    """Otherwise a gateway would refuse reports on a list just read, permanently, as unknown."""
    published = Published()
    following = follower(3, since_ms=0, listener=published)
    for epoch in (1, 2, 3):
        listed_log.append(opened(epoch))
    seen: list[list[int]] = []

    async def wait() -> None:
        await following.reached(3)
        seen.append(published.published)

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    while not waiting.done():
        await following.step()
    assert seen == [[0, 1, 2]]

    listed_log.append(opened(4))
    published.fails = True
    with pytest.raises(LookupError):
        await following.step()
    assert following.position == 3, "what could not be published was not read"


async def test_a_server_that_shows_no_more_is_left_for_another(
    listed_log: ListedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An isolated broker responds from its stale replica, without an error and without end."""
    monkeypatch.setattr("blendstream.streams.releases.reader.REOPEN_AFTER_S", 0.05)
    listed_log.append(opened(1))
    listed_log.append(entries.fence("ours", Kind.KEEPER), opened(2))
    # The first consumer looks for the start.
    listed_log.shown = [1, 1, 1]
    deciding = LogReader(SETTINGS.kafka, "x.releases")
    assert epochs(await deciding.catch_up()) == [1], "the old copy is enough to look"
    assert epochs(await deciding.read_until("ours", 10.0)) == [1, 2]
    listed_log.shown = [1, 1, 1]
    following = follower(1, 2)
    await following.refresh_to_end()
    assert epochs(following.stable_state) == [1]
    await following.refresh_to_end(furthest=True)
    assert epochs(following.stable_state) == [1, 2]


async def test_a_quiet_server_is_left_for_another_although_nobody_knows_of_more(
    listed_log: ListedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An isolated broker claims to lead, and reports the end of its stale replica."""
    listed_log.append(opened(1))
    listed_log.append(opened(2))
    listed_log.shown = [1, 1]  # The broker that answers the start, and the one that answers first.
    looking = LogReader(SETTINGS.kafka, "x.releases")
    for _ in range(3):
        assert epochs(await looking.catch_up()) == [1]
    monkeypatch.setattr("blendstream.streams.releases.reader.RENEW_AFTER_S", 0.0)
    looking._renew_at = 0.0
    assert epochs(await looking.catch_up()) == [1, 2]


async def test_what_is_never_shown_ends_with_a_sentence(
    listed_log: ListedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blendstream.streams.releases.reader.REOPEN_AFTER_S", 0.05)
    listed_log.append(opened(1))
    deciding = LogReader(SETTINGS.kafka, "x.releases")
    with pytest.raises(StoreUnavailable, match=r"must show a record.*blendstream doctor"):
        await deciding.read_until("nobody's", 0.3)
    following = follower(2)
    following._timeout_s = 0.3
    with pytest.raises(StoreUnavailable, match="could not be read to its end in time"):
        await following.refresh_to_end()


async def test_a_frame_is_unknown_only_after_its_writers_position_was_read(
    listed_log: ListedLog,
) -> None:
    """Its own broker, then all of them, then a record that is younger than the frame."""
    for epoch in (1, 2, 3):
        listed_log.append(opened(epoch))
    listed_log.shown = [1, 1]  # The broker that answers the start, and the one that answers first.
    following = follower(1, 1)
    assert not await following.read_for([UnknownFrame(0, 10**6, 3)])
    assert epochs(following.stable_state) == [1]
    following._ends.own = 3  # type: ignore[attr-defined]
    assert await following.read_for([UnknownFrame(0, 10**6, 3)])
    assert epochs(following.stable_state) == [1, 2, 3]
    assert not await following.read_for([UnknownFrame(0, 10**6, 10**9)])
    listed_log.records.append(LogRecord(3, 10**6 + 20_000, b"other", b""))
    following._ends.own = 4  # type: ignore[attr-defined]
    assert await following.read_for([UnknownFrame(0, 10**6, 10**9)]), "no position of this log"


async def test_times_of_two_brokers_that_are_close_prove_no_order(listed_log: ListedLog) -> None:
    """Each clock may be 5 s off: a record stamped 10 s after the frame may be the older of the two.
    Taken for younger, a frame would be refused before the epoch that it names was read."""
    appended_ms = 10**6
    frame = UnknownFrame(0, appended_ms, 10**9)
    listed_log.append(opened(1))
    following = follower(2, skew_s=5.0)
    listed_log.records.append(LogRecord(1, appended_ms + 10_000, b"other", b""))
    assert not await following.read_for([frame])
    listed_log.records.append(LogRecord(2, appended_ms + 10_001, b"other", b""))
    following._ends.own = 3  # type: ignore[attr-defined]
    assert await following.read_for([frame])


async def test_a_caller_that_gives_up_leaves_nothing_half_read(listed_log: ListedLog) -> None:
    """The thread that reads cannot be ended: records that it has fetched are folded first."""
    listed_log.append(opened(1))
    listed_log.poll_s = 0.02
    following = follower(1)
    for _ in range(20):
        reading = asyncio.create_task(following.refresh_to_end())
        await asyncio.sleep(0.005)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    await following.refresh_to_end()
    await following.close()
    assert epochs(following.stable_state) == [1]
    assert listed_log.closed_while_polled == 0, "librdkafka allows for no such thing"
