"""What a running keeper tells about itself, whatever the log holds or a step takes."""

from __future__ import annotations

import asyncio
import math

from prometheus_client import generate_latest

from blendstream.agents.jobs import metrics
from blendstream.agents.jobs.jobs_process import Jobs
from blendstream.agents.jobs.metrics import JOBS
from blendstream.streams.errors import StoreMismatch
from blendstream.streams.releases import entries
from blendstream.streams.releases.documents import split
from blendstream.streams.releases.entries import EpochOutcome, Kind
from blendstream.streams.releases.epoch_state import Stage
from tests.service.epochs import epoch_service


def told(name: str, **labels: str) -> float | None:
    return JOBS.get_sample_value(name, labels)


async def test_a_keeper_tells_its_lease_at_once_and_outlives_an_unreadable_publication(
    kafka, redis_server, written_logs
):
    """The lease of a keeper that hangs in its first step would be nobody's; and a publication that
    cannot be shown once dropped the lease, so that nobody was told how epochs are."""
    during: list[tuple[float | None, bool]] = []

    async def watch(step: str) -> None:
        if step == "keeper.sent":
            during.append(
                (
                    told("blender_job_lease_held", kind="keeper"),
                    b"blender_epochs{" in generate_latest(JOBS),
                )
            )

    metrics.set_lease_gauge(Kind.KEEPER, held=False)
    async with epoch_service(kafka.url, redis_server.url) as made:
        jobs = await Jobs.connect(made.settings, observe=watch)
        running = asyncio.create_task(jobs.run())
        try:
            await made.until(lambda: told("blender_epochs", stage="collecting"))
            assert during[0] == (1.0, False), "held, and nothing of the log is known yet"
            document = split("estimates", b"no publication of ours")
            async with made.log.fenced_session(Kind.OPERATOR) as session:
                sealed = entries.records_sealed(0, [0, 0])
                released = entries.estimate_released(0, document, EpochOutcome.COMPLETE, [])
                await session.commit([sealed, released], [document])
            await made.until(lambda: told("blender_epochs", stage="published"))
            await made.until(lambda: "publication_not_shown" in written_logs.getvalue())
            first = told("blender_keeper_last_pass_timestamp_seconds")
            await made.until(lambda: told("blender_keeper_last_pass_timestamp_seconds") != first)
            assert told("blender_job_lease_held", kind="keeper") == 1.0
            assert math.isnan(told("blender_head_list_reports"))
            assert written_logs.getvalue().count("publication_not_shown") == 1
            assert "job_failed" not in written_logs.getvalue()
        finally:
            jobs.stop()
            await running
            await jobs.close()


async def test_a_process_whose_job_fails_leaves_the_lease_to_another(
    kafka, redis_server, written_logs
):
    """In an upgrade the older process rejects what the newer one wrote. It tried again every ten
    seconds and so kept a lease of thirty: nothing was released until somebody stopped it."""

    async def fail(step: str) -> None:
        if step.startswith("keeper."):
            raise StoreMismatch("the log must hold what this release writes")

    async with epoch_service(kafka.url, redis_server.url, jobs__lease_s="30") as made:
        older = await Jobs.connect(made.settings, observe=fail)
        newer = await Jobs.connect(made.settings)
        running = [asyncio.create_task(older.run())]
        try:
            await made.until(lambda: "job_failed" in written_logs.getvalue())
            running.append(asyncio.create_task(newer.run()))
            await made.until_stage(0, Stage.COLLECTING, timeout_s=20)
        finally:
            for jobs in (older, newer):
                jobs.stop()
            await asyncio.gather(*running)
            for jobs in (older, newer):
                await jobs.close()
