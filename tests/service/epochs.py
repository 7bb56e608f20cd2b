"""A service whose epochs are run by real jobs, and people whose every entry is remembered."""

from __future__ import annotations

import asyncio
import contextlib
import time
import zlib
from collections import Counter
from typing import Any

import numpy as np
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from blendstream.agents.worker.entry_checks import _subgroups as subgroups_of_contributors
from blendstream.blender.registry import randomizer_for
from blendstream.blender.values.cells import HeadList
from blendstream.blender.values.interfaces import OptinCounts
from blendstream.blender.values.record import Record
from blendstream.streams.epoch_keys import EpochKeys, PeriodSubgroups
from blendstream.streams.errors import StoreUnavailable
from blendstream.streams.names import InputStream, OptinSubgroup
from blendstream.streams.releases.epoch_state import EpochState, Stage
from blendstream.streams.tables.redis import connect_redis
from blendstream.streams.wire.frames import (
    Frame,
    Marker,
    OptinEntry,
    cell_width,
    decode,
    encode_optin_records,
)
from tests.counted_records import record_counts
from tests.report_frames import encode_reports
from tests.service.builder import Service, service
from tests.service.settings import MASTER

__all__ = ["EpochService", "epoch_service", "optin_counts", "take_part"]


class EpochService(Service):
    """The service, the entries sent to it, and its contents."""

    def __init__(self, *where: str, **options: Any) -> None:
        super().__init__(*where, **{"log__form": "text"} | options)
        self.sent: dict[tuple[int, OptinSubgroup], Counter[Record | None]] = {}
        self.reported: dict[int, Counter[int]] = {}
        self.reports: Counter[int] = Counter()
        #: Where the last acknowledged frame of an epoch lies, by partition.
        self.last_offsets: dict[tuple[InputStream, int], dict[int, int]] = {}
        self.texts: set[str] = set()
        self._reader: Consumer | None = None

    async def close(self) -> None:
        await super().close()
        if self._reader is not None:
            self._reader.close()

    # --- sending --------------------------------------------------------------------------------

    def _send(
        self, stem: InputStream, partition: int, frame: bytes, epoch: int | None = None
    ) -> None:
        def acknowledged(error: KafkaError | None, message: Message) -> None:
            if error is None and epoch is not None:
                self.last_offsets.setdefault((stem, epoch), {})[partition] = message.offset()

        self.producer.produce(
            self.topics.of(stem).name, value=frame, partition=partition, on_delivery=acknowledged
        )

    def send_raw(self, stem: InputStream, partition: int, value: bytes) -> None:
        """Bytes that no worker of the test reads: they move the end of a partition."""
        self._send(stem, partition, value)
        self.flush()

    def flush(self) -> None:
        if self.producer.flush(60):
            raise AssertionError("the broker did not acknowledge in a minute")

    def send_optin(
        self, state: EpochState, users: int, rng: np.random.Generator, *, without: int = 0
    ) -> None:
        """Users with one record each, Zipf over a few dozen; every one must be counted.

        As many as `without` more say that they have none; `sent` has them as `None`.
        """
        epoch = state.epoch
        keys = EpochKeys.derive(MASTER, epoch)
        contributors = [rng.bytes(16) for _ in range(users + without)]
        if (period := state.parameters.period) is not None:  # The share is told, as a gateway does.
            told = PeriodSubgroups(MASTER, period)
            contributors = [keys.contributor_in(who, told.of(who)) for who in contributors]
        numbers = np.minimum(rng.zipf(1.6, users), 40).tolist() + [None] * without
        columns = np.array([np.frombuffer(c, "<u8") for c in contributors])
        shares = subgroups_of_contributors(state, keys, columns)
        by_partition: dict[int, list[OptinEntry]] = {}
        for contributor, number, share in zip(contributors, numbers, shares, strict=True):
            record, query, url = None, "", ""
            if number is not None:
                # No text is part of another one: the tests search for them.
                query, url = (
                    f"query {epoch} {number:03}",
                    f"https://site-{number:03}.example/{epoch}",
                )
                record = Record(query, url)
                self.texts |= {query, url}
            place = keys.partition_of(contributor, self.partitions)
            entry = OptinEntry(contributor, 0, query.encode(), url.encode())
            by_partition.setdefault(place, []).append(entry)
            self.sent.setdefault((epoch, list(OptinSubgroup)[share]), Counter())[record] += 1
        for partition, entries in by_partition.items():
            frame = encode_optin_records(epoch, entries, log_position=state.opened_offset + 1)
            self._send(InputStream.OPTIN_RECORDS, partition, frame, epoch)
        self.flush()

    def send_reports(
        self, state: EpochState, head_list: HeadList, n: int, rng: np.random.Generator
    ) -> None:
        """Devices that hold random cells and answer by the head list's own randomizer."""
        assert state.head_list is not None
        epoch, released = state.epoch, state.head_list.head_list
        randomizer = randomizer_for(head_list)
        truth = rng.integers(0, len(head_list.cells), n)
        answers = np.asarray(randomizer.answer_batch(truth, rng)).reshape(n, -1)
        keys = EpochKeys.derive(MASTER, epoch)
        contributors = [rng.bytes(16) for _ in range(n)]
        places = np.array([keys.partition_of(c, self.partitions) for c in contributors])
        for partition in range(self.partitions):
            mine = np.flatnonzero(places == partition)
            if len(mine):
                frame = encode_reports(
                    epoch, bytes.fromhex(released.id), [contributors[i] for i in mine],
                    answers[mine], cell_width(len(head_list.cells)),
                    log_position=released.entry_offset + 1,
                )  # fmt: skip
                self._send(InputStream.CLIENT_REPORTS, partition, frame, epoch)
        self.flush()
        self.reported.setdefault(epoch, Counter()).update(answers.ravel().tolist())
        self.reports[epoch] += n

    # --- looking --------------------------------------------------------------------------------

    @property
    def has_workers(self) -> bool:
        """True if a worker was started; then the test itself counts nothing."""
        return bool(self.of_kind("worker"))

    def markers(self, stem: InputStream) -> dict[int, dict[int, Marker]]:
        """Every marker in a topic, by partition and offset."""
        return {
            partition: {at: frame for at, frame in found.items() if isinstance(frame, Marker)}
            for partition, found in self.frames(stem).items()
        }

    def frames(self, stem: InputStream) -> dict[int, dict[int, Frame]]:
        """All that a topic holds, by partition and offset."""
        if self._reader is None:  # Kept: connecting takes longer than reading.
            self._reader = Consumer(
                {"bootstrap.servers": self.settings.kafka.bootstrap, "group.id": "test",
                 "enable.auto.commit": False, "enable.partition.eof": True,
                 "fetch.wait.max.ms": 10, "auto.offset.reset": "earliest"}
            )  # fmt: skip
        topic = self.topics.of(stem).name
        places = [TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(self.partitions)]
        found: dict[int, dict[int, Frame]] = {place.partition: {} for place in places}
        left = set(found)
        self._reader.assign(places)
        while left:
            message = self._reader.poll(10)
            error = None if message is None else message.error()
            if message is None or (error and error.code() != KafkaError._PARTITION_EOF):
                self._reader = None
                raise StoreUnavailable("the markers could not be read")
            if error is not None:
                left.discard(message.partition())
                continue
            found[message.partition()][message.offset()] = decode(message.value() or b"")
        return found

    def everything_in_kafka(self) -> dict[str, bytes]:
        """All that can be read of every topic of this installation, whoever made it: keys, values,
        headers, uncommitted records too, and what their compressed parts hold."""
        reader = Consumer(
            {"bootstrap.servers": self.settings.kafka.bootstrap, "group.id": "test",
             "enable.auto.commit": False, "enable.partition.eof": True,
             "isolation.level": "read_uncommitted"}
        )  # fmt: skip
        topics = {
            name: list(about.partitions)
            for name, about in reader.list_topics(timeout=20).topics.items()
            if name.startswith(self.settings.topics.prefix)
        }
        reader.assign(
            [TopicPartition(t, p, OFFSET_BEGINNING) for t, ps in topics.items() for p in ps]
        )
        left = {(name, partition) for name, ps in topics.items() for partition in ps}
        held: dict[str, list[bytes]] = {name: [] for name in topics}
        packed: dict[tuple[str, bytes], dict[int, bytes]] = {}
        while left:
            message = reader.poll(20)
            assert message is not None, f"{left} could not be read to the end"
            topic, key, value = message.topic(), message.key() or b"", message.value() or b""
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF
                left.discard((topic, message.partition()))
                continue
            held[topic] += [key, value, *(v for _, v in message.headers() or () if v)]
            document, _, part = key.rpartition(b"/" if b"/" in key else b" ")
            if part.isdigit():
                packed.setdefault((topic, document), {})[int(part)] = value
        reader.close()
        for (topic, _), parts in packed.items():
            held[topic].append(zlib.decompress(b"".join(parts[n] for n in sorted(parts))))
        return {topic: b"\0".join(pieces) for topic, pieces in held.items()}

    async def flush_redis(self) -> None:
        client = await connect_redis(self.settings.redis)
        await client.flushall()
        await client.aclose()

    async def redis_keys(self) -> dict[bytes, bytes]:
        """Every key under the prefix with its dump, to search for text."""
        client = await connect_redis(self.settings.redis)
        found = {}
        async for key in client.scan_iter(match=f"{self.settings.topics.prefix}:*", count=1000):
            found[key] = await client.dump(key) or b""
        await client.aclose()
        return found

    async def counted(self, epoch: int) -> dict[OptinSubgroup, dict[Record, int]]:
        """Return Redis's counts of an epoch's opt-in records."""
        tables = await self.tables(InputStream.OPTIN_RECORDS)
        found = {}
        for share in OptinSubgroup:
            counts = await record_counts(tables, epoch, share, range(self.partitions))
            found[share] = {
                Record(*(part.decode() for part in text.split(b"\t"))): n
                for text, n in counts.items()
            }
        await tables.close()
        return found


