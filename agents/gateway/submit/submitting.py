"""Handle POST requests: queue reports and opt-in records; respond when Kafka has stored them.

    body ──▶ entries ──▶ rate ──▶ slices: decode, validate, queue ──▶ Kafka ──▶ results ──▶ response

Promises: accepted means that Kafka has stored the entry. No request blocks the event loop for 50 ms
or more at a time, whatever its content. No query, URL, user id or token is logged; ids, text and
reports are freed before the request waits for Kafka.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

from blendstream.agents.clocks import ClockCheck
from blendstream.agents.gateway.http.request_types import (
    OPTIN_RECORDS,
    REPORTS,
    EncodedEntry,
    split,
)
from blendstream.agents.gateway.http.requests import RefusedRequest, SubmitRequest
from blendstream.agents.gateway.http.resource_limits import SliceScheduler, TokenBucket
from blendstream.agents.gateway.http.responses import HttpResponse, problem
from blendstream.agents.gateway.state import metrics
from blendstream.agents.gateway.state.frame_writer import FrameWriter
from blendstream.agents.gateway.state.publications import Publications
from blendstream.agents.gateway.state.verdicts import (
    ACCEPTED,
    BUSY,
    ONE_ACCEPTED,
    QUEUED_ENTRY_BYTES,
    QueuedSlice,
    Verdict,
    response_to,
    wait_for_all_verdicts,
)
from blendstream.agents.gateway.submit.admission import Admission
from blendstream.agents.gateway.submit.gathered_reports import GatheredReports
from blendstream.agents.gateway.submit.record_submissions import Cohorts, queue_optin_records
from blendstream.agents.gateway.submit.report_submissions import (
    UNKNOWN,
    queue_reports,
)
from blendstream.agents.tokens import ApplicationTokens, Sender, TokenRefused
from blendstream.streams.settings.sections import GatewaySettings

__all__ = ["SubmitApi"]

#: Maximum size of a body that is processed immediately; larger ones take turns by slices
#: (`SliceScheduler`).
_SMALL_BODY_BYTES = 16 * 1024
#: Maximum size of a report that waits for others. A larger one is validated on arrival, because a
#: decoded report takes up to thirty times its bytes.
_GATHERED_BODY_BYTES = 2 * 1024

_TOKEN_REFUSED = {
    TokenRefused.UNKNOWN: "opt-in records need the header `Authorization: Bearer NAME.SECRET` with "
    "a token of a known application, or one that its backend signed for the user; ask the operator "
    "for the first (`blendstream tokens add NAME`) and the application for the second",
    TokenRefused.EXPIRED: "a user's token must not have expired, and this one has; get a new one "
    "from the application's backend and send the same records again",
    TokenRefused.LASTS_TOO_LONG: "a user's token must not last longer than the operator allows "
    "(gateway.user_token_s), and this one would; let the application's backend mint a shorter one",
}


class SubmitApi:
    """The handlers of both POST endpoints."""

    def __init__(
        self,
        *,
        limits: GatewaySettings,
        publications: Publications,
        writer: FrameWriter,
        clock: ClockCheck,
        cohorts: Cohorts,
        tokens: ApplicationTokens | None,
        admission: Admission | None,
        wall_clock: Callable[[], float],
    ) -> None:
        """Take `limits` on bodies, batches and rates, and the state to validate with."""
        self._limits = limits
        self._publications = publications
        self._writer = writer
        self._clock = clock
        self._cohorts = cohorts
        self._tokens = tokens
        self._admission = admission
        self._wall_clock = wall_clock
        self._turns = SliceScheduler()
        self._report_rate = self._bucket(limits.reports_per_s)
        self._gathered = GatheredReports(writer, wall_clock, self._not_queued)
        self._optin_rates: dict[tuple[str, bool], TokenBucket | None] = {}

    async def post_reports(self, request: SubmitRequest) -> HttpResponse:
        """Validate and queue reports of devices."""
        body = await request.body(body_bytes=self._limits.body_bytes)
        if self._admission is not None:
            refusal = await self._admission.refusal(request.headers, body)
            if refusal is not None:
                return problem(403, refusal, reason="not_admitted")
        if not self._clock.ok:
            return self._wrong_clock()
        gathered = self._gather(body)
        if gathered is not None:
            del body
            verdict = await gathered
            metrics.CLIENT_REPORTS.count((verdict,))
            if verdict is ACCEPTED:
                return ONE_ACCEPTED
            return response_to((verdict,), retry_after_s=self._retry_after_s)
        entries = await self._entries(request, body)
        slices: list[QueuedSlice] = []
        with self._taken(self._report_rate, len(entries), slices):
            unknown: Verdict | None = None
            for part in REPORTS.slices(entries):
                if slices:
                    await self._turns.next()
                queued = self._queue_reports(part, unknown)
                if queued is None:
                    # Another gateway may have served a head list that this one has not read yet.
                    unknown = UNKNOWN if await self._publications.read_to_end() else BUSY
                    queued = self._queue_reports(part, unknown)
                    assert queued is not None, "every head list has a verdict now"
                slices.append(queued)
        del body, entries, part
        request.release_body()
        verdicts = await wait_for_all_verdicts(slices)
        metrics.CLIENT_REPORTS.count(verdicts)
        return request.reserve_response(response_to(verdicts, retry_after_s=self._retry_after_s))

    def _gather(self, body: bytes) -> asyncio.Future[Verdict] | None:
        """Return a future of the verdict if the body is one small report, as nearly every body is.

        Otherwise return `None`; nothing was done.
        """
        if len(body) > _GATHERED_BODY_BYTES or (report := REPORTS.well_formed(body)) is None:
            return None
        target, rate = self._publications.report_targets.get(report.head_list), self._report_rate
        if target is None or (rate is not None and rate.take(1, now=time.monotonic()) > 0):
            return None
        return self._gathered.add(report, target)

    def _not_queued(self, reports: int) -> None:
        if self._report_rate is not None:
            self._report_rate.give_back(reports)

    def _queue_reports(
        self, entries: Sequence[EncodedEntry], unknown: Verdict | None
    ) -> QueuedSlice | None:
        """Decode and queue one slice, then free the decoded reports (up to 30 times the bytes)."""
        published = self._publications
        return queue_reports(
            REPORTS.decode(entries),
            published.report_targets,
            published.past_head_lists,
            self._writer,
            now_ms=self._wall_clock() * 1000,
            unknown=unknown,
        )

    async def post_optin_records(self, request: SubmitRequest) -> HttpResponse:
        """Validate and queue opt-in records of an application that presents its token."""
        sender = self._sender(request)
        body = await request.body(body_bytes=self._limits.body_bytes)
        published = self._publications
        # No epoch is open only if the release log's end shows none.
        unknown = (
            published.optin_targets.now(self._wall_clock() * 1000) is None
            and not await published.read_to_end()
        )
        if not self._clock.ok:
            return self._wrong_clock()
        entries = await self._entries(request, body)
        if unknown:
            return response_to([BUSY] * len(entries), retry_after_s=self._retry_after_s)
        now_ms = self._wall_clock() * 1000
        targets, paused = published.optin_targets, published.paused(now_ms / 1000)
        slices: list[QueuedSlice] = []
        left_out = False
        with self._taken(self._optin_rate(sender), len(entries), slices):
            for part in OPTIN_RECORDS.slices(entries):
                if slices:
                    await self._turns.next()
                records = OPTIN_RECORDS.decode(part)
                left_out = left_out or any(
                    not isinstance(e, str) and e.epoch is None for e in records
                )
                slices.append(
                    queue_optin_records(
                        records,
                        targets,
                        self._cohorts,
                        self._writer,
                        sender=sender,
                        now_ms=now_ms,
                        paused_detail=None if paused is None else paused.reason,
                    )
                )
                del records
        # Kafka may take seconds; ids and text are freed before.
        del body, entries, part
        request.release_body()
        verdicts = await wait_for_all_verdicts(slices)
        metrics.OPTIN_RECORDS.count(verdicts)
        # Entries without an epoch belong to the open one; a retry after its end must state it.
        current = targets.now(now_ms) if left_out else None
        return request.reserve_response(
            response_to(
                verdicts,
                retry_after_s=self._retry_after_s,
                epoch=None if current is None else current.epoch,
                resumes_s=None if paused is None else paused.resumes_s,
            )
        )

    async def _entries(self, request: SubmitRequest, body: bytes) -> Sequence[EncodedEntry]:
        """Return the entries of a body, with memory reserved for each until its response."""
        if len(body) > _SMALL_BODY_BYTES:
            await self._turns.next()
        entries = split(body)
        maximum = self._limits.batch_entries
        if not entries:
            raise RefusedRequest(400, f"a batch must hold 1 to {maximum} entries, got none")
        if len(entries) > maximum:
            found = f"a batch must hold at most {maximum} entries, got {len(entries)}"
            raise RefusedRequest(413, f"{found}; send it in parts")
        request.reserve(QUEUED_ENTRY_BYTES * len(entries))
        return entries

    def _optin_rate(self, sender: Sender) -> TokenBucket | None:
        # Users' devices have a separate rate, so that none of them can use up the backend's.
        who = (sender.application.name, sender.user is None)
        if who not in self._optin_rates:
            self._optin_rates[who] = self._bucket(self._limits.optin_records_per_s)
        return self._optin_rates[who]

    def _sender(self, request: SubmitRequest) -> Sender:
        authorization = request.headers.get(b"authorization")
        sender: Sender | TokenRefused = TokenRefused.UNKNOWN
        if self._tokens is not None:
            sender = self._tokens.sender(authorization, now_s=self._wall_clock())
        if isinstance(sender, TokenRefused):
            headers = [(b"www-authenticate", b'Bearer realm="opt-in records"')]
            raise RefusedRequest(401, _TOKEN_REFUSED[sender], headers=headers)
        return sender

    @contextlib.contextmanager
    def _taken(
        self, rate: TokenBucket | None, entries: int, slices: list[QueuedSlice]
    ) -> Iterator[None]:
        """Take `entries` from a rate, or raise `RefusedRequest`; give back those not queued."""
        wait_s = 0.0 if rate is None else rate.take(entries, now=time.monotonic())
        if wait_s > 0:
            raise RefusedRequest(
                429,
                "entries arrive faster than the operator allows; send the same request again after "
                "the seconds in Retry-After",
                retry_after_s=wait_s,
            )
        try:
            yield
        finally:
            if rate is not None:
                rate.give_back(entries - sum(queued.verdicts.count(ACCEPTED) for queued in slices))

    def _bucket(self, rate_per_s: float) -> TokenBucket | None:
        burst = max(rate_per_s, self._limits.batch_entries)
        return TokenBucket(rate_per_s=rate_per_s, burst=burst) if rate_per_s else None

    def _wrong_clock(self) -> HttpResponse:
        return problem(
            503,
            "this gateway's clock differs from the brokers', or was not compared yet, so it takes "
            "no submissions; send the same request again, another gateway may accept it",
            retry_after_s=self._retry_after_s,
            reason="clock",
        )

    @property
    def _retry_after_s(self) -> float:
        return self._writer.limits.delivery_deadline_s
