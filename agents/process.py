"""The process frame of worker, jobs and gateway: signals, deadline, health checks, start-up errors.

signals      SIGTERM and SIGINT stop it gracefully, at any time, also while it starts
deadline     a stop that exceeds its deadline ends the process, even if something hangs
exit codes   0 graceful stop · 3 deadline exceeded · 4 must be restarted (`Service.run`)
health       /metrics, /healthz (the event loop responds) and /readyz on a separate port
errors       one clear line when it cannot start; one warning for a risky set-up
memory       no core dumps: memory contains master secrets and raw opt-in records
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, NoReturn, Protocol

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from blendstream.streams.errors import SettingsError
from blendstream.streams.kafka.kafka_clients import KafkaInspector
from blendstream.streams.kafka.topics import Topics, copies_of_topics, ensure_topics
from blendstream.streams.settings import Settings
from blendstream.streams.tables.redis import Client, append_only, check_redis, connect_redis
from blendstream.streams.telemetry.structured_logs import SafeText

__all__ = ["Service", "address_of", "listening", "reach_servers", "run", "warn_of_risks"]

log = logging.getLogger(__name__)

#: Something hung past the stop's deadline.
_EXIT_HUNG = 3
#: The service cannot continue and must be restarted.
_EXIT_UNFIT = 4


class Service(Protocol):
    """The part of a process that does its work."""

    @property
    def unready(self) -> list[str]:
        """Reasons why it cannot work, for operators; empty while it can."""

    async def run(self) -> str | None:
        """Work until `stop`, then return `None`. Return a reason if the process must restart."""

    def stop(self) -> None:
        """Make `run` return soon. May be called more than once."""

    async def close(self) -> None:
        """Finish work in flight and disconnect from the servers."""


class ServiceSettings(Protocol):
    """The settings that every process's section contains."""

    @property
    def metrics_port(self) -> int:
        """Port of the health checks and of Prometheus."""

    @property
    def stop_deadline_s(self) -> float:
        """Maximum duration of a stop."""


async def run(
    connect: Callable[[], Coroutine[Any, Any, Service]],
    section: str,
    settings: ServiceSettings,
    host: str,
    registry: CollectorRegistry,
) -> NoReturn:
    """Connect and run until SIGTERM or SIGINT, then end the process.

    `section` names the settings in errors; `host` is metrics.host, `registry` has the metrics.
    Raises the errors of `connect` and of listening, so that the command can print them in one line.
    """
    _forbid_core_dumps()
    # In a separate thread, because the event loop may hang. A failed start does not wait for it.
    deadline = threading.Timer(settings.stop_deadline_s, _end_hung, [settings.stop_deadline_s])
    deadline.daemon = True
    starting = asyncio.create_task(connect())
    service: Service | None = None

    def stop() -> None:
        if deadline.ident is None:
            deadline.start()
        if service is None:
            starting.cancel()
        else:
            service.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    try:
        service = await starting
    except asyncio.CancelledError:
        _leave(0)
    unfit = None
    try:
        port_setting = f"metrics.host and {section}.metrics_port"
        async with _answering(service, port_setting, host, settings.metrics_port, registry):
            unfit = await service.run()
    finally:
        stop()
        await service.close()
    _leave(0 if unfit is None else _EXIT_UNFIT)


def _forbid_core_dumps() -> None:
    """Prevent core dumps of this process, to a file or to a collector of crashes.

    The limit is one byte, not 0: below a page Linux writes no file, and only with 1 it also does
    not start a collector (`kernel.core_pattern` with a pipe). Where the limit is 0 already, as in
    our systemd units, only root may raise it.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    if hard != 0:
        resource.setrlimit(resource.RLIMIT_CORE, (1, 1))


def _end_hung(seconds: float) -> None:
    log.error("stop_deadline_passed", extra={"seconds": seconds})
    _leave(_EXIT_HUNG)


def _leave(code: int) -> NoReturn:
    """End the process without waiting for threads of the Kafka clients.

    These may still wait for an unavailable broker; nothing is left to do.
    """
    logging.shutdown()
    os._exit(code)


@contextlib.asynccontextmanager
async def _answering(
    service: Service, names: str, host: str, port: int, registry: CollectorRegistry
) -> AsyncIterator[None]:
    async def metrics(_request: web.Request) -> web.Response:
        body = generate_latest(registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def alive(_request: web.Request) -> web.Response:
        return web.Response(text="alive\n")

    async def ready(_request: web.Request) -> web.Response:
        reasons = service.unready
        text = "\n".join(reasons or ["ready"])
        return web.Response(status=503 if reasons else 200, text=f"{text}\n")

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/healthz", alive)
    app.router.add_get("/readyz", ready)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        with listening(names, f"{host}:{port}"):
            await web.TCPSite(runner, host, port).start()
        address = address_of(host, port, "/metrics")
        log.info("metrics_started", extra={"address": address})
        yield
    finally:
        await runner.cleanup()


def address_of(host: str, port: int, path: str) -> SafeText:
    """Return the URL of a listening server."""
    named = f"[{host}]" if ":" in host else host
    return SafeText(f"http://{named}:{port}{path}")


@contextlib.contextmanager
def listening(names: str, place: str) -> Iterator[None]:
    """Context manager: report a failure to listen in one line that names the settings `names`."""
    try:
        yield
    except OSError as error:
        # asyncio puts a sentence with the address where the system's message belongs.
        named = isinstance(error, socket.gaierror) or error.errno is None
        why = (error.strerror or error) if named else os.strerror(error.errno or 0)
        raise SettingsError(
            [
                f"{names} must be an address that this process may listen on, got {place} "
                f"({why}); stop what listens there, or choose another"
            ]
        ) from error


async def reach_servers(settings: Settings) -> tuple[KafkaInspector, Topics, Client]:
    """Connect to Kafka and Redis and check or create the topics; raise one clear error."""
    kafka = KafkaInspector(settings.kafka)
    topics = await ensure_topics(settings, kafka)
    redis = await connect_redis(settings.redis)
    await check_redis(redis)
    await warn_of_risks(settings, kafka, redis)
    return kafka, topics, redis


async def warn_of_risks(settings: Settings, kafka: KafkaInspector, redis: Client) -> None:
    """Log one warning that lists everything unsuitable for production; `doctor` shows more."""
    risks = []
    if settings.topics.allow_single_broker:
        risks.append("topics.allow_single_broker is set, so losing one disk loses everything")
    copies, wanted = await copies_of_topics(settings, kafka), settings.topics.replication
    if few := sum(found < wanted for found in copies.values()):
        risks.append(f"{few} topics have fewer than topics.replication = {wanted} copies")
    if not await append_only(redis):
        risks.append("Redis has appendonly off, so a restart of it counts everything again")
    if risks:
        advice = "; ".join([*risks, "see `blendstream doctor`"])
        log.warning("not_for_production", extra={"advice": SafeText(advice)})
