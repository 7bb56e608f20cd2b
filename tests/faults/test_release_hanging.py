"""A Kafka transaction that hangs in the release log: said, ended, and nothing is drawn twice.

On a loaded broker one stayed open that its coordinator had forgotten. Jobs waited for ever without
a word, verbs hung, `doctor` found nothing, and no restart helped. `tests/hanging.py` makes one.
Not a failure: an epoch that is given up because the entry of its release vanished.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial

import numpy as np
import pytest

from blendstream.agents.commands.epoch_listing import list_epochs
from blendstream.agents.commands.epochs import _abandon, _unblock
from blendstream.agents.commands.ledger import _run as _ledger
from blendstream.agents.commands.verify import differences
from blendstream.agents.jobs.jobs_process import Jobs
from blendstream.agents.jobs.leases import Lease
from blendstream.agents.jobs.metrics import JOBS as JOBS_METRICS
from blendstream.agents.operations.installation_checks import Grade
from blendstream.agents.operations.release_log_check import check_release_log
from blendstream.blender.values.errors import ParameterError
from blendstream.streams.errors import StoreUnavailable
from blendstream.streams.kafka.kafka_transactions import TransactionAdmin
from blendstream.streams.releases import entries
from blendstream.streams.releases.commit_failures import CommitInDoubt
from blendstream.streams.releases.compacted_topics import PublishedMarks
from blendstream.streams.releases.entries import Kind
from blendstream.streams.releases.epoch_state import Stage
from blendstream.streams.releases.log import Turn
from tests.epoch_service import Service, service
from tests.faults.test_release_once import releases, same_bytes_everywhere
from tests.hanging import hang
from tests.job_bench import Clock, JobBench, bench, count_records, some_records

#: So that a wait for a blocked log ends soon.
SOON = {"kafka__request_timeout_s": "3", "jobs__transaction_timeout_s": "3"}


@pytest.fixture
async def made(kafka, redis_server) -> AsyncIterator[Service]:
    async with service(kafka.url, redis_server.url, **SOON) as running:
        yield running


async def sealed(made: Service, jobs: JobBench, epoch: int = 0) -> None:
    """An epoch whose head list is due."""
    await jobs.keep()
    await count_records(made, epoch, some_records(epoch, np.random.default_rng(epoch)))
    jobs.clock.now_ms = (await made.book()).epochs[epoch].parameters.records_sealable_at_ms
    await jobs.keep()


async def drawn_release(
    jobs: JobBench, monkeypatch: pytest.MonkeyPatch
) -> Sequence[tuple[bytes, bytes]]:
    """The records of a head list that was drawn, and that this job never sent."""
    drawn: list[tuple[bytes, bytes]] = []

    def keep(turn: Turn, records: Sequence[tuple[bytes, bytes]]) -> None:
        if len(records) == 1:  # A turn record.
            return send(turn, records)
        drawn.extend(records)
        raise CommitInDoubt("the test has taken the records")

    send = Turn._send
    with monkeypatch.context() as patched:
        patched.setattr(Turn, "_send", keep)
        with pytest.raises(CommitInDoubt):
            await jobs.run(Kind.HEAD_LISTS)
    jobs.steps.clear()
    return drawn


async def transaction_hangs(
    made: Service, owner: str, records: Sequence[tuple[bytes, bytes]]
) -> tuple[int, int, int]:
    topic = made.topics.releases.name
    return await hang(made.settings.kafka.bootstrap, topic, f"{topic}.{owner}", records)


def an_entry(entry: entries.Entry) -> list[tuple[bytes, bytes]]:
    return [(entries.ENTRY_KEY, entries.encode([entry]))]


@pytest.mark.timeout(120)
async def test_a_blocked_log_is_said_with_producer_and_offset_and_no_verb_hangs(
    made: Service, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """Whoever is on call must find out what it is, where they look."""
    monkeypatch.setattr("blendstream.streams.releases.blocked._ASK_AFTER_S", 0.0)
    async with bench(made, Clock()) as jobs:
        await jobs.keep()
        assert (await check_release_log(made.settings, made.kafka))[0] == Grade.OK
        producer, epoch, offset = await transaction_hangs(
            made, "another", an_entry(entries.records_sealed(0, [9, 9]))
        )
        named = f"producer {producer}, epoch {epoch}, has a transaction open from offset {offset}"

        grade, found = await check_release_log(made.settings, made.kafka)
        assert grade == Grade.FIX
        assert named in found
        assert "`blendstream epochs unblock`" in found

        for verb in (list_epochs, _ledger):
            await asyncio.wait_for(verb(made.settings), 30)
            shown = capsys.readouterr()
            assert named in shown.err, "what is shown is not the newest"
            assert shown.out
        await asyncio.wait_for(differences(jobs.context), 30)
        with pytest.raises(StoreUnavailable, match=named):
            await asyncio.wait_for(_abandon(made.settings, 0, "a drill"), 60)

        running = await Jobs.connect(made.settings)
        watching = asyncio.create_task(running.watch_log(0.1))
        labels = {"producer_id": producer, "producer_epoch": epoch, "offset": offset}
        labels = {name: str(value) for name, value in labels.items()}
        metric = partial(
            JOBS_METRICS.get_sample_value, "blender_release_log_blocked_seconds", labels
        )
        await made.until(lambda: (metric() or 0) > 0, 20)
        assert named in "".join(running.unready)

        assert await _unblock(made.settings) == 0
        await made.until(lambda: metric() is None, 20)
        none = dict.fromkeys(labels, "")
        assert JOBS_METRICS.get_sample_value("blender_release_log_blocked_seconds", none) == 0
        watching.cancel()
        await running.close()
        assert (await check_release_log(made.settings, made.kafka))[0] == Grade.OK
        await _abandon(made.settings, 0, "a drill")


@pytest.mark.timeout(120)
async def test_unblocking_keeps_a_release_that_hangs_under_its_own_id(
    made: Service, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """Kafka had acknowledged it as committed: drawn again, the epoch would have two releases."""
    async with bench(made, Clock()) as jobs:
        await sealed(made, jobs)
        release = await drawn_release(jobs, monkeypatch)
        _, _, offset = await transaction_hangs(made, "head-lists", release)
        held = Lease(jobs.context.redis, made.settings.topics.prefix, Kind.HEAD_LISTS, 60)
        assert await held.hold()
        with pytest.raises(ParameterError, match="no jobs process may run"):
            await _unblock(made.settings)
        await held.leave()

        assert await _unblock(made.settings) == 0
        entry_at = offset + len(release) - 1
        assert f"offset {entry_at}: head_list_released of epoch 0: in the log" in (
            capsys.readouterr().out
        )
        assert await _unblock(made.settings) == 0
        assert "is not blocked" in capsys.readouterr().out

        await jobs.take_over(Kind.HEAD_LISTS)
        assert "head-lists.drawn" not in jobs.steps
        assert releases(made, "head_list_released") == {0: 1}
        await same_bytes_everywhere(made, range(1))
        await sealed(made, jobs, 1)
        assert await jobs.run(Kind.HEAD_LISTS), "the next epoch goes on"


@pytest.mark.timeout(120)
async def test_a_job_that_takes_over_reads_the_release_that_hangs_and_draws_none(
    made: Service, monkeypatch: pytest.MonkeyPatch
):
    """No operator is needed where the transaction has the id of a kind of job."""
    async with bench(made, Clock()) as jobs, bench(made, jobs_clock := Clock()) as other:
        await sealed(made, jobs)
        jobs_clock.now_ms = jobs.clock.now_ms
        release = await drawn_release(jobs, monkeypatch)
        await transaction_hangs(made, "head-lists", release)
        await other.take_over(Kind.HEAD_LISTS)
        assert "head-lists.drawn" not in other.steps
        assert releases(made, "head_list_released") == {0: 1}
        await same_bytes_everywhere(made, range(1))


@pytest.mark.timeout(120)
async def test_an_epoch_whose_release_vanishes_with_its_transaction_is_abandoned(
    made: Service, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """Of an id that no job has, it can only be aborted; and its noise was drawn."""
    async with bench(made, Clock()) as jobs:
        await sealed(made, jobs)
        release = await drawn_release(jobs, monkeypatch)
        producer, _, offset = await transaction_hangs(made, "another", release)
        assert await _unblock(made.settings) == 0
        said = capsys.readouterr().out
        assert f"producer {producer}" in said
        assert f"offset {offset + len(release) - 1}: head_list_released of epoch 0: aborted" in said
        assert "abandoned, since a draw of theirs was lost: epochs 0" in said

        state = (await made.book()).epochs[0]
        assert state.stage is Stage.ABANDONED
        assert "is not drawn again" in (state.abandoned or "")
        assert not await jobs.run(Kind.HEAD_LISTS)
        assert "head-lists.drawn" not in jobs.steps
        await sealed(made, jobs, 1)
        assert await jobs.run(Kind.HEAD_LISTS), "the next epoch goes on"
        assert releases(made, "head_list_released") == {1: 1}


@pytest.mark.timeout(120)
async def test_a_transaction_that_may_not_be_aborted_gets_the_command_that_does(
    made: Service, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """Ending others' transactions takes a right that the service's user need not have."""

    async def refused(*_: object) -> None:
        raise StoreUnavailable("Kafka refused to describe or to end transactions (ClusterAuthor…)")

    async with bench(made, Clock()) as jobs:
        await jobs.keep()
        _, _, offset = await transaction_hangs(
            made, "another", an_entry(entries.records_sealed(0, [9, 9]))
        )
        with monkeypatch.context() as patched:
            patched.setattr(TransactionAdmin, "abort", refused)
            assert await _unblock(made.settings) == 1
        assert (
            f"kafka-transactions.sh --bootstrap-server {made.settings.kafka.bootstrap} abort "
            f"--topic {made.topics.releases.name} --partition 0 --start-offset {offset}\n"
        ) in capsys.readouterr().out
        assert await _unblock(made.settings) == 0


@pytest.mark.timeout(120)
async def test_a_head_list_that_anyone_may_have_seen_is_not_drawn_again(made: Service):
    """Kafka removed the entry of a release that it had acknowledged, or an older log was restored
    and the jobs were started without a word: the log says that the epoch is still to be drawn."""
    topic = made.topics.head_lists.name
    async with bench(made, Clock()) as jobs:
        await sealed(made, jobs, 0)
        await jobs.context.publisher.publish(topic, 0, b"{}")
        assert not await jobs.run(Kind.HEAD_LISTS), "it is in its topic"
        await sealed(made, jobs, 1)
        await PublishedMarks(jobs.context.redis, made.settings.topics.prefix, topic).add(1, "id")
        assert not await jobs.run(Kind.HEAD_LISTS), "Redis remembers that it was published"
        assert "head-lists.drawn" not in jobs.steps
        book = await made.book()
        for epoch in (0, 1):
            assert book.epochs[epoch].stage is Stage.ABANDONED
            assert "is published and its release is not in the log" in str(
                book.epochs[epoch].abandoned
            )
        await sealed(made, jobs, 2)
        assert await jobs.run(Kind.HEAD_LISTS), "the next epoch goes on"
