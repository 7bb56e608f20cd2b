"""POST /v1/reports with one good report in it: queued and answered without a task of its own.

Most requests are such, and a task, an ASGI scope and its messages cost more than all that is done
for the report. So the server asks here first (`agents.gateway.http.uvicorn_protocol`), before it
tells the application of a small body that came whole.

Promises: what is answered here would have got the same answer from the application, which judges
everything else: `take` then has changed nothing. It never waits, and does as little as one report
needs. While Kafka is waited for, no id and no report is kept.
"""

from __future__ import annotations

import time
from asyncio import Future
from collections.abc import Callable
from contextvars import Context
from typing import Protocol

from agents.gateway import metrics
from agents.gateway.http.cors import Cors
from agents.gateway.metrics import GATEWAY_TOTALS
from agents.gateway.read.publications import Publications
from agents.gateway.resource_limits import ByteBudget, TokenBucket
from agents.gateway.responses import Answer, Headers
from agents.gateway.submit.clock_check import ClockCheck
from agents.gateway.submit.frame_writer import FrameWriter
from agents.gateway.submit.report_submissions import ReportTarget, queue_report
from agents.gateway.submit.request_types import REPORTS
from agents.gateway.submit.verdicts import (
    ACCEPTED,
    ONE_ACCEPTED,
    QUEUED_ENTRY_BYTES,
    Verdict,
    answer_for,
)

__all__ = ["REPORTS_PATH", "DirectReports", "Reply"]

REPORTS_PATH = "/v1/reports"


class Reply(Protocol):
    """Sends the answer to one request, at any later time."""

    def send(self, answer: Answer, extra: Headers | None) -> None:
        """Send it with more headers, if anyone still listens."""


class DirectReports:
    """Takes good reports, one a request."""

    def __init__(
        self,
        *,
        publications: Publications,
        writer: FrameWriter,
        clock: ClockCheck,
        budget: ByteBudget,
        rate: TokenBucket | None,
        cors: Cors | None,
        admission: bool,
        body_bytes: int,
        wall_clock: Callable[[], float],
    ) -> None:
        """All of it the application's own. With an `admission` hook nothing is taken here."""
        self.in_flight = 0
        self._publications = publications
        self._writer = writer
        self._clock = clock
        self._budget = budget
        self._rate = rate
        self._cors = cors
        self._body_bytes = 0 if admission else body_bytes
        self._wall_clock = wall_clock
        self._totals = GATEWAY_TOTALS.route("POST", REPORTS_PATH)
        # Callbacks need none of what a context holds; a shared one spares a copy for each report.
        self._context = Context()

    def take(self, headers: Headers, body: bytes, reply: Reply) -> bool:
        """Queue the report and answer when Kafka has it; false: the application must judge it."""
        began = time.perf_counter()
        if len(body) > self._body_bytes or not self._clock.ok:
            return False
        report = REPORTS.well_formed(body)
        if report is None:
            return False
        target = self._publications.report_targets.get(report.head_list)
        if target is None or self._budget.used + QUEUED_ENTRY_BYTES > self._budget.limit:
            return False
        rate = self._rate
        if rate is not None and rate.take(1, now=time.monotonic()) > 0:
            return False
        queued = queue_report(report, target, self._writer, self._wall_clock() * 1000)
        if isinstance(queued, Verdict):
            if rate is not None:
                rate.give_back(1)
            return False
        self._budget.take(QUEUED_ENTRY_BYTES)
        self.in_flight += 1
        extra = None if self._cors is None else self._cors.headers(headers)
        waiting = _Waiting(self, target, reply, extra, began)
        queued.add_done_callback(waiting.delivered, context=self._context)
        return True

    def answer(self, waiting: _Waiting, append_ms: int | None) -> None:
        """Kafka has the report, or the deadline has passed."""
        self.in_flight -= 1
        self._budget.give_back(QUEUED_ENTRY_BYTES)
        verdict = waiting.target.verdict(append_ms)
        metrics.CLIENT_REPORTS.judged((verdict,))
        answer = ONE_ACCEPTED
        if verdict is not ACCEPTED:
            retry_after_s = self._writer.limits.delivery_deadline_s
            answer = answer_for((verdict,), retry_after_s=retry_after_s)
        self._totals.answered(answer.status, time.perf_counter() - waiting.began)
        waiting.reply.send(answer, waiting.extra)


class _Waiting:
    """What is kept of a report until its answer."""

    __slots__ = ("began", "direct", "extra", "reply", "target")

    def __init__(
        self,
        direct: DirectReports,
        target: ReportTarget,
        reply: Reply,
        extra: Headers | None,
        began: float,
    ) -> None:
        self.direct = direct
        self.target = target
        self.reply = reply
        self.extra = extra
        self.began = began

    def delivered(self, appended: Future[int | None]) -> None:
        self.direct.answer(self, appended.result())
