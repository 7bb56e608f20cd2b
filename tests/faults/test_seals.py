"""Accepted entries are counted: the origin of a seal's bounds, whatever a broker or clock reports.

Not a failure: markers that no seal names. A keeper that dies, or finds that it was too early,
leaves some behind, and they mean nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from blendstream.streams.kafka.kafka_clients import KafkaInspector
from blendstream.streams.names import InputStream, OptinSubgroup
from blendstream.streams.releases.epoch_state import Stage
from blendstream.streams.releases.seal_markers import SealMarkers
from blendstream.streams.tables.redis import connect_redis
from blendstream.streams.wire.frames import FrameKind
from tests.service.epochs import EpochService, epoch_service
from tests.service.jobs import Clock, bench

OPTIN = InputStream.OPTIN_RECORDS


def begun() -> dict[str, str]:
    """Windows of an hour, the first of which began a moment ago."""
    return {"epoch__origin_unix_s": str(int(time.time()) - 5)}


async def all_counted(made: EpochService, epoch: int) -> bool:
    counted = await made.counted(epoch)
    return counted == {
        share: dict(made.sent.get((epoch, share), Counter())) for share in OptinSubgroup
    }


async def test_records_sent_after_a_dead_keepers_markers_are_counted(kafka, redis_server):
    """It died between its markers and the seal. Nobody may go by those markers: what came behind
    them was accepted."""
    rng = np.random.default_rng(1)
    async with epoch_service(kafka.url, redis_server.url, **begun()) as made:
        made.start_worker()
        made.start_jobs()
        opened = await made.until_stage(0, Stage.COLLECTING)
        made.send_optin(opened, 60, rng)
        made.order("keeper.marked", "kill")
        made.run_ahead(opened.parameters.records_sealable_at_ms - time.time_ns() // 1_000_000)
        await made.disturbed()
        assert (await made.log_state()).epochs[0].stage is Stage.COLLECTING
        dead = {p: sorted(m) for p, m in made.markers(OPTIN).items()}
        made.send_optin(opened, 60, rng)  # In time by the broker's clock, which did not run ahead.

        made.start_jobs()
        sealed = await made.until_stage(0, Stage.SEALED, Stage.REPORTING)
        await made.until(lambda: all_counted(made, 0), 30, "every accepted record")
        assert sealed.records_sealed is not None
        for partition, bound in enumerate(sealed.records_sealed.bounds):
            markers = made.markers(OPTIN)[partition]
            assert bound in markers
            assert bound > dead[partition][0]
            assert (markers[bound].kind, markers[bound].epoch) == (FrameKind.OPTIN_RECORDS, 0)


async def test_a_keeper_that_died_between_two_partitions_changes_nothing(kafka, redis_server):
    """Its markers lie in some partitions only; the next keeper marks all of them."""
    clock = Clock()
    async with (
        epoch_service(kafka.url, redis_server.url, **begun()) as made,
        bench(made, clock) as jobs,
    ):
        await jobs.keep()
        topic = made.topics.of(OPTIN).name
        await SealMarkers(made.settings.kafka).write(OPTIN, topic, 1, 0)
        await SealMarkers(made.settings.kafka).write(OPTIN, topic, 1, 0)
        clock.now_ms = (await made.log_state()).epochs[0].parameters.records_sealable_at_ms
        await jobs.keep()

        seal = (await made.log_state()).epochs[0].records_sealed
        assert seal is not None
        assert seal.bounds == (2, 0)


async def test_a_marker_before_the_time_is_thrown_away_and_repeated(kafka, redis_server, caplog):
    """A keeper whose clock is ahead, if only by a second, must wait for the brokers' clocks."""
    clock = Clock()
    async with (
        epoch_service(kafka.url, redis_server.url, **begun()) as made,
        bench(made, clock) as jobs,
    ):
        await jobs.keep()
        due_ms = (await made.log_state()).epochs[0].parameters.records_sealable_at_ms
        clock.now_ms = due_ms + 1_000
        jobs.context.brokers_ms = lambda _: due_ms - 1
        await jobs.keep()
        assert (await made.log_state()).epochs[0].stage is Stage.COLLECTING
        assert "markers_too_early" in caplog.text
        assert [sorted(found) for found in made.markers(OPTIN).values()] == [[0], [0]]

        jobs.context.brokers_ms = lambda _: due_ms
        await made.until(lambda: _sealed(made, jobs), 10, "the seal")
        seal = (await made.log_state()).epochs[0].records_sealed
        assert seal is not None
        assert seal.bounds == (1, 1)


