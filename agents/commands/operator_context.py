"""Shared code of operators' subcommands: connect, read the release log, refuse while jobs run."""

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
    """Connect for one command, and disconnect after it; checks the topics and creates none."""
    topics = await check_topics(settings, KafkaInspector(settings.kafka))
    context = JobContext.build(settings, topics, await connect_redis(settings.redis))
    try:
        yield context
    finally:
        await context.close()


async def read_log(context: JobContext) -> ReleaseLogState:
    """Read the log to its last stable offset; warn if a transaction hides later entries."""
    async with waiting_for_log(context):
        log_state = await context.log.catch_up()
    blocked = await _blocked(context)
    if blocked is not None:
        print(f"blendstream: newer entries cannot be read; {blocked.sentence()}", file=sys.stderr)
    return log_state


@contextlib.asynccontextmanager
async def waiting_for_log(context: JobContext) -> AsyncIterator[None]:
    """Wrap code that waits for the log: a failure also names the transaction that blocks it."""
    try:
        yield
    except StoreUnavailable as error:
        blocked = await _blocked(context)
        if blocked is None:
            raise
        raise StoreUnavailable(f"{error}. {blocked.sentence()}") from error


async def _blocked(context: JobContext) -> OpenTransaction | None:
    """Return the transaction that blocks the log, if there is one and Kafka responds."""
    timeout_s = context.settings.jobs.transaction_timeout_s
    try:
        return await find_blocked(context.kafka, context.topics.releases.name, timeout_s)
    except StoreUnavailable:
        return None


async def refuse_while_jobs_run(context: JobContext) -> None:
    """Raise `ParameterError` while any jobs process has a lease."""
    settings = context.settings
    for kind in Kind:
        lease = Lease(context.redis, settings.topics.prefix, kind, settings.jobs.lease_s)
        if await lease.taken():
            raise ParameterError(
                f"no jobs process may run before this is done, but one has the lease for "
                f"{kind.value}; stop them all, wait {settings.jobs.lease_s:g} s and run this again"
            )


def utc_text(time_ms: int | None) -> str:
    """Format a time in UTC, for people."""
    if time_ms is None:
        return "-"
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
