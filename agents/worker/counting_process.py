"""The worker process: counts its share of the partitions until it is told to stop.

Any number of workers share the partitions; Kafka's group protocol divides them, and adding or
removing one needs no configuration. A worker is

    ready   while Redis and Kafka answer and none of its partitions is stopped     (/readyz)
    alive   unless it has lag that does not move although both answer, its group coordinator
            or one of its own watches has died, or Faust has crashed: then it exits, to be
            restarted (/healthz)

A stop has a deadline. What was not stored by then is counted by whoever takes the partition up.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from agents.listening import listening
from agents.production import warn_of_risks
from agents.worker import metrics
from agents.worker.client_reports import add_client_reports_agent
from agents.worker.dead_letters import DeadLetters
from agents.worker.entry_checks import judge_optin_records, judge_reports
from agents.worker.faust_app import CountingApp
from agents.worker.optin_records import add_optin_records_agent
from agents.worker.topic_counter import PartitionCounter
from streams.errors import StoreUnavailable
from streams.releases.directory import ReleaseLogDirectory
from streams.settings import Settings
from streams.stems import Stem
from streams.stores.count_store import Client, CountTables, check_redis, connect_redis
from streams.stores.epoch_keys import KeyRing
from streams.stores.kafka import KafkaLog
from streams.stores.server_probe import watch_servers
from streams.telemetry.structured_logs import Known
from streams.topics import ensure_topics

__all__ = ["Worker", "run_worker"]

log = logging.getLogger(__name__)

#: Beyond the deadline the process ends itself, whatever a library still waits for.
_EXIT_HUNG = 3
_EXIT_DEAD = 4
_ASK_EVERY_S = 5.0


def run_worker(settings: Settings) -> int:
    """Run a worker until SIGTERM or SIGINT; the process's exit code."""
    return asyncio.run(_run(settings))


async def _run(settings: Settings) -> int:
    worker = await Worker.connect(settings)
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    life = asyncio.create_task(worker.live())
    await asyncio.wait({life, asyncio.create_task(told.wait())}, return_when="FIRST_COMPLETED")
    deadline = threading.Timer(settings.worker.stop_deadline_s, _leave, [settings])
    deadline.daemon = True  # A start that failed is told at once.
    deadline.start()
    why = life.result() if life.done() else None
    life.cancel()
    if why is not None:
        log.error("worker_exits", extra={"reason": Known(why)})
    await worker.stop()
    log.info("worker_stopped")
    # Threads of the Kafka clients may still wait for a broker that is gone; nothing is left to do.
    os._exit(_EXIT_DEAD if why is not None else 0)


def _leave(settings: Settings) -> None:
    """End the process, from a thread of its own: the event loop may be what hangs."""
    log.error("stop_deadline_passed", extra={"seconds": settings.worker.stop_deadline_s})
    os._exit(_EXIT_HUNG)