async def _sealed(made: EpochService, jobs) -> bool:
    await jobs.keep()
    return (await made.log_state()).epochs[0].stage is Stage.SEALED


class FrozenLog(KafkaInspector):
    """Answers as a broker that was cut off from its peers: from a copy that stays as it was."""

    async def ends(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        return dict.fromkeys(partitions, 0)


async def test_a_stale_answer_about_the_end_of_a_partition_bounds_nothing(kafka, redis_server):
    """140 accepted records were refused as late, because a seal's bounds were asked for."""
    clock = Clock()
    rng = np.random.default_rng(3)
    async with (
        epoch_service(kafka.url, redis_server.url, **begun()) as made,
        bench(made, clock) as jobs,
    ):
        await jobs.keep()
        opened = (await made.log_state()).epochs[0]
        made.send_optin(opened, 100, rng)
        ends = await made.kafka.ends(made.topics.of(OPTIN).name, range(made.partitions))
        jobs.context.kafka = FrozenLog(made.settings.kafka)
        clock.now_ms = opened.parameters.records_sealable_at_ms
        await jobs.keep()

        seal = (await made.log_state()).epochs[0].records_sealed
        assert seal is not None
        assert seal.bounds == tuple(ends.values())
        made.start_worker()
        await made.until(lambda: all_counted(made, 0), 60, "every accepted record")


@pytest.mark.parametrize("partitions", [1, 5])
async def test_markers_say_where_they_lie_and_when_the_broker_got_them(
    kafka, redis_server, partitions: int
):
    async with epoch_service(kafka.url, redis_server.url, partitions=partitions) as made:
        topic, writer = made.topics.of(OPTIN).name, SealMarkers(made.settings.kafka)
        before_ms = time.time_ns() // 1_000_000
        first = await writer.write(OPTIN, topic, partitions, 7)
        again = await writer.write(OPTIN, topic, partitions, 7)
        writer.close()

        assert [marker.offset for marker in first] == [0] * partitions
        assert [marker.offset for marker in again] == [1] * partitions
        for marker in (*first, *again):
            assert before_ms - 1_000 < marker.append_ms <= time.time_ns() // 1_000_000 + 1_000
        found = made.markers(OPTIN)
        assert {m.epoch for markers in found.values() for m in markers.values()} == {7}
        assert found[0][0].id != found[0][1].id


async def test_jobs_whose_clock_is_ahead_give_up_their_leases_and_come_back(kafka, redis_server):
    """A clock 12 s ahead sealed early: 80 accepted reports were lost, and nobody was warned."""
    rng = np.random.default_rng(5)
    async with epoch_service(kafka.url, redis_server.url, **begun()) as made:
        made.start_worker()
        jobs = made.start_jobs()
        opened = await made.until_stage(0, Stage.COLLECTING)
        made.send_optin(opened, 60, rng)
        await made.until(lambda: leases(made), 20, "the leases")

        # Six seconds before the time to seal; by the jobs' clock six seconds after it.
        made.skew_jobs(12_000)
        due_ms = opened.parameters.records_sealable_at_ms
        made.run_ahead(due_ms - 6_000 - time.time_ns() // 1_000_000)
        await made.until(lambda: gave_up(made), 20, "an end of the leases")
        assert "clock_skew_exceeded" in jobs.output()
        assert "lease_released" in jobs.output()
        assert jobs.running
        made.send_optin(opened, 60, rng)
        assert (await made.log_state()).epochs[0].stage is Stage.COLLECTING

        made.skew_jobs(0)
        sealed = await made.until_stage(0, Stage.SEALED, Stage.REPORTING)
        assert sealed.records_sealed is not None
        assert "clock_skew_ended" in jobs.output()
        await made.until(lambda: all_counted(made, 0), 30, "every accepted record")


async def leases(made: EpochService) -> set[str]:
    """Return the kinds of jobs whose lease a process holds."""
    client = await connect_redis(made.settings.redis)
    prefix = f"{made.settings.topics.prefix}:lease:"
    found = {str(key, "ascii") async for key in client.scan_iter(match=f"{prefix}*")}
    await client.aclose()
    return {key.removeprefix(prefix) for key in found}


async def gave_up(made: EpochService) -> bool:
    return not await leases(made)
