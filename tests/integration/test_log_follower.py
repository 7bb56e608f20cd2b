"""The release log as workers read it: nothing is unknown before it was read to its end."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from blendstream.agents.worker.entry_checks import judge_optin_records, judge_reports, unknown_to
from blendstream.agents.worker.partition_counter import BatchValidator
from blendstream.streams.budget.ledger import Ledger
from blendstream.streams.epoch_keys import EpochKeys
from blendstream.streams.names import InputStream
from blendstream.streams.releases import entries
from blendstream.streams.releases.epoch_state import ReleaseLogState
from blendstream.streams.releases.log_consumer import LogConsumer, LogRecord
from blendstream.streams.releases.reader import LogFollower
from blendstream.streams.tables.batch_verdict import Delivery
from blendstream.streams.tables.fingerprints import FingerprintTable
from blendstream.streams.wire.frames import OptinEntry, decode, encode_optin_records
from tests.release_entries import estimates_entry
from tests.report_frames import encode_reports
from tests.service.counting import Installation, installation
from tests.service.settings import MASTER

if TYPE_CHECKING:
    from blendstream.agents.local import GivenServer, LocalKafka, LocalRedis

pytestmark = pytest.mark.integration
OPTIN, REPORTS = InputStream.OPTIN_RECORDS, InputStream.CLIENT_REPORTS


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
    poll = LogConsumer.poll

    def slowly_at_first(consumer: LogConsumer) -> tuple[list[LogRecord], int | None]:
        records, end = poll(consumer)
        if records and threading.current_thread().name.startswith("asyncio") and armed.is_set():
            armed.clear()
            has_one.set()
            goes_on.wait(20)
        return records, end

    armed = threading.Event()
    monkeypatch.setattr(LogConsumer, "poll", slowly_at_first)
    async with installation(kafka.url, redis_server.url, name_prefix) as made:
        for epoch in (1, 2, 3):
            made.open_epoch(epoch)
        follower = LogFollower(
            made.settings.kafka, made.kafka, made.topics.releases.name, since_ms=0
        )
        armed.set()
        known: list[list[int]] = []

        async def read() -> None:
            await follower.refresh_to_end()
            known.append([e.epoch for e in follower.stable_state.unreleased(OPTIN)])

        given_up = asyncio.create_task(read())
        assert await asyncio.to_thread(has_one.wait, 20)
        given_up.cancel()
        second = asyncio.create_task(read())
        await asyncio.wait({second}, timeout=1)
        held = follower.stable_state
        goes_on.set()
        await second
        assert known == [[1, 2, 3]]
        assert held.unreleased(OPTIN) == [], "who judges holds a log state that does not change"
        await follower.close()


YEAR_MS = 365 * 86_400_000


@pytest.mark.parametrize("quiet_for_ms", [0, 5 * YEAR_MS], ids=["busy", "quiet for years"])
async def test_a_follower_that_starts_at_a_checkpoint_judges_as_one_that_read_everything(
    kafka: LocalKafka | GivenServer,
    redis_server: LocalRedis | GivenServer,
    name_prefix: str,
    monkeypatch: pytest.MonkeyPatch,
    quiet_for_ms: int,
) -> None:
    """The log's age must neither cost anything nor change what is late, unknown or counted."""
    folded: list[int] = []
    apply = ReleaseLogState.apply

    def noted(log_state: ReleaseLogState, offset: int, *record: Any) -> None:
        folded.append(offset)
        apply(log_state, offset, *record)

    async with installation(kafka.url, redis_server.url, name_prefix) as made:
        ids = long_log(made)
        log = made.settings.kafka, made.kafka, made.topics.releases.name
        whole = LogFollower(*log, since_ms=0)
        await whole.refresh_to_end()
        everything = whole.stable_state
        monkeypatch.setattr(ReleaseLogState, "apply", noted)
        later = LogFollower(*log, now_ms=lambda: time.time_ns() // 1_000_000 + quiet_for_ms)
        await later.refresh_to_end()
        assert len(folded) < len(made.published_entries) / 10
        for stem, judge, open_epochs in (
            (OPTIN, judge_optin_records, [60]),
            (REPORTS, judge_reports, [59, 60]),
        ):
            for log_state in (later.stable_state, everything):
                assert [e.epoch for e in log_state.unreleased(stem)] == open_epochs
                assert log_state.trimmed_below(stem, 1, 1) == (58 if stem is OPTIN else 0)
            assert later.stable_state.unreleased(stem) == everything.unreleased(stem)
            for value in frames(ids):
                found = [
                    judged(judge, value, log_state)
                    for log_state in (later.stable_state, everything)
                ]
                assert found[0] == found[1]
        await whole.close()
        await later.close()


def long_log(made: Installation) -> list[bytes]:
    """Sixty epochs with documents between, a checkpoint before the last two; head-list ids."""
    ids = [bytes(32)]
    for epoch in range(1, 59):
        made.open_epoch(epoch)
        ids.append(made.publish_head_list(epoch))
        made.publish(estimates_entry(epoch))
    made.publish(entries.log_trimmed("optin_records", 1, [57, 58]))
    start = made.open_epoch(59)
    ids.append(made.publish_head_list(59))
    made.publish(entries.checkpoint(Ledger(), start))
    # What a checkpoint would hide is repeated after it.
    made.publish(entries.log_trimmed("optin_records", 1, [57, 58]))
    made.open_epoch(60)
    return ids


def frames(ids: list[bytes]) -> list[bytes]:
    """Records and reports of epochs long past, just over, open, and never opened."""
    found = []
    for epoch in (0, 3, 58, 59, 60, 61):
        entry = OptinEntry(bytes(16), 0, b"q", b"u")
        found.append(encode_optin_records(epoch, [entry], log_position=1))
        for of in (ids[3], ids[58], ids[59], bytes(32)):
            found.append(encode_reports(epoch, of, [bytes(16)], np.zeros((1, 1), int), 1))
    return found


def judged(judge: BatchValidator, value: bytes, log_state: ReleaseLogState) -> Any:
    frame = decode(value)
    delivery = Delivery(0, int(time.time() * 1000), frame, len(value))  # type: ignore[arg-type]
    keys = {n: EpochKeys.derive(MASTER, n) for n in (59, 60)}
    seen = {n: FingerprintTable() for n in (59, 60)}
    verdict = judge(0, [delivery], log_state, keys, seen)
    counts = {n: (t.received, dict(t.refused)) for n, t in verdict.epochs.items()}
    return counts, verdict.late, bool(unknown_to(log_state, [delivery]))
