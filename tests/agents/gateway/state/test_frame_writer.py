"""Frames close, travel and are answered for, whatever the broker does."""

from __future__ import annotations

import asyncio

import pytest

from blendstream.agents.gateway.state.frame_writer import FrameWriter, OptinFrames, ReportFrames
from blendstream.streams.settings.sections import GatewaySettings
from blendstream.streams.wire.frames import OptinEntry
from tests.agents.gateway.doubles import ScriptedProducer

KIND = ReportFrames(
    "reports", epoch=7, head_list_id=bytes(32), per_entry=1, width=1, log_position=41
)
LIMITS = GatewaySettings(linger_s=0.01, delivery_deadline_s=0.1, buffer_bytes=1 << 20)


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


def add_report(writer: FrameWriter, kind: ReportFrames, partition: int, key: bytes, cells: bytes):
    ((_, delivered),) = writer.add_reports(kind, partition, key, cells)
    return delivered


async def test_entries_of_one_partition_share_a_frame_and_its_acknowledgement():
    """A frame for each entry would cost the workers a Kafka message for each."""
    producer = ScriptedProducer()
    producer.append_ms = 1234
    writer = FrameWriter(producer, LIMITS)

    first = add_report(writer, KIND, 0, key(1), b"\x03")
    second = add_report(writer, KIND, 0, key(2), b"\x04")
    other = add_report(writer, KIND, 1, key(3), b"\x05")

    assert first is second
    assert await asyncio.gather(first, second, other) == [1234, 1234, 1234]
    frames = producer.frames()
    assert sorted(len(frame) for frame in frames) == [1, 2]
    assert writer.held_bytes == 0


async def test_a_frame_closes_by_count_and_by_bytes_before_its_linger_is_over():
    """A worker refuses frames over the limit whole."""
    slow = GatewaySettings(
        linger_s=60, delivery_deadline_s=1, buffer_bytes=1 << 20, frame_bytes=300, frame_entries=5
    )
    producer = ScriptedProducer()
    writer = FrameWriter(producer, slow)

    by_count = [add_report(writer, KIND, 0, key(i), b"\x01") for i in range(5)]
    await asyncio.gather(*by_count)
    entry = OptinEntry(key(1), 0, b"q" * 60, b"u" * 60)
    optin = OptinFrames("records", 7, log_position=40)
    by_bytes = [writer.add_optin_record(optin, 0, entry) for _ in range(2)]
    await by_bytes[0]

    assert [len(frame) for frame in producer.frames()] == [5, 1]
    # Workers read the release log so far before they call a head list or an epoch unknown.
    assert [frame.log_position for frame in producer.frames()] == [41, 40]
    assert all(len(value) <= 300 for _, _, value in producer.sent)
    assert not by_bytes[1].done()
    await writer.close(1)
    assert by_bytes[1].done()


async def test_a_batch_is_cut_into_frames_within_the_limits_and_loses_nothing():
    """Ten thousand reports of one partition do not fit into one frame."""
    producer = ScriptedProducer()
    writer = FrameWriter(
        producer,
        GatewaySettings(
            linger_s=0.001, delivery_deadline_s=1, buffer_bytes=1 << 24, frame_entries=300
        ),
    )
    total = 1000

    added = writer.add_reports(KIND, 0, b"".join(map(key, range(total))), bytes(total))
    await asyncio.wait({delivered for _, delivered in added})

    assert [count for count, _ in added] == [300, 300, 300, 100]
    joined = b"".join(frame.contributors.tobytes() for frame in producer.frames())
    assert joined == b"".join(map(key, range(total)))


async def test_what_is_not_acknowledged_in_time_is_answered_and_still_counted_as_held():
    """aiokafka never gives up: forgetting the bytes at the deadline would unbound the memory."""
    producer = ScriptedProducer()
    producer.holding = True
    late = []
    writer = FrameWriter(producer, LIMITS, on_late=lambda: late.append(1))

    assert await add_report(writer, KIND, 0, key(1), b"\x01") is None
    assert writer.held_bytes > 0
    assert late == [1]
    producer.release()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert writer.held_bytes == 0


async def test_a_partition_that_owes_an_acknowledgement_refuses_and_others_go_on():
    """One dead leader must not stop the other partitions, nor make everyone wait a deadline."""
    producer = ScriptedProducer()
    producer.holding = True
    writer = FrameWriter(producer, LIMITS)
    await add_report(writer, KIND, 0, key(1), b"\x01")

    assert writer.is_stalled("reports", 0)
    assert not writer.is_stalled("reports", 1)
    assert writer.stalled_partitions == 1
    producer.release()
    await asyncio.sleep(0.01)
    assert not writer.is_stalled("reports", 0)


