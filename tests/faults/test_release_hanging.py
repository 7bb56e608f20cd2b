"""A Kafka transaction that hangs in the release log: reported, ended, and nothing is drawn twice.

On a loaded broker one stayed open that its coordinator had forgotten. Jobs waited for ever without
a word, verbs hung, `doctor` found nothing, and no restart helped. `tests/hanging.py` makes one; an
operator ends it by the commands in docs/runbook.md.
Not a failure: an epoch that is given up because the entry of its release vanished.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from blendstream.agents.commands.epoch_listing import list_epochs
from blendstream.agents.commands.epochs import _abandon
from blendstream.agents.commands.ledger import _run as _ledger
from blendstream.agents.commands.verify import differences
from blendstream.agents.jobs.jobs_process import Jobs
from blendstream.agents.jobs.leases import Lease
from blendstream.agents.jobs.metrics import JOBS as JOBS_METRICS
from blendstream.agents.local.jars import find_java, kafka_jars
from blendstream.agents.operations.installation_checks import Grade
from blendstream.agents.operations.release_log_check import check_release_log
from blendstream.streams.errors import StoreUnavailable
from blendstream.streams.releases import entries
from blendstream.streams.releases.commit_failures import CommitInDoubt
from blendstream.streams.releases.compacted_topics import PublishedMarks
from blendstream.streams.releases.entries import Kind
from blendstream.streams.releases.epoch_state import Stage
from blendstream.streams.releases.log import FencedSession
from tests.hanging import hang
from tests.service.epochs import EpochService, epoch_service
from tests.service.jobs import Clock, JobBench, bench, count_records, some_records
from tests.service.released import releases, same_bytes_everywhere

#: So that a wait for a blocked log ends soon.
SOON = {"kafka__request_timeout_s": "3", "jobs__transaction_timeout_s": "3"}


@pytest.fixture
async def made(kafka, redis_server) -> AsyncIterator[EpochService]:
    async with epoch_service(kafka.url, redis_server.url, **SOON) as running:
        yield running


@dataclass
class Operator:
    """Types the commands of the runbook's ReleaseLogBlocked, as they are printed there."""

    made: EpochService
    folder: Path

    def __post_init__(self) -> None:
        # All that Kafka's own script adds is a search for Java and for the jars.
        tool = self.folder / "kafka-transactions.sh"
        command = f"{find_java()} -cp '{kafka_jars()}/*' org.apache.kafka.tools.TransactionsCommand"
        tool.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        tool.chmod(0o755)

    @property
    def commands(self) -> list[str]:
        page = (Path(__file__).parents[2] / "docs/runbook.md").read_text()
        section = page.partition("### ReleaseLogBlocked")[2].partition("\n### ")[0]
        blocks = re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
        return "".join(blocks).splitlines()

    async def types(self, command: str, **names: int) -> subprocess.CompletedProcess[str]:
        settings = self.made.settings
        given = {"BROKER": settings.kafka.bootstrap, "blender": settings.topics.prefix, **names}
        for name, value in given.items():
            command = re.sub(rf"\b{name}\b", str(value), command)
        environment = self.made.environment()
        environment["PATH"] = f"{self.folder}:{Path(sys.executable).parent}:{environment['PATH']}"
        return await asyncio.to_thread(
            subprocess.run,
            ["bash", "-c", command],
            env=environment, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip


@pytest.fixture
def operator(made: EpochService, tmp_path: Path) -> Operator:
    return Operator(made, tmp_path)


async def sealed(made: EpochService, jobs: JobBench, epoch: int = 0) -> None:
    """An epoch whose head list is due."""
    await jobs.keep()
    await count_records(made, epoch, some_records(epoch, np.random.default_rng(epoch)))
    jobs.clock.now_ms = (await made.log_state()).epochs[epoch].parameters.records_sealable_at_ms
    await jobs.keep()


async def drawn_release(
    jobs: JobBench, monkeypatch: pytest.MonkeyPatch
) -> Sequence[tuple[bytes, bytes]]:
    """The records of a head list that was drawn, and that this job never sent."""
    drawn: list[tuple[bytes, bytes]] = []

    def keep(session: FencedSession, records: Sequence[tuple[bytes, bytes]]) -> None:
        if len(records) == 1:  # A fence record.
            return send(session, records)
        drawn.extend(records)
        raise CommitInDoubt("the test has taken the records")

    send = FencedSession._send
    with monkeypatch.context() as patched:
        patched.setattr(FencedSession, "_send", keep)
        with pytest.raises(CommitInDoubt):
            await jobs.run(Kind.HEAD_LISTS)
    jobs.steps.clear()
    return drawn


async def transaction_hangs(
    made: EpochService, owner: str, records: Sequence[tuple[bytes, bytes]]
) -> int:
    """The offset at which it begins."""
    topic = made.topics.releases.name
    _, _, offset = await hang(made.settings.kafka.bootstrap, topic, f"{topic}.{owner}", records)
    return offset


def an_entry(entry: entries.Entry) -> list[tuple[bytes, bytes]]:
    return [(entries.ENTRY_KEY, entries.encode([entry]))]


@pytest.mark.timeout(120)
async def test_a_blocked_log_is_said_with_its_offset_and_no_verb_hangs(
    operator: Operator,
    made: EpochService,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    """The person on call must find the cause in alert, `doctor` and `/readyz`."""
    monkeypatch.setattr("blendstream.streams.releases.blocked._CLEAN_UP_S", 0.0)
    async with bench(made, Clock()) as jobs:
        await jobs.keep()
        assert (await check_release_log(made.settings, made.kafka))[0] == Grade.OK
        offset = await transaction_hangs(
            made, "another", an_entry(entries.records_sealed(0, [9, 9]))
        )
        topic = made.topics.releases.name
        named = f"readers of {topic} stop at offset {offset}"
        grade, found = await check_release_log(made.settings, made.kafka)
        assert (grade, found) == (Grade.OK, f"a release is being committed at offset {offset}")

        running = await Jobs.connect(made.settings)
        watching = asyncio.create_task(running.watch_log(0.1))
        metric = partial(JOBS_METRICS.get_sample_value, "blender_release_log_blocked_seconds")
        await made.until(lambda: (metric({"offset": str(offset)}) or 0) > 3, 20)
        assert named in "".join(running.unready)

        grade, found = await check_release_log(made.settings, made.kafka)
        assert grade == Grade.FIX
        assert named in found
        for verb in (list_epochs, _ledger):
            await asyncio.wait_for(verb(made.settings), 30)
            shown = capsys.readouterr()
            assert named in shown.err, "what is shown is not the newest"
            assert shown.out
        await asyncio.wait_for(differences(jobs.context), 30)
        with pytest.raises(StoreUnavailable, match=named):
            await asyncio.wait_for(_abandon(made.settings, 0, "a drill"), 60)

        assert (await operator.types(operator.commands[1], OFFSET=offset)).returncode == 0
        await made.until(lambda: metric({"offset": str(offset)}) is None, 20)
        assert metric({"offset": ""}) == 0
        watching.cancel()
        await running.close()
        assert (await check_release_log(made.settings, made.kafka))[0] == Grade.OK
        await _abandon(made.settings, 0, "a drill")


@pytest.mark.timeout(120)
async def test_a_job_that_takes_over_reads_the_release_that_hangs_and_draws_none(
    made: EpochService, monkeypatch: pytest.MonkeyPatch
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


@pytest.mark.timeout(180)
async def test_the_runbooks_commands_end_a_hanging_transaction_and_abandon_the_lost_draw(
    operator: Operator, made: EpochService, monkeypatch: pytest.MonkeyPatch
):
    """Of an id that no job has, it can only be aborted; and its noise was drawn."""
    async with bench(made, Clock()) as jobs:
        await sealed(made, jobs)
        release = await drawn_release(jobs, monkeypatch)
        offset = await transaction_hangs(made, "another", release)
        find, abort, report = operator.commands

        listed = await operator.types(find)
        assert str(offset) in listed.stdout.split(), listed
        early = await operator.types(report, OFFSET=offset)
        assert early.returncode != 0
        assert "a transaction before it is still open" in early.stderr

        await operator.types(abort, OFFSET=offset)
        held = Lease(jobs.context.redis, made.settings.topics.prefix, Kind.HEAD_LISTS, 60)
        assert await held.hold()
        assert "no jobs process may run" in (await operator.types(report, OFFSET=offset)).stderr
        await held.leave()
        wrong = await operator.types(report, OFFSET=offset - 1)
        assert f"no record at offset {offset - 1} was aborted" in wrong.stderr
        reported = await operator.types(report, OFFSET=offset)
        assert reported.returncode == 0, reported
        assert "aborted: head_list_released of epoch 0\n" in reported.stdout
        assert "abandoned, because a draw was lost: epochs 0\n" in reported.stdout

        state = (await made.log_state()).epochs[0]
        assert state.stage is Stage.ABANDONED
        assert "is not drawn again" in (state.abandoned or "")
        assert (await check_release_log(made.settings, made.kafka))[0] == Grade.OK
        assert not await jobs.run(Kind.HEAD_LISTS)
        assert "head-lists.drawn" not in jobs.steps
        await sealed(made, jobs, 1)
        assert await jobs.run(Kind.HEAD_LISTS), "the next epoch goes on"
        assert releases(made, "head_list_released") == {1: 1}


@pytest.mark.timeout(120)
async def test_a_head_list_that_anyone_may_have_seen_is_not_drawn_again(made: EpochService):
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
        log_state = await made.log_state()
        for epoch in (0, 1):
            assert log_state.epochs[epoch].stage is Stage.ABANDONED
            assert "is published and its release is not in the log" in str(
                log_state.epochs[epoch].abandoned
            )
        await sealed(made, jobs, 2)
        assert await jobs.run(Kind.HEAD_LISTS), "the next epoch goes on"