def optin_counts(made: EpochService, epoch: int) -> OptinCounts:
    """Return the expected counts of the sent records; users without a record are users."""
    s, t = made.sent[epoch, OptinSubgroup.S], made.sent[epoch, OptinSubgroup.T]
    records = sorted(record for record in s.keys() | t.keys() if record is not None)
    return OptinCounts(
        records=records,
        selection=np.array([s[r] for r in records], dtype=np.int64),
        estimation=np.array([t[r] for r in records], dtype=np.int64),
        selection_users=s.total(),
        estimation_users=t.total(),
    )


async def take_part(made: EpochService, epoch: int, rng: np.random.Generator) -> None:
    """Send records in the epoch's window, and reports as soon as its head list is there."""
    state = await made.until_stage(epoch, Stage.COLLECTING, timeout_s=90)
    await asyncio.sleep(max(0.0, state.parameters.window_start_ms / 1000 - time.time()))
    made.send_optin(state, 900, rng, without=300)
    state = await made.until_stage(
        epoch, Stage.REPORTING, Stage.REPORTS_SEALED, Stage.PUBLISHED, timeout_s=60
    )
    head_list, _ = await made.head_list(state)
    made.send_reports(state, head_list, 1500, rng)


def epoch_service(
    kafka: str, redis: str, *, partitions: int = 2, **changes: str
) -> contextlib.AbstractAsyncContextManager[EpochService]:
    """One whose topics are there and whose processes end with it."""
    return service(kafka, redis, of=EpochService, partitions=partitions, **changes)
