"""An isolated broker reports an old end offset: it causes no refusal and no permanent halt.

The counter runs in this process, fed by hand, on a real broker. Only the answers about ends are
frozen, as a broker's are that was cut off from its peers; one test of three real brokers does that
with the network.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from weakref import WeakKeyDictionary

import numpy as np
import pytest

from blendstream.agents.worker import partition_counter, partition_resume
from blendstream.agents.worker.halt_reasons import HaltReason
from blendstream.streams.kafka.kafka_clients import KafkaInspector, LogBounds
from blendstream.streams.names import InputStream
from blendstream.streams.releases.log_consumer import LogConsumer, LogRecord
from blendstream.streams.tables.batch_verdict import Refusal
from tests.kafka_topics import delete_records
from tests.release_entries import estimates_entry
from tests.report_frames import encode_reports
from tests.service.counting import Installation, contributors
from tests.service.counting_in_process import Bench, send

pytestmark = pytest.mark.faults
REPORTS = InputStream.CLIENT_REPORTS


class Cut(KafkaInspector):
    """Tells the ends of before once `freeze` was called: its own broker's, or every broker's."""

    def __init__(self, made: Installation) -> None:
        super().__init__(made.settings.kafka)
        self.frozen: dict[str, dict[int, int]] = {}
        self.every_broker = False

    async def freeze(self, made: Installation, *, every_broker: bool) -> None:
        self.every_broker = every_broker
        for topic in (made.topics.releases, made.topics.client_reports):
            self.frozen[topic.name] = await super().ends(topic.name, range(topic.partitions))

    def heal(self) -> None:
        self.frozen.clear()

    async def ends(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        if topic in self.frozen:
            return {p: self.frozen[topic][p] for p in partitions}
        return await super().ends(topic, partitions)

    async def bounds(self, topic: str, number: int) -> LogBounds:
        true = await super().bounds(topic, number)
        return LogBounds(true.begin, (await self.ends(topic, [number]))[number])

    async def max_end_offset(self, topic: str, number: int) -> int:
        if topic in self.frozen and self.every_broker:
            return self.frozen[topic][number]
        return await super().max_end_offset(topic, number)

    def hide_records(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A consumer polled while every broker is frozen shows no more than that, for ever."""
        poll, limits = LogConsumer.poll, WeakKeyDictionary[LogConsumer, int]()

        def shown(consumer: LogConsumer) -> tuple[list[LogRecord], int | None]:
            records, end = poll(consumer)
            if self.every_broker and consumer._topic in self.frozen:
                limits.setdefault(consumer, self.frozen[consumer._topic][0])
            limit = limits.get(consumer)
            if limit is None:
                return records, end
            below = [record for record in records if record.offset < limit]
            return below, None if end is None else min(end, limit)

        monkeypatch.setattr(LogConsumer, "poll", shown)


@pytest.fixture
async def bench(
    made: Installation, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Bench, Cut]]:
    monkeypatch.setattr(partition_counter, "_LOG_WAIT_S", 0.3)
    monkeypatch.setattr(partition_counter, "_RECHECK_S", 0.0)
    monkeypatch.setattr(partition_resume, "_END_SETTLES_S", 0.3)
    tables = await made.tables(REPORTS)
    made.open_epoch(1)
    made.publish_head_list(1, cells=40)
    made.kafka = cut = Cut(made)
    cut.hide_records(monkeypatch)
    built = Bench(made, tables)
    send(made, frames=1)
    await built.count(built.log())
    yield built, cut
    await tables.close()


async def goes_on(bench: Bench) -> bool:
    await bench.counter.check()
    return not bench.counter.halted


async def test_a_fresh_head_list_that_one_broker_does_not_show_is_not_unknown(
    bench: tuple[Bench, Cut],
) -> None:
    """Its reports were accepted, and refused as unknown for good."""
    counting, cut = bench
    made = counting.made
    await cut.freeze(made, every_broker=False)
    made.open_epoch(2)
    made.publish_head_list(2, cells=7)
    rng = np.random.default_rng(2)
    made.send_reports(2, 0, contributors(rng, 10), rng)
    made.flush()
    await counting.count(counting.log(start=1))
    assert counting.counter.halted == {}
    await made.assert_exact()


async def test_where_no_broker_shows_it_the_partition_waits_and_goes_on_by_itself(
    bench: tuple[Bench, Cut],
) -> None:
    """Nothing is refused until the worker has read as far as the frame's gateway had."""
    counting, cut = bench
    made = counting.made
    await cut.freeze(made, every_broker=True)
    made.open_epoch(2)
    made.publish_head_list(2, cells=7)
    rng = np.random.default_rng(2)
    made.send_reports(2, 0, contributors(rng, 10), rng)
    made.flush()
    send(made, frames=1, partition=1, seed=5)
    await asyncio.gather(
        counting.count(counting.log(start=1)), counting.count(counting.log(partition=1), 1)
    )
    assert counting.counter.halted == {0: HaltReason.LOG_BEHIND}
    assert not counting.counter.ready
    assert await counting.stored() == 1
    assert await counting.stored(1) == 1, "the other partition goes on"
    await counting.counter.check()
    assert counting.counter.halted == {0: HaltReason.LOG_BEHIND}, "it looks again, in vain"

    cut.heal()
    await made.until(lambda: goes_on(counting), 10, "an end of the stop")
    await counting.count(counting.log(start=1))
    await made.assert_exact()


