"""A gateway without a network: a producer whose answers a test decides, and requests by hand."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiokafka.structs import RecordMetadata, TopicPartition

from blendstream.agents.clocks import ClockCheck
from blendstream.agents.gateway.app import Gateway
from blendstream.agents.gateway.state.frame_writer import FrameWriter, OptinFrames
from blendstream.agents.gateway.state.publications import Publications
from blendstream.agents.gateway.state.submission_targets import (
    OptinTarget,
    OptinTargets,
    ReportTarget,
)
from blendstream.agents.gateway.submit.record_submissions import Cohorts
from blendstream.streams.epoch_keys import EpochKeys
from blendstream.streams.settings.sections import GatewaySettings
from blendstream.streams.wire.frames import OptinFrame, ReportFrame, decode
from tests.service.settings import MASTER

HEAD_LIST = "ab" * 32


class ScriptedProducer:
    """Acknowledges at once, unless a test holds it back or makes it fail."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, int, bytes]] = []
        self.append_ms: int | None = None
        #: Whether the acknowledgement tells when the frame was appended.
        self.append_known = True
        self.failure: Exception | None = None
        self.holding = False
        self._held: list[asyncio.Future[RecordMetadata]] = []

    async def send(
        self, topic: str, partition: int, value: bytes
    ) -> asyncio.Future[RecordMetadata]:
        if self.failure is not None:
            raise self.failure
        self.sent.append((topic, partition, value))
        answer: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        if self.holding:
            self._held.append(answer)
        else:
            self._acknowledge(answer)
        return answer

    def release(self) -> None:
        """Acknowledge everything held back."""
        self.holding = False
        for answer in self._held:
            self._acknowledge(answer)
        self._held.clear()

    def _acknowledge(self, answer: asyncio.Future[RecordMetadata]) -> None:
        append_ms = int(time.time() * 1000) if self.append_ms is None else self.append_ms
        # What aiokafka makes of an acknowledgement without a time: our own time, and type 0.
        told_ms, kind = (append_ms, 1) if self.append_known else (int(time.time() * 1000), 0)
        answer.set_result(RecordMetadata("t", 0, TopicPartition("t", 0), 0, told_ms, kind, 0))

    def frames(self) -> list[ReportFrame | OptinFrame]:
        """What was sent, decoded."""
        frames = []
        for _, _, value in self.sent:
            frame = decode(value)
            assert isinstance(frame, ReportFrame | OptinFrame)
            frames.append(frame)
        return frames

    def entries(self) -> int:
        """Entries in all frames sent."""
        return sum(len(frame) for frame in self.frames())


def report_target(**changes: Any) -> ReportTarget:
    """A head list of 51 cells, one cell an answer, unless told otherwise."""
    fields: dict[str, Any] = {
        "head_list_id": HEAD_LIST,
        "epoch": 7,
        "keys": EpochKeys.derive(MASTER, 7),
        "topic": "reports",
        "partitions": 4,
        "cells": 51,
        "cells_per_answer": 1,
        "wildcard_alone": False,
        "answers": 1,
        "late_from_ms": 1 << 60,
        "log_position": 12,
    }
    return ReportTarget(**fields | changes)


def optin_target(epoch: int = 8, **changes: Any) -> OptinTarget:
    """An epoch whose window holds every moment of the test."""
    fields: dict[str, Any] = {
        "epoch": epoch,
        "keys": EpochKeys.derive(MASTER, epoch),
        "frames": OptinFrames("records", epoch, log_position=epoch + 1),
        "partitions": 4,
        "records_per_user": 1,
        "cohorts": 1,
        "cohort_id": "",
        "user_id_spaces": True,
        "window_start_ms": 0,
        "window_end_ms": 1 << 60,
        "early_before_ms": 0,
        "late_from_ms": (1 << 60) + 60_000,
    }
    return OptinTarget(**fields | changes)


@dataclass
class Reply:
    """One answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class TestGateway:
    """A gateway with everything a test may want to look at."""

    __test__ = False

    app: Gateway
    producer: ScriptedProducer
    writer: FrameWriter
    publications: Publications
    clock: ClockCheck
    moment_s: list[float] = field(default_factory=lambda: [1_000_000.0])

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | Sequence[tuple[str, str]] | None = None,
        *,
        pieces: int = 1,
    ) -> Reply:
        """Send one request through the ASGI interface."""
        content = body if isinstance(body, bytes) else b"" if body is None else _json(body)
        lines = headers.items() if isinstance(headers, Mapping) else headers or ()
        raw = [(k.lower().encode(), v.encode()) for k, v in lines]
        if method == "POST" and not any(name == b"content-length" for name, _ in raw):
            raw.append((b"content-length", b"%d" % len(content)))
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": raw,
        }
        step = max(1, -(-len(content) // pieces))
        parts = [content[i : i + step] for i in range(0, len(content), step)] or [b""]
        inbox = [
            {"type": "http.request", "body": part, "more_body": i < len(parts) - 1}
            for i, part in enumerate(parts)
        ]
        sent: list[Any] = []

        async def receive() -> Any:
            return inbox.pop(0) if inbox else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        start, *parts = sent
        assert [part.get("more_body", False) for part in parts] == [True] * (len(parts) - 1) + [
            False
        ]
        named = {k.decode(): v.decode() for k, v in start["headers"]}
        return Reply(start["status"], named, b"".join(part.get("body", b"") for part in parts))

    async def report(self, *reports: Any) -> Reply:
        """Post one report, or several as a batch."""
        return await self.ask(
            "POST", "/v1/reports", list(reports) if len(reports) > 1 else reports[0]
        )


def _json(body: Any) -> bytes:
    return json.dumps(body).encode()


def make_gateway(
    *,
    targets: Mapping[str, ReportTarget] | None = None,
    optin: OptinTargets | None = None,
    limits: GatewaySettings | None = None,
    frame_limits: GatewaySettings | None = None,
    clock_compared: bool = True,
    **options: Any,
) -> TestGateway:
    """Call it inside a running event loop."""
    producer = ScriptedProducer()
    writer = FrameWriter(
        producer,
        frame_limits
        or GatewaySettings(linger_s=0.001, delivery_deadline_s=0.5, buffer_bytes=1 << 20),
    )
    publications = Publications(
        report_targets=dict({HEAD_LIST: report_target()} if targets is None else targets),
        optin_targets=OptinTargets([optin_target()]) if optin is None else optin,
    )
    clock = ClockCheck(allowed_s=5.0)
    if clock_compared:
        clock.appended(sent_s=0.0, append_s=0.0, acknowledged_s=0.0)
    options.setdefault("cohorts", Cohorts({}))
    options.setdefault("tokens", None)
    moment = [1_000_000.0]
    app = Gateway(
        limits=limits or GatewaySettings(optin_records_per_s=0.0),
        publications=publications,
        writer=writer,
        clock=clock,
        wall_clock=lambda: moment[0],
        **options,
    )
    return TestGateway(app, producer, writer, publications, clock, moment)


def report(contributor: int = 1, cell: int = 3, head_list: str = HEAD_LIST) -> dict[str, Any]:
    """A well-formed report."""
    return {"head_list": head_list, "contributor": f"{contributor:032x}", "answers": [[cell]]}