class Worker:
    """Both counters, their app, and the port that tells how they are."""

    def __init__(
        self,
        settings: Settings,
        app: CountingApp,
        counters: list[PartitionCounter],
        close: list[Callable[[], Awaitable[None]]],
        watch: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        self.app = app
        self.counters = counters
        self._settings = settings
        self._close = close
        self._watch = watch
        self._tasks: list[asyncio.Task[None]] = []
        self._starting: asyncio.Task[None] | None = None
        self._web: web.AppRunner | None = None

    @classmethod
    async def connect(cls, settings: Settings) -> Worker:
        """Reach Kafka and Redis, check or create the topics; one clear error if that fails."""
        kafka = KafkaLog(settings.kafka)
        topics = await ensure_topics(settings, kafka)
        redis = await connect_redis(settings.redis)
        await check_redis(redis)
        await warn_of_risks(settings, kafka, redis)
        directory = ReleaseLogDirectory(
            settings.kafka, kafka, topics.releases.name, skew_s=settings.epoch.allowed_skew_s
        )
        keys = KeyRing(settings.keys.masters())
        prefix = settings.topics.prefix
        app = CountingApp(settings, group=f"{prefix}.worker.v{settings.topics.version}")
        counters = []
        for stem, judge, add_agent in (
            (Stem.OPTIN_RECORDS, judge_optin_records, add_optin_records_agent),
            (Stem.CLIENT_REPORTS, judge_reports, add_client_reports_agent),
        ):
            topic = topics.of(stem)
            counter = PartitionCounter(
                stem,
                topic,
                judge=judge,
                tables=CountTables(redis, topic.name, prefix=prefix),
                directory=directory,
                kafka=kafka,
                keys=keys,
                seek=partial(app.seek, topic.name),
            )
            app.add_counter(counter)
            add_agent(
                app, counter, DeadLetters(app, topic.name, topics.dead_letters.name),
                settings.worker,
            )  # fmt: skip
            counters.append(counter)
        close: list[Callable[[], Awaitable[None]]] = [directory.close, partial(_close_redis, redis)]
        watch = partial(watch_servers, kafka, topics.releases.name, redis, _ASK_EVERY_S)
        return cls(settings, app, counters, close, watch)

    @property
    def ready(self) -> bool:
        return all(counter.ready for counter in self.counters)

    async def live(self) -> str:
        """Serve the port, join the group, count; returns why it must be restarted."""
        await self._serve()
        self._tasks = [asyncio.create_task(self._check(counter)) for counter in self.counters]
        self._tasks.append(asyncio.create_task(self._watch()))
        # Starting ends with the first assignment, which may take as long as Kafka likes.
        self._starting = asyncio.create_task(self.app.start())
        return await self._until_dead()

    async def stop(self) -> None:
        """Leave the group and close what is open."""
        for task in self._tasks:
            task.cancel()
        if self._starting is not None:
            self._starting.cancel()
        if self._web is not None:
            await self._web.cleanup()
        await self.app.stop()
        for close in self._close:
            await close()

    async def _until_dead(self) -> str:
        while True:
            await asyncio.sleep(1.0)
            starting = self._starting
            failed = starting is not None and starting.done() and starting.exception() is not None
            if self.app.crashed or failed:
                return "Faust has crashed"
            if self._coordinator_died():
                return "the group coordinator's task has died"
            for task in self._tasks:
                if task.done():
                    log.error(
                        "watch_ended", exc_info=None if task.cancelled() else task.exception()
                    )
                    return "a task that looks after the partitions or the servers has ended"
            for counter in self.counters:
                if counter.stalled_for_s() > self._settings.worker.stall_exit_s:
                    return f"{counter.stem} has lag and has not moved"

    def _coordinator_died(self) -> bool:
        # aiokafka tells nobody when this task ends; without it the worker keeps its partitions
        # until the session is over, and then waits for ever.
        consumer = getattr(getattr(self.app.consumer, "_thread", None), "_consumer", None)
        task = getattr(getattr(consumer, "_coordinator", None), "_coordination_task", None)
        return task is not None and task.done() and not self.app.should_stop

    async def _check(self, counter: PartitionCounter) -> None:
        while True:
            await asyncio.sleep(self._settings.worker.idle_check_s)
            try:
                await counter.check()
                self.app.pause(counter.topic.name, counter.stopped)
            except Exception:
                log.exception("check_failed", extra={"stem": counter.stem})
            metrics.READY.set(self.ready)

    async def _serve(self) -> None:
        served = web.Application()
        served.router.add_get("/metrics", _metrics)
        served.router.add_get("/healthz", self._healthz)
        served.router.add_get("/readyz", self._readyz)
        self._web = web.AppRunner(served, access_log=None)
        await self._web.setup()
        where = self._settings.metrics.host, self._settings.worker.metrics_port
        with listening("metrics.host and worker.metrics_port", *where):
            await web.TCPSite(self._web, *where).start()

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="alive\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        if self.ready:
            return web.Response(text="ready\n")
        stopped = [
            f"{counter.stem} partition {partition} is stopped: {reason}"
            for counter in self.counters
            for partition, reason in sorted(counter.stopped.items())
        ]
        return web.Response(
            status=503, text="\n".join(stopped or ["Redis or Kafka does not answer"]) + "\n"
        )


async def _metrics(_request: web.Request) -> web.Response:
    body = generate_latest(metrics.WORKER)
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})


async def _close_redis(redis: Client) -> None:
    with contextlib.suppress(StoreUnavailable, OSError):
        await redis.aclose()