async def test_the_bytes_held_are_bounded():
    """Back-pressure: beyond the limit the answer is no, at once."""
    producer = ScriptedProducer()
    producer.holding = True
    writer = FrameWriter(
        producer, GatewaySettings(linger_s=0.001, delivery_deadline_s=0.05, buffer_bytes=1000)
    )
    added = 0
    while writer.has_room(KIND.entry_bytes):
        add_report(writer, KIND, added % 4, key(added), b"\x01")
        added += 1
        assert added < 1000
    await asyncio.sleep(0.1)

    assert not writer.has_room(KIND.entry_bytes)
    assert writer.held_bytes <= 1000 + 4 * 64
    producer.release()
    await asyncio.sleep(0.01)
    assert writer.has_room(900)


async def test_a_producer_that_fails_means_send_again_not_an_error():
    """Whoever waits is told that the entry is not in the log; nothing is raised at them."""
    producer = ScriptedProducer()
    producer.failure = ConnectionError("gone")
    writer = FrameWriter(producer, LIMITS)

    assert await add_report(writer, KIND, 0, key(1), b"\x01") is None
    assert writer.held_bytes == 0


async def test_a_frame_whose_append_time_is_not_told_is_not_known_to_be_in_time():
    """Our own clock may be behind: it would call in time what the counters call late."""
    producer = ScriptedProducer()
    producer.append_known = False
    writer = FrameWriter(producer, LIMITS)

    assert await add_report(writer, KIND, 0, key(1), b"\x01") is None
    assert writer.held_bytes == 0
    assert not writer.is_stalled("reports", 0), "the broker has answered"


async def test_closing_flushes_what_is_open():
    """A stop must not lose what is in a half-full frame, nor wait for its linger."""
    producer = ScriptedProducer()
    writer = FrameWriter(
        producer, GatewaySettings(linger_s=60, delivery_deadline_s=1, buffer_bytes=1 << 20)
    )
    delivered = add_report(writer, KIND, 0, key(1), b"\x01")

    await asyncio.wait_for(writer.close(1), 0.5)

    assert delivered.result() is not None
    assert producer.entries() == 1


async def test_closing_gives_up_at_its_deadline():
    """A broker that is gone must not keep a gateway from ending."""
    producer = ScriptedProducer()
    producer.holding = True
    writer = FrameWriter(
        producer, GatewaySettings(linger_s=0.001, delivery_deadline_s=60, buffer_bytes=1 << 20)
    )
    add_report(writer, KIND, 0, key(1), b"\x01")

    async with asyncio.timeout(1):
        await writer.close(0.05)


@pytest.mark.parametrize("width", [1, 2, 4])
async def test_cells_travel_in_the_width_of_their_head_list(width):
    """The counters read the width from the frame's header."""
    kind = ReportFrames("reports", 7, bytes(32), per_entry=2, width=width, log_position=1)
    producer = ScriptedProducer()
    writer = FrameWriter(producer, LIMITS)
    cells = [3, (1 << 8 * width) - 1]

    await add_report(writer, kind, 0, key(1), b"".join(c.to_bytes(width, "little") for c in cells))

    assert producer.frames()[0].cells.tolist() == [cells]


async def test_a_producer_that_makes_one_partition_wait_does_not_hold_up_the_others():
    """Its buffer for a dead leader is full; the frames of living ones must still leave."""

    class OneStuck(ScriptedProducer):
        async def send(self, topic, partition, value):
            if partition == 0 and self.sent:
                await asyncio.sleep(60)
            return await super().send(topic, partition, value)

    producer = OneStuck()
    writer = FrameWriter(
        producer, GatewaySettings(linger_s=0.001, delivery_deadline_s=0.3, buffer_bytes=1 << 24)
    )
    producer.holding = True
    big = 12_000  # of 17 bytes: over half of what a partition may have under way
    for _ in range(3):
        writer.add_reports(KIND, 0, b"".join(map(key, range(big))), bytes(big))
        await asyncio.sleep(0.01)
    producer.holding = False

    add_report(writer, KIND, 0, key(2), b"\x01")  # closes together with the next one
    async with asyncio.timeout(0.25):
        assert await add_report(writer, KIND, 1, key(1), b"\x01") is not None
    for task in writer._sending:
        task.cancel()
