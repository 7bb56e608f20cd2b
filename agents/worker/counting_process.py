"""The worker process, which counts the partitions that Kafka assigns to it.

Any number of workers divide the partitions by Kafka's group protocol; adding or removing one needs
no configuration. A worker is

    ready   while Redis and Kafka respond and none of its partitions is halted      (/readyz)
    alive   unless one of these happens; then it exits, to be restarted             (/healthz):
            - its offsets do not move despite lag, although Redis and Kafka respond;
            - it counts other partitions than its group assigned;
            - its group coordinator or one of its own watch tasks has died;
            - Faust has crashed.

A stop has a deadline. The partition's next worker counts the batches not stored by then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn

from blendstream.agents import process
from blendstream.agents.process import reach_servers
from blendstream.agents.server_probe import ServerWatch
from blendstream.agents.worker import metrics
from blendstream.agents.worker.dead_letters import DeadLetters
from blendstream.agents.worker.entry_checks import judge_optin_records, judge_reports
from blendstream.agents.worker.faust_app import CountingApp
from blendstream.agents.worker.topic_counter import TopicCounter
from blendstream.streams.epoch_keys import KeyRing
from blendstream.streams.errors import StoreUnavailable
from blendstream.streams.names import InputStream
from blendstream.streams.releases.reader import LogFollower
from blendstream.streams.settings import Settings
from blendstream.streams.tables.redis import Client
from blendstream.streams.tables.stage_tables import stage_table
from blendstream.streams.telemetry.structured_logs import SafeText

__all__ = ["Worker", "run_worker"]

log = logging.getLogger(__name__)

_ASK_EVERY_S = 5.0
_LOOK_EVERY_S = 1.0


def run_worker(settings: Settings) -> NoReturn:
    """Run a worker until SIGTERM or SIGINT, and end the process."""
    connect, host = partial(Worker.connect, settings), settings.metrics.host
    asyncio.run(process.run(connect, "worker", settings.worker, host, metrics.WORKER))


@dataclass(eq=False)
class Worker:
    """The counters of both topics, their Faust app, and the watch tasks."""

    _settings: Settings
    app: CountingApp
    counters: list[TopicCounter]
    _close: list[Callable[[], Awaitable[None]]]
    _servers: ServerWatch
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _starting: asyncio.Task[None] | None = None
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    async def connect(cls, settings: Settings) -> Worker:
        """Connect to Kafka and Redis and check or create the topics; raise one clear error."""
        kafka, topics, redis = await reach_servers(settings)
        release_log = LogFollower(
            settings.kafka, kafka, topics.releases.name, skew_s=settings.epoch.allowed_skew_s
        )
        keys = KeyRing(settings.keys.masters())
        prefix = settings.topics.prefix
        app = CountingApp(settings, group=f"{prefix}.worker.v{settings.topics.version}")
        counters = []
        for stem, judge in (
            (InputStream.OPTIN_RECORDS, judge_optin_records),
            (InputStream.CLIENT_REPORTS, judge_reports),
        ):
            topic = topics.of(stem)
            counter = TopicCounter(
                stem,
                topic,
                judge=judge,
                tables=stage_table(stem, redis, topic.name, prefix=prefix),
                release_log=release_log,
                kafka=kafka,
                keys=keys,
                seek=partial(app.seek, topic.name),
            )
            letters = DeadLetters(app, topic.name, topics.dead_letters.name)
            app.add_counter(counter, letters.send)
            counters.append(counter)
        close: list[Callable[[], Awaitable[None]]] = [
            release_log.close,
            partial(_close_redis, redis),
        ]
        servers = ServerWatch(
            kafka, topics.releases.name, redis, prefix=prefix, every_s=_ASK_EVERY_S
        )
        return cls(settings, app, counters, close, servers)

    @property
    def unready(self) -> list[str]:
        """Halted partitions, or the server that does not respond or refuses writes."""
        if self._servers.write_refusal is not None:
            return [self._servers.write_refusal]
        if all(counter.ready for counter in self.counters):
            return []
        halted = [
            f"{counter.stem} partition {partition} is halted: {reason}"
            for counter in self.counters
            for partition, reason in sorted(counter.halted.items())
        ]
        return halted or ["Redis or Kafka does not answer"]

    async def run(self) -> str | None:
        """Join the group and count until `stop`. Return a reason if the process must restart."""
        self._tasks = [asyncio.create_task(self._check(counter)) for counter in self.counters]
        self._tasks.append(asyncio.create_task(self._servers.run()))
        # Starting ends with the first assignment, which may take arbitrarily long.
        self._starting = asyncio.create_task(self.app.start())
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _LOOK_EVERY_S)
                return None
            if (unfit := self._unfit()) is not None:
                log.error("worker_exits", extra={"reason": SafeText(unfit)})
                return unfit

    def stop(self) -> None:
        """Let `run` return."""
        self._stopping.set()

    async def close(self) -> None:
        """Stop Faust and disconnect from the servers."""
        for task in self._tasks:
            task.cancel()
        if self._starting is not None:
            self._starting.cancel()
        await self.app.stop()
        for close in self._close:
            await close()
        log.info("worker_stopped")

    def _unfit(self) -> str | None:
        """Return the reason why this worker must restart, if there is one."""
        starting = self._starting
        failed = starting is not None and starting.done() and starting.exception() is not None
        if self.app.crashed or failed:
            return "Faust has crashed"
        if self.app.coordinator_died:
            return "the group coordinator's task has died"
        if self.app.unhandled_for_s() > self._settings.worker.stall_exit_s:
            return "the group has assigned this worker other partitions than it counts"
        for task in self._tasks:
            if task.done():
                log.error("watch_ended", exc_info=None if task.cancelled() else task.exception())
                return "a task that looks after the partitions or the servers has ended"
        for counter in self.counters:
            if counter.stalled_for_s() > self._settings.worker.stall_exit_s:
                return f"{counter.stem} has lag and has not moved"
        return None

    async def _check(self, counter: TopicCounter) -> None:
        while True:
            await asyncio.sleep(self._settings.worker.idle_check_s)
            try:
                await counter.check()
                self.app.pause(counter.topic.name, counter.halted)
            except Exception:
                log.exception("check_failed", extra={"stem": counter.stem})
            metrics.READY.set(not self.unready)


async def _close_redis(redis: Client) -> None:
    with contextlib.suppress(StoreUnavailable, OSError):
        await redis.aclose()