async def test_a_position_that_is_none_of_this_log_holds_a_partition_up_only_until_the_log_moves(
    bench: tuple[Bench, Cut],
) -> None:
    """A damaged frame, or one from before the log was restored. What lies before a record that was
    appended after the frame is all that its writer can have read."""
    counting, _ = bench
    made = counting.made
    rng = np.random.default_rng(3)
    cells = np.zeros((3, 1), int)
    made.send(
        REPORTS, 0, encode_reports(2, bytes(32), contributors(rng, 3), cells, 1, log_position=10**9)
    )
    made.flush()
    send(made, frames=1, seed=6)
    await counting.count(counting.log(start=1))
    assert counting.counter.halted == {0: HaltReason.LOG_BEHIND}

    await asyncio.sleep(2 * counting.skew_s + 0.2)
    made.open_epoch(2)
    await made.until(lambda: goes_on(counting), 10, "an end of the stop")
    made.expect_refused(REPORTS, "unknown", Refusal.UNKNOWN_HEAD_LIST, 3)
    await counting.count(counting.log(start=1))
    await made.assert_exact()


async def test_an_end_that_one_broker_tells_stops_nothing(bench: tuple[Bench, Cut]) -> None:
    """Redis has counted what that broker does not have yet."""
    counting, cut = bench
    await cut.freeze(counting.made, every_broker=False)
    send(counting.made, frames=2, seed=7)
    await counting.count(counting.log(start=1))
    counting.counter = counting.new_counter()
    assert await counting.counter.resume(0) == 3
    assert counting.counter.halted == {}


async def test_a_partition_stopped_by_stale_ends_goes_on_without_a_restart(
    bench: tuple[Bench, Cut],
) -> None:
    """It stood until somebody restarted the worker."""
    counting, cut = bench
    await cut.freeze(counting.made, every_broker=True)
    send(counting.made, frames=2, seed=7)
    await counting.count(counting.log(start=1))
    counting.counter = counting.new_counter()
    assert await counting.counter.resume(0) is None
    assert counting.counter.halted == {0: HaltReason.OFFSET_BEYOND_END}
    await counting.counter.check()
    assert counting.counter.halted == {0: HaltReason.OFFSET_BEYOND_END}

    cut.heal()
    await counting.made.until(lambda: goes_on(counting), 10, "an end of the stop")
    send(counting.made, frames=1, seed=8)
    await counting.count(counting.log(start=3))
    assert await counting.stored() == 4
    await counting.made.assert_exact()


async def test_a_log_that_was_cut_off_and_grew_again_stays_stopped(
    bench: tuple[Bench, Cut],
) -> None:
    """Other records have the offsets that Redis has counted: going on would lose them."""
    counting, _ = bench
    state = counting.tables.key(0, "state")
    await counting.tables._client.hset(state, "offset", "3")
    counting.counter = counting.new_counter()
    await counting.counter.resume(0)
    assert counting.counter.halted == {0: HaltReason.OFFSET_BEYOND_END}

    send(counting.made, frames=4, seed=7)
    for _ in range(3):
        await counting.counter.check()
        await asyncio.sleep(0.1)
    assert counting.counter.halted == {0: HaltReason.OFFSET_BEYOND_END}


async def test_epochs_that_redis_bars_and_a_stale_log_has_open_stop_only_for_a_while(
    bench: tuple[Bench, Cut],
) -> None:
    """The release is in the log, and the broker that is asked does not have it yet."""
    counting, cut = bench
    made = counting.made
    made.open_epoch(2)
    await cut.freeze(made, every_broker=True)
    made.publish(estimates_entry(1))
    await counting.tables.close_epochs(0, 1)
    counting.counter = counting.new_counter()
    await counting.counter.resume(0)
    assert counting.counter.halted == {0: HaltReason.STORE_REFUSED}

    cut.heal()
    await made.until(lambda: goes_on(counting), 10, "an end of the stop")


async def test_records_removed_on_purpose_are_not_lost_because_one_broker_lags(
    bench: tuple[Bench, Cut],
) -> None:
    """An epoch that is complete must not be published as incomplete."""
    counting, cut = bench
    made = counting.made
    await cut.freeze(made, every_broker=False)
    send(made, frames=3, seed=9)
    made.publish(
        {"entry": "log_trimmed", "topic": "client_reports", "topic_version": 1, "bounds": [3, 0]}
    )
    delete_records(made.settings.kafka.bootstrap, made.topics.client_reports.name, 0, 3)
    counting.counter = counting.new_counter()
    assert await counting.counter.resume(0) == 3
    assert (await counting.tables.totals(0, 1)).get("incomplete", 0) == 0


async def test_the_furthest_end_is_that_of_the_brokers(bench: tuple[Bench, Cut]) -> None:
    counting, _ = bench
    made = counting.made
    log, topic = KafkaInspector(made.settings.kafka), made.topics.client_reports.name
    ends = await log.ends(topic, range(made.partitions))
    found = await asyncio.gather(
        *(log.max_end_offset(topic, p) for p in range(made.partitions) for _ in range(20))
    )
    assert found == [ends[p] for p in range(made.partitions) for _ in range(20)]
