"""What the operator's verbs share: reading the release log once, warning when it is blocked or
when jobs run, and printing times."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime

from blendstream.agents.jobs.job_context import JobContext
from blendstream.agents.jobs.leases import Lease
from blendstream.blender.values.errors import ParameterError
from blendstream.streams.errors import StoreUnavailable
from blendstream.streams.kafka.kafka_clients import KafkaInspector
from blendstream.streams.kafka.topics import check_topics
from blendstream.streams.releases.blocked import OpenTransaction, find_blocked
from blendstream.streams.releases.entries import Kind
from blendstream.streams.releases.epoch_state import ReleaseLogState
from blendstream.streams.settings import Settings
from blendstream.streams.tables.redis import connect_redis

__all__ = ["connected", "read_log", "refuse_while_jobs_run", "utc_text", "waiting_for_log"]


@contextlib.asynccontextmanager
async def connected(settings: Settings) -> AsyncIterator[JobContext]:
    """A context for one command; the topics must be right, and none is created."""
    topics = await check_topics(settings, KafkaInspector(settings.kafka))
    context = JobContext.build(settings, topics, await connect_redis(settings.redis))
    try:
        yield context
    finally:
        await context.close()


async def read_log(context: JobContext) -> ReleaseLogState:
    """The log to its committed end; warns when a transaction hides what comes after."""
    async with waiting_for_log(context):
        log_state = await context.log.catch_up()
    blocked = await _blocked(context)
    if blocked is not None:
        print(f"blendstream: this is not the newest; {blocked.sentence()}", file=sys.stderr)
    return log_state


@contextlib.asynccontextmanager
async def waiting_for_log(context: JobContext) -> AsyncIterator[None]:
    """Wrap code that waits for the log: a failure then also names what blocks it."""
    try:
        yield
    except StoreUnavailable as error:
        blocked = await _blocked(context)
        if blocked is None:
            raise
        raise StoreUnavailable(f"{error}. {blocked.sentence()}") from error


async def _blocked(context: JobContext) -> OpenTransaction | None:
    """What blocks the log, if Kafka answers."""
    timeout_s = context.settings.jobs.transaction_timeout_s
    try:
        return await find_blocked(context.kafka, context.topics.releases.name, timeout_s)
    except StoreUnavailable:
        return None


async def refuse_while_jobs_run(context: JobContext) -> None:
    """Raise while any jobs process has a lease."""
    settings = context.settings
    for kind in Kind:
        lease = Lease(context.redis, settings.topics.prefix, kind, settings.jobs.lease_s)
        if await lease.taken():
            raise ParameterError(
                f"no jobs process may run before this is done, but one has the lease for "
                f"{kind.value}; stop them all, wait {settings.jobs.lease_s:g} s and run this again"
            )


def utc_text(time_ms: int | None) -> str:
    """A time for people, in UTC."""
    if time_ms is None:
        return "-"
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
