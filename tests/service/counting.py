"""Frames that a test writes itself, and a model that knows what must become of every entry.

`Installation` writes frames to a real broker and remembers every entry's fate, so that a test may
do whatever it likes to the workers and servers and then ask `assert_exact`.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
from confluent_kafka import KafkaError, Message

from blendstream.streams.epoch_keys import EpochKeys
from blendstream.streams.names import InputStream, OptinSubgroup
from blendstream.streams.releases import entries
from blendstream.streams.releases.entries import Entry
from blendstream.streams.tables.batch_verdict import SEPARATOR, Refusal
from blendstream.streams.tables.redis import text_of
from blendstream.streams.tables.stage_tables import StageTable
from blendstream.streams.wire.frames import (
    FrameKind,
    OptinEntry,
    cell_width,
    encode_marker,
    encode_optin_records,
)
from tests.counted_records import record_counts
from tests.release_entries import head_list_entries, opened_entry
from tests.report_frames import encode_reports
from tests.scalar_siphash import scalar_siphash
from tests.service.builder import STARTED_S, Service, service
from tests.service.processes import Part
from tests.service.settings import IMPATIENT, MASTER

HOUR_MS = 3_600_000


@dataclass
class Expected:
    """The expected content of Redis for one epoch and stem, over all partitions."""

    received: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    cells: Counter[int] = field(default_factory=Counter)
    records: dict[OptinSubgroup, Counter[bytes]] = field(
        default_factory=lambda: {share: Counter() for share in OptinSubgroup}
    )
    #: People, however many records they sent.
    users: Counter[OptinSubgroup] = field(default_factory=Counter)
    #: Of them, those who said that they have no record.
    none: int = 0
    #: Contributors, slots and copies of records that must be known again when they come again.
    fingerprints: int = 0
    #: Offsets that left the log before they were counted; only a test that removes some has any.
    incomplete: int = 0

    @property
    def counted(self) -> int:
        return self.received - self.refused.total()

    def totals(self) -> dict[str, int]:
        """As Redis must hold them; `chunks`, which depends on how batches fell, aside."""
        found = {"received": self.received, "counted": self.counted, "incomplete": self.incomplete}
        found["none"] = self.none
        found |= {f"refused:{reason}": n for reason, n in self.refused.items()}
        found |= {f"users:{share}": n for share, n in self.users.items()}
        return {name: n for name, n in found.items() if n}


class Installation(Service):
    """A service with a release log state, frames and a model of their fate."""

    def __init__(self, *where: str, **options: Any) -> None:
        super().__init__(*where, **IMPATIENT | options)
        self.expected: dict[tuple[InputStream, int | str], Expected] = {}
        #: Frames are sent as gateways of before wrote them.
        self.published_entries: list[Entry] = []
        self._undelivered: list[str] = []
        self._ids: dict[int, bytes] = {}
        self._lists: dict[int, tuple[int, int, int]] = {}
        self._per_user: dict[int, int] = {}
        #: How far a gateway must have read the release log to know of an epoch or its head list.
        self._positions: dict[tuple[InputStream, int], int] = {}
        self._seen: set[tuple[InputStream, int, bytes, int]] = set()
        self._sent_records: set[tuple[int, bytes, bytes]] = set()

    # --- epochs ---------------------------------------------------------------------------------

    def publish(self, *together: Entry) -> int:
        """Write entries to the release log, in one record; its offset."""
        offsets: list[int | None] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            self._delivered(error, message)
            offsets.append(message.offset())

        self.producer.produce(
            self.topics.releases.name,
            key=entries.ENTRY_KEY,
            value=entries.encode(together),
            partition=0,
            on_delivery=delivered,
        )
        self._flush()
        self.published_entries += together
        (offset,) = offsets
        assert offset is not None
        return offset

    def open_epoch(self, epoch: int, **changes: Any) -> int:
        """Open an epoch whose window has begun; the offset of its entry."""
        now = int(time.time() * 1000)
        terms: dict[str, Any] = {
            "window_start_ms": now - HOUR_MS,
            "window_end_ms": now + HOUR_MS,
            "grace_ms": 60_000,
            "skew_ms": 5_000,
            "shares_ppm": (700_000, 200_000, 100_000),
            "optin_partitions": self.partitions,
            "report_partitions": self.partitions,
        }
        self._per_user[epoch] = changes.get("records_per_user", 1)
        offset = self.publish(opened_entry(epoch, **terms | changes))
        self._positions[InputStream.OPTIN_RECORDS, epoch] = offset + 1
        return offset

    def publish_head_list(self, epoch: int, cells: int = 51, w: int = 1, answers: int = 1) -> bytes:
        head_list_id = secrets.token_bytes(32)
        self._ids[epoch] = head_list_id
        self._lists[epoch] = (cells, w, answers)
        offset = self.publish(
            *head_list_entries(
                epoch, head_list_id, cells=cells, cells_per_answer=w, answers=answers,
                bounds=[0] * self.partitions, reports_until_ms=int(time.time() * 1000) + HOUR_MS,
            )
        )  # fmt: skip
        self._positions[InputStream.CLIENT_REPORTS, epoch] = offset + 1
        return head_list_id

    def head_list_id(self, epoch: int) -> bytes:
        return self._ids[epoch]

    # --- frames ---------------------------------------------------------------------------------

    def send(self, stem: InputStream, partition: int, value: bytes) -> None:
        """Write bytes as they are; the caller says what is to become of them."""
        self.producer.produce(
            self.topics.of(stem).name,
            value=value,
            partition=partition,
            on_delivery=self._delivered,
        )
        self.producer.poll(0)

    def send_marker(self, stem: InputStream, epoch: int, partition: int) -> None:
        """A marker, which must count as nothing."""
        kind = {InputStream.OPTIN_RECORDS: FrameKind.OPTIN_RECORDS}.get(
            stem, FrameKind.CLIENT_REPORTS
        )
        self.send(stem, partition, encode_marker(kind, epoch, secrets.token_bytes(16)))

    def flush(self) -> None:
        """Return when the broker has acknowledged everything."""
        self._flush()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._undelivered.append(error.name())
        elif message.offset() is None:
            self._undelivered.append("acknowledged without an offset")

    def _flush(self) -> None:
        if self.producer.flush(60) != 0:
            raise AssertionError("the broker did not acknowledge in a minute")
        # What never got into the log must not look as if the worker had lost it.
        assert not self._undelivered, f"the test could not send: {self._undelivered}"

    def of(self, stem: InputStream, epoch: int | str) -> Expected:
        return self.expected.setdefault((stem, epoch), Expected())

    def expect_refused(
        self, stem: InputStream, epoch: int | str, reason: Refusal, entries: int = 1
    ) -> None:
        expected = self.of(stem, epoch)
        expected.received += entries
        expected.refused[reason] += entries

    def send_reports(
        self, epoch: int, partition: int, contributors: list[bytes], rng: np.random.Generator
    ) -> None:
        """A frame of random legal reports; a contributor seen before is a duplicate."""
        cells, w, answers = self._lists[epoch]
        rows = np.array(
            [
                np.concatenate(
                    [np.sort(rng.choice(cells, size=w, replace=False)) for _ in range(answers)]
                )
                for _ in contributors
            ]
        )
        frame = encode_reports(
            epoch, self._ids[epoch], contributors, rows, cell_width(cells),
            log_position=self._positions[InputStream.CLIENT_REPORTS, epoch],
        )  # fmt: skip
        self.send(InputStream.CLIENT_REPORTS, partition, frame)
        expected = self.of(InputStream.CLIENT_REPORTS, epoch)
        for contributor, row in zip(contributors, rows.tolist(), strict=True):
            expected.received += 1
            key = (InputStream.CLIENT_REPORTS, epoch, contributor, 0)
            if key in self._seen:
                expected.refused[Refusal.DUPLICATE] += 1
            else:
                self._seen.add(key)
                expected.fingerprints += 1
                expected.cells.update(row)

    def send_records(self, epoch: int, partition: int, entries: list[OptinEntry]) -> None:
        """A frame of opt-in records, each judged by the model as the worker must."""
        position = self._positions[InputStream.OPTIN_RECORDS, epoch]
        frame = encode_optin_records(epoch, entries, log_position=position)
        self.send(InputStream.OPTIN_RECORDS, partition, frame)
        expected = self.of(InputStream.OPTIN_RECORDS, epoch)
        limit = self._per_user[epoch]
        for entry in entries:
            expected.received += 1
            share = self.share_of(epoch, entry.contributor)
            text = entry.query + SEPARATOR + entry.url
            key = (InputStream.OPTIN_RECORDS, epoch, entry.contributor, entry.slot)
            none = not entry.query and not entry.url
            if none and entry.slot > 0:
                expected.refused[Refusal.MALFORMED] += 1
            elif entry.slot >= limit:
                expected.refused[Refusal.OVER_LIMIT] += 1
            elif share is OptinSubgroup.T and entry.slot > 0:
                expected.refused[Refusal.SPARE] += 1
            elif key in self._seen:
                expected.refused[Refusal.DUPLICATE] += 1
            else:
                self._seen.add(key)
                expected.fingerprints += 1
                expected.users[share] += entry.slot == 0
                expected.none += none
                if none:
                    continue
                sent = (epoch, entry.contributor, text)
                if limit > 1 and sent in self._sent_records:
                    expected.refused[Refusal.REPEATED] += 1
                else:
                    self._sent_records.add(sent)
                    expected.fingerprints += limit > 1
                    expected.records[share][text] += 1

    def share_of(self, epoch: int, contributor: bytes) -> OptinSubgroup:
        """By the textbook SipHash, one contributor at a time."""
        key = EpochKeys.derive(MASTER, epoch).share
        point = scalar_siphash(key, contributor) % 1_000_000
        return (
            OptinSubgroup.S
            if point < 700_000
            else OptinSubgroup.T
            if point < 900_000
            else OptinSubgroup.GRAPH
        )

    # --- what came out --------------------------------------------------------------------------

    async def ends(self, stem: InputStream) -> dict[int, int]:
        return await self.kafka.ends(self.topics.of(stem).name, range(self.partitions))

    async def caught_up(self, stem: InputStream) -> bool:
        tables = await self.tables(stem)
        try:
            ends = await self.ends(stem)
            for partition, end in ends.items():
                if (await tables.stored_state(partition)).offset != end:
                    return False
            return True
        finally:
            await tables.close()

    async def some_counted(self, stem: InputStream) -> bool:
        tables = await self.tables(stem)
        try:
            return any([(await tables.totals(p)).get("received") for p in range(self.partitions)])
        finally:
            await tables.close()

    async def ready(self, worker: Part) -> bool:
        """Return True if /readyz responds and reports ready."""
        return (await self.get(worker, "/readyz"))[0] == 200

    async def unready(self, worker: Part) -> bool:
        """Return True if /readyz responds and reports unready."""
        return (await self.get(worker, "/readyz"))[0] == 503

    async def get(self, worker: Part, path: str) -> tuple[int, str]:
        async with httpx.AsyncClient() as client:
            try:
                answer = await client.get(f"http://127.0.0.1:{worker.metrics_port}{path}")
            except httpx.TransportError:
                return 0, ""
            return answer.status_code, answer.text

    async def until_counted(self, *stems: InputStream, timeout_s: float = STARTED_S) -> None:
        for stem in stems or tuple(InputStream):
            await self.until(
                lambda stem=stem: self.caught_up(stem), timeout_s, f"the end of {stem}"
            )

    async def assert_exact(self) -> None:
        """Check that Redis has, entry by entry, the model's counts and nothing else."""
        try:
            for stem in InputStream:
                tables = await self.tables(stem)
                try:
                    await self._assert_exact(stem, tables)
                finally:
                    await tables.close()
        except AssertionError as error:
            error.add_note(self.logs())
            raise

    async def _assert_exact(self, stem: InputStream, tables: StageTable) -> None:
        wanted = {epoch: found for (of, epoch), found in self.expected.items() if of is stem}
        late = wanted.pop("late", Expected())
        wanted.setdefault("unknown", Expected())
        since_ever: Counter[str] = Counter()
        for epoch, expected in wanted.items():
            totals = await self._summed(tables, epoch)
            chunks = totals.pop("chunks", 0)
            for share in OptinSubgroup:
                totals.pop(f"chunks:{share}", 0)
            assert totals == expected.totals(), f"{stem} of epoch {epoch}"
            since_ever.update(
                {n: x for n, x in totals.items() if not n.startswith(("users:", "incomplete"))}
            )
            if isinstance(epoch, int):
                assert bool(chunks) == bool(expected.fingerprints), f"{stem} of epoch {epoch}"
                await self._assert_counts(stem, tables, epoch, expected)
        # Entries of released epochs are one number, and late whatever else they were.
        assert await self._summed(tables, "late") == (
            {"received": late.received} if late.received else {}
        ), f"{stem}, entries of released epochs"
        since_ever.update({"received": late.received, "refused:late": late.received})
        assert await self._summed(tables, None) == +since_ever, f"{stem} since ever"
        await self._assert_no_other_key(stem, tables, {e for e in wanted if isinstance(e, int)})

    async def _summed(self, tables: StageTable, epoch: int | str | None) -> Counter[str]:
        totals: Counter[str] = Counter()
        for partition in range(self.partitions):
            totals.update(await tables.totals(partition, epoch))
        return totals

    async def _assert_counts(
        self, stem: InputStream, tables: StageTable, epoch: int, expected: Expected
    ) -> None:
        where, partitions = f"{stem} of epoch {epoch}", range(self.partitions)
        known = [len((await tables.load_seen(p, epoch)).table) for p in partitions]
        assert sum(known) == expected.fingerprints, f"{where}, fingerprints"
        if stem is InputStream.CLIENT_REPORTS:
            if epoch in self._lists:
                cells, _, _ = self._lists[epoch]
                found = await tables.cell_counts(epoch, partitions, cells)
                assert found.tolist() == [expected.cells[c] for c in range(cells)], where
        else:
            for share in OptinSubgroup:
                records = await record_counts(tables, epoch, share, partitions)
                assert records == dict(expected.records[share]), f"{where} {share}"

    async def _assert_no_other_key(
        self, stem: InputStream, tables: StageTable, epochs: set[int]
    ) -> None:
        """A batch begun and not ended, or counts of an epoch that nobody sent anything for."""
        begin = f"{self.settings.topics.prefix}:{{{self.topics.of(stem).name}/"
        own = {"state", "totals", "late", "unknown", "token"}
        async for key in tables._client.scan_iter(match=f"{begin}*", count=1000):
            part = text_of(key).partition("}:")[2].partition(":")[0]
            assert part in own or int(part) in epochs, f"{stem} has {text_of(key)}"
        for partition in range(self.partitions):
            assert (await tables.stored_state(partition)).applying is None, f"{stem} half applied"


def contributors(rng: np.random.Generator, n: int) -> list[bytes]:
    return [rng.bytes(16) for _ in range(n)]


def optin_entries(
    rng: np.random.Generator, keys: list[bytes], *, slot: int = 0, distinct: int = 50
) -> list[OptinEntry]:
    """Records drawn from a few, so that counts add up."""
    return [
        OptinEntry(key, slot, b"query %d" % n, b"https://example.org/%d" % n)
        for key, n in zip(keys, rng.integers(0, distinct, len(keys)).tolist(), strict=True)
    ]


def installation(
    kafka: str, redis: str, prefix: str = "", *, partitions: int = 2, **values: str
) -> contextlib.AbstractAsyncContextManager[Installation]:
    """One whose topics are there and whose processes end with it."""
    return service(kafka, redis, prefix, of=Installation, partitions=partitions, **values)
