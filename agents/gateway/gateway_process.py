"""Run the gateway process: connect, serve until stopped, and lose nothing that was accepted.

    start   read the token file, check the topics, connect the producer, then listen
    ready   (/readyz) Kafka responds, the release log was read to its end and is followed, and the
            clock agrees with the brokers'
    stop    become unready immediately, respond to requests in flight, flush frames and close
            connections, all within one deadline

Promises: wrong settings, an unreachable Kafka or a bad token file give one clear error before the
process listens. The access log is off: it would contain addresses.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import socket
import time
from functools import partial
from typing import NoReturn

import uvicorn
import uvloop

from blendstream.agents import process
from blendstream.agents.clocks import ClockCheck
from blendstream.agents.gateway.app import Gateway
from blendstream.agents.gateway.http.cors import Cors
from blendstream.agents.gateway.http.listening import listen, listening_address, needs_edge
from blendstream.agents.gateway.http.loop_stalls import watch_stalls
from blendstream.agents.gateway.http.server import make_server
from blendstream.agents.gateway.read.static_pages import StaticPages
from blendstream.agents.gateway.state import metrics
from blendstream.agents.gateway.state.frame_writer import FrameWriter, Place, append_time_ms
from blendstream.agents.gateway.state.publications import Publications
from blendstream.agents.gateway.state.release_follower import ReleaseFold, ReleaseFollower
from blendstream.agents.gateway.submit.admission import load_admission
from blendstream.agents.gateway.submit.frame_producer import FrameProducer, make_producer
from blendstream.agents.gateway.submit.record_submissions import Cohorts
from blendstream.agents.tokens import ApplicationTokens
from blendstream.streams.epoch_keys import KeyRing
from blendstream.streams.errors import StoreUnavailable
from blendstream.streams.kafka.kafka_clients import KafkaInspector
from blendstream.streams.kafka.topics import Topics, ensure_topics
from blendstream.streams.releases.blocked import OpenTransaction, find_blocked
from blendstream.streams.settings import Settings
from blendstream.streams.telemetry.metrics import SERVER_UP
from blendstream.streams.telemetry.structured_logs import SafeText

__all__ = ["GatewayProcess", "run_gateway"]

log = logging.getLogger(__name__)

#: Interval of checks of Kafka and of the brokers' clocks.
_PROBE_EVERY_S = 2.0
#: Interval until the first success: until then the gateway can accept nothing.
_FIRST_PROBE_AGAIN_S = 0.1
_PROBE = b"clock"

#: Fraction of the stop's deadline by which each step must have ended. Responding to requests in
#: flight gets the most: a request waits for Kafka for up to `gateway.delivery_deadline_s`. An entry
#: that Kafka has not acknowledged when the flush ends was not accepted; its sender retries it.
_ANSWERED, _FLUSHED, _DISCONNECTED, _CLOSED = 0.75, 0.8, 0.85, 0.9

_NEEDS_EDGE = SafeText(
    "this gateway listens on a network address: an edge must be in front of it, which ends TLS and "
    "closes slow connections; set gateway.unix_socket behind nginx (docs/install.md)"
)


def run_gateway(settings: Settings) -> NoReturn:
    """Serve until SIGTERM or SIGINT, then end the process."""
    # Imported objects are never freed and requests create no reference cycles, so collecting
    # garbage as often as Python's default wastes a tenth of a busy gateway's time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    connect, host = partial(GatewayProcess.connect, settings), settings.metrics.host
    uvloop.run(process.run(connect, "gateway", settings.gateway, host, metrics.GATEWAY))


def _looked_back_s(settings: Settings) -> float:
    """Return how far back a start reads the release log: the history and any pause in force.

    An epoch opens `epochs_ahead` windows before its own, and is published three windows after.
    """
    epochs = settings.gateway.history_epochs + settings.epoch.epochs_ahead + 3
    window_s = settings.epoch.window_s
    return max(epochs * window_s, settings.budget.period_s + window_s)


class GatewayProcess:
    """One gateway's connections, tasks and state, from `connect` to `close`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._kafka = KafkaInspector(settings.kafka)
        self._producer = FrameProducer(lambda: make_producer(settings.kafka))
        self._clock = ClockCheck(allowed_s=settings.epoch.allowed_skew_s)
        self._publications = Publications()
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False
        self._stop_began = 0.0
        self._caught_up_at: float | None = None
        self._kafka_answered_at = time.monotonic()
        self._listening: socket.socket
        self._server: uvicorn.Server | None = None
        self._writer: FrameWriter | None = None
        self._reader: ReleaseFollower | None = None
        self._blocked: OpenTransaction | None = None

    @classmethod
    async def connect(cls, settings: Settings) -> GatewayProcess:
        """Connect and start to read publications; raise one clear error if that fails."""
        begun = cls(settings)
        try:
            await begun._start()
        except BaseException:
            await begun.close()
            raise
        return begun

    async def _start(self) -> None:
        settings, gateway = self._settings, self._settings.gateway
        tokens = None
        if gateway.token_file is not None:
            tokens = ApplicationTokens(
                gateway.token_file, clock=time.monotonic, user_token_s=gateway.user_token_s
            )
            metrics.GATEWAY_TOKENS_STALE.set_function(lambda: tokens.stale)
        admission = load_admission(gateway.admission)
        topics = await ensure_topics(settings, self._kafka)
        try:
            await self._producer.start()
        except Exception as error:
            raise StoreUnavailable(
                f"Kafka must respond to a producer at {settings.kafka.bootstrap}, got "
                f"{type(error).__name__}; is it running, and may this user write?"
            ) from error
        self._listening = listen(gateway)
        self._writer = FrameWriter(
            self._producer,
            gateway,
            on_delivery=self._delivered,
            on_late=metrics.GATEWAY_LATE_FRAMES.inc,
        )
        self._follow_releases(topics)
        app = Gateway(
            limits=gateway,
            publications=self._publications,
            writer=self._writer,
            clock=self._clock,
            cohorts=Cohorts(settings.keys.masters(), settings.keys.cohort_id),
            tokens=tokens,
            admission=admission,
            cors=Cors(gateway.cors_origins) if gateway.cors_origins else None,
            pages=StaticPages(),
            unready=self._unready,
        )
        self._server = make_server(app, stop_s=_ANSWERED * gateway.stop_deadline_s)
        metrics.GATEWAY_IN_FLIGHT.set_function(lambda: app.in_flight)
        self._watch(topics)

    def _follow_releases(self, topics: Topics) -> None:
        settings = self._settings
        fold = ReleaseFold(
            self._publications,
            keys=KeyRing(settings.keys.masters()),
            topics=topics,
            history_epochs=settings.gateway.history_epochs,
            admission=bool(settings.gateway.admission),
        )
        self._reader = ReleaseFollower(
            settings.kafka,
            fold,
            self._kafka,
            topics.releases.name,
            patience_s=settings.gateway.delivery_deadline_s,
            since_s=time.time() - _looked_back_s(settings),
        )
        self._tasks.append(asyncio.create_task(self._reader.run()))

    def _watch(self, topics: Topics) -> None:
        self._tasks += [
            asyncio.create_task(self._probe_clock(topics)),
            asyncio.create_task(self._probe_kafka(topics)),
            asyncio.create_task(watch_stalls(metrics.GATEWAY_LOOP_LAG.observe)),
        ]
        writer = self._writer
        assert writer is not None
        metrics.GATEWAY_BUFFERED_BYTES.set_function(lambda: writer.held_bytes)
        metrics.GATEWAY_STALLED_PARTITIONS.set_function(lambda: writer.stalled_partitions)
        metrics.GATEWAY_CLOCK_SKEW_SECONDS.set_function(lambda: self._clock.skew_s)
        metrics.GATEWAY_CLOCK_SKEW_LIMIT.set(self._clock.allowed_s)
        metrics.GATEWAY_READY.set_function(lambda: not self.unready)
        SERVER_UP.labels("kafka").set_function(lambda: not self._kafka_silent_s())

    async def run(self) -> None:
        """Serve until `stop` is called."""
        assert self._server is not None
        gateway = self._settings.gateway
        address = listening_address(gateway)
        log.info("gateway_started", extra={"address": address, "pid": os.getpid()})
        if needs_edge(gateway):
            log.warning("gateway_needs_edge", extra={"advice": _NEEDS_EDGE})
        await self._server.serve(sockets=[self._listening])

    def stop(self) -> None:
        """Accept no more connections, respond to requests in flight, and return from `run`."""
        if not self._stopping:
            self._stopping = True
            self._stop_began = time.monotonic()
        if self._server is not None:
            self._server.should_exit = True

    async def close(self) -> None:
        """Flush accepted entries and disconnect, within the rest of the stop's deadline."""
        self.stop()
        for task in self._tasks:
            task.cancel()
        if self._writer is not None:
            await self._writer.close(self._left_s(_FLUSHED))
        await self._producer.stop(self._left_s(_DISCONNECTED))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._left_s(_CLOSED)):
                await asyncio.gather(*self._tasks, return_exceptions=True)
                await self._kafka.close()
        log.info("gateway_stopped")

    def _left_s(self, part: float) -> float:
        """Return the seconds until this fraction of the stop's deadline has passed."""
        passed_s = time.monotonic() - self._stop_began
        return max(0.0, part * self._settings.gateway.stop_deadline_s - passed_s)

    # --- readiness -------------------------------------------------------------------------------

    @property
    def unready(self) -> list[str]:
        """The reasons for which /readyz returns 503; empty if the gateway is ready."""
        return self._unready() + ([] if self._clock.ok else [self._clock.trouble])

    def _unready(self) -> list[str]:
        reasons = []
        if self._stopping:
            reasons.append("this gateway is stopping; send requests to another")
        if self._reader is not None and self._reader.failure is not None:
            reasons.append(self._reader.failure)
        elif self._caught_up_at is None:
            reading = "the release log is still being read; wait, nothing needs repair"
            reasons.append(self._blocked.sentence() if self._blocked else reading)
        elif (behind_s := time.monotonic() - self._caught_up_at) > self._behind_patience_s():
            advice = "check the brokers, or restart this gateway"
            if self._blocked is not None:
                advice = self._blocked.sentence()
            reasons.append(
                f"the release log was not read to its end for {behind_s:.0f} s, so this gateway "
                f"may lack newer publications; {advice}"
            )
        silent_s = self._kafka_silent_s()
        if silent_s:
            reasons.append(f"Kafka has not responded for {silent_s:.0f} s; check the brokers")
        return reasons

    def _kafka_silent_s(self) -> float:
        """Return for how long Kafka has not responded; 0 while a slow response explains it."""
        silent_s = time.monotonic() - self._kafka_answered_at
        patience_s = self._settings.kafka.request_timeout_s + 2 * _PROBE_EVERY_S
        return silent_s if silent_s > patience_s else 0.0

    def _behind_patience_s(self) -> float:
        """Return for how long the release log's end may be unreadable until the gateway is unready.

        A transaction that a job left open hides the end from all gateways until Kafka aborts it.
        """
        settings = self._settings
        return settings.jobs.transaction_timeout_s + 3 * settings.gateway.delivery_deadline_s

    async def _probe_kafka(self, topics: Topics) -> None:
        assert self._reader is not None
        timeout_s = self._settings.jobs.transaction_timeout_s
        while True:
            # A response to this read also shows that Kafka is available.
            if await self._reader.read_to_end():
                self._caught_up_at = time.monotonic()
            with contextlib.suppress(StoreUnavailable):
                self._blocked = await find_blocked(self._kafka, topics.releases.name, timeout_s)
            self._kafka_answered_at = max(self._kafka_answered_at, self._reader.answered_at)
            await asyncio.sleep(
                _FIRST_PROBE_AGAIN_S if self._caught_up_at is None else _PROBE_EVERY_S
            )

    async def _probe_clock(self, topics: Topics) -> None:
        # A gateway that is unready gets no submissions to compare clocks by, so it sends probes.
        while True:
            sent_s = time.time()
            with contextlib.suppress(Exception):
                acknowledged = await (await self._producer.send(topics.clock.name, 0, _PROBE))
                self._compare_clocks((topics.clock.name, 0), sent_s, append_time_ms(acknowledged))
            await asyncio.sleep(_PROBE_EVERY_S if self._clock.measured else _FIRST_PROBE_AGAIN_S)

    def _delivered(
        self, place: Place, sent_s: float, append_ms: int | None, size: int, entries: int
    ) -> None:
        metrics.GATEWAY_FRAMES.inc()
        metrics.GATEWAY_FRAME_BYTES.observe(size)
        metrics.GATEWAY_FRAME_ENTRIES.observe(entries)
        self._compare_clocks(place, sent_s, append_ms)

    def _compare_clocks(self, place: Place, sent_s: float, append_ms: int | None) -> None:
        if append_ms is None:
            return
        clock = self._clock
        was_off = clock.measured and not clock.ok
        clock.appended(
            sent_s=sent_s,
            append_s=append_ms / 1000,
            acknowledged_s=time.time(),
            place=place,
        )
        if clock.measured and not clock.ok and not was_off:
            topic, partition = place
            skew_s = round(clock.skew_s, 3)
            log.error(
                "clock_skew_exceeded",
                extra={"skew_s": skew_s, "topic": topic, "partition": partition},
            )
