"""The gateway's ASGI application: addresses, submissions, publications, health.

Starlette's router finds the endpoint of a GET. The two POSTs are looked up by their path before it
and make no Starlette request: what a framework does around a report may cost more than the report
itself (docs/decisions/0075-starlette-for-routing.md).

Promises: stateless but for what travels to Kafka and copies of what was published; any number run
behind a balancer. Every answer that is not a result is a problem that says what to do. No query,
URL, user id, token or address is logged.
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from agents.gateway import metrics
from agents.gateway.http.cors import Cors
from agents.gateway.http.requests import Refused, SubmitRequest
from agents.gateway.metrics import RouteMeter
from agents.gateway.read.publications import Publications
from agents.gateway.read.read_api import Reading
from agents.gateway.resource_limits import ByteBudget, TokenBucket, Turns
from agents.gateway.responses import Answer, problem
from agents.gateway.routes import ROUTES, ApiRoute
from agents.gateway.submit.admission import Admission
from agents.gateway.submit.clock_check import ClockCheck
from agents.gateway.submit.frame_writer import Delivered, FrameWriter
from agents.gateway.submit.record_submissions import Cohorts, queue_optin_records
from agents.gateway.submit.report_submissions import (
    UNKNOWN,
    ReportTarget,
    queue_report,
    queue_reports,
)
from agents.gateway.submit.request_types import (
    OPTIN_RECORDS,
    REPORTS,
    EncodedEntry,
    MalformedBody,
    split,
)
from agents.gateway.submit.token_file import ApplicationTokens, Sender, TokenRefused
from agents.gateway.submit.verdicts import (
    ACCEPTED,
    BUSY,
    QUEUED_ENTRY_BYTES,
    Queued,
    Verdict,
    all_settled,
    answer_for,
)
from streams.settings.sections import GatewaySettings

__all__ = ["Gateway"]

log = logging.getLogger(__name__)

#: A body up to this is worked on at once; a larger one waits for its turn (`Turns`).
_SMALL_BODY_BYTES = 16 * 1024


#: Takes Starlette's request, or a `SubmitRequest`.
Handler = Callable[[Any], Awaitable[Answer]]


_TOKEN_REFUSED = {
    TokenRefused.UNKNOWN: "opt-in records need the header `Authorization: Bearer NAME.SECRET` with "
    "a token of a known application, or one that its backend signed for the user; ask the operator "
    "for the first (`blendstream tokens add NAME`) and the application for the second",
    TokenRefused.EXPIRED: "a user's token must not have expired, and this one has; get a new one "
    "from the application's backend and send the same records again",
    TokenRefused.LASTS_TOO_LONG: "a user's token must not last longer than the operator allows "
    "(gateway.user_token_s), and this one would; let the application's backend mint a shorter one",
}


class Gateway:
    """The ASGI application."""

    def __init__(
        self,
        *,
        limits: GatewaySettings,
        publications: Publications,
        writer: FrameWriter,
        clock: ClockCheck,
        cohorts: Cohorts,
        tokens: ApplicationTokens | None,
        admission: Admission | None = None,
        cors: Cors | None = None,
        pages: Handler | None = None,
        unready: Callable[[], list[str]] = list,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """`limits`: on bodies, batches and rates. `pages` answers all else, or Starlette's 404."""
        self.limits = limits
        self.publications = publications
        self.writer = writer
        self.clock = clock
        self.reading = Reading(publications, wall_clock, batch_entries=limits.batch_entries)
        self._in_flight = 0
        self._cohorts = cohorts
        self._tokens = tokens
        self._admission = admission
        self._cors = cors
        self._unready = unready
        self._wall_clock = wall_clock
        #: What all requests together hold of bodies and answers.
        self.bodies = ByteBudget(limits.bodies_bytes)
        self._turns = Turns()
        self._report_rate = self._bucket(limits.reports_per_s)
        self._optin_rates: dict[tuple[str, bool], TokenBucket | None] = {}
        self._submissions: dict[str, tuple[Handler, RouteMeter]] = {}
        self._router = Router(
            [self._route(described) for described in ROUTES],
            redirect_slashes=False,
            default=None if pages is None else _Endpoint(pages, metrics.OTHER_ROUTES),
        )

    def _route(self, described: ApiRoute) -> Route:
        totals = RouteMeter(described.method, described.path, described.answers)
        owner = self if hasattr(self, described.handler) else self.reading
        handler = getattr(owner, described.handler)
        if described.body is not None:
            self._submissions[described.path] = handler, totals
        endpoint = _Endpoint(handler, totals)
        route = Route(described.path, endpoint, methods=[described.method])
        # Starlette ends its pattern with "$", which lets a newline pass behind the address.
        route.path_regex = re.compile(route.path_regex.pattern.removesuffix("$") + r"\Z")
        return route

    @property
    def in_flight(self) -> int:
        """Requests that are being answered."""
        return self._in_flight

    @property
    def held_bytes(self) -> int:
        """What requests hold between their first byte and their answer."""
        return self.bodies.used

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; lifespan events are the server's own matter."""
        if scope["type"] != "http":
            return
        began = time.perf_counter()
        request: SubmitRequest | None = None
        self._in_flight += 1
        try:
            try:
                found = None
                if scope["method"] == "POST":
                    found = self._submissions.get(scope["path"])
                if found is not None:
                    handler, totals = found
                    request = SubmitRequest(scope, receive, self.bodies)
                    answer = await handler(request)
                else:
                    scope["app"] = (
                        self  # with an application, the router raises what it cannot route
                    )
                    await self._router(scope, receive, send)
                    answer, totals = scope["answer"], scope["totals"]
            except ClientDisconnect:
                return
            except Exception as error:
                answer = self._answer_to(error, scope)
                if found is None:
                    totals = scope.get("totals", metrics.OTHER_ROUTES)
            # Here the error is gone, and with it what its frames kept of the request.
            totals.answered(answer.status, time.perf_counter() - began)
            cors = self._cors
            await answer.send(send, None if cors is None else cors.headers(scope["headers"]))
        finally:
            self._in_flight -= 1
            if request is not None:
                request.answered()

    def _answer_to(self, error: Exception, scope: Scope) -> Answer:
        if isinstance(error, Refused):
            return error.answer
        if isinstance(error, MalformedBody):
            return problem(400, str(error))
        if isinstance(error, HTTPException):
            return self._not_routed(scope)
        # The log's handler writes the error's kind and place, never its text.
        log.error("request_failed", exc_info=error)
        return problem(500, "an error in the gateway; it was logged, and repeating may help")

    def _not_routed(self, scope: Scope) -> Answer:
        if "route" not in scope:
            return problem(
                404, "there is nothing at this address; /openapi.json lists what there is"
            )
        offered = sorted({*scope["route"].methods, "OPTIONS"})
        allow = (b"allow", ", ".join(offered).encode())
        if scope["method"] == "OPTIONS":
            asked = [] if self._cors is None else self._cors.preflight(scope["headers"], offered)
            return Answer(204, b"", b"text/plain", [allow, *asked])
        return problem(405, f"this address takes {', '.join(offered)}", headers=[allow])

    # --- submissions -----------------------------------------------------------------------------

    async def post_reports(self, request: SubmitRequest) -> Answer:
        body = await request.body(body_bytes=self.limits.body_bytes)
        if self._admission is not None:
            refusal = await self._admission.refusal(request.headers, body)
            if refusal is not None:
                return problem(403, refusal, reason="not_admitted")
        if not self.clock.ok:
            return self._wrong_clock()
        one = self._queue_one_report(body)
        if one is not None:
            del body
            request.body_dropped(kept=QUEUED_ENTRY_BYTES)
            target, delivered = one
            verdict = target.verdict(await delivered)
            metrics.CLIENT_REPORTS.judged((verdict,))
            return answer_for((verdict,), retry_after_s=self._retry_after_s)
        entries = await self._entries(request, body)
        slices: list[Queued] = []
        with self._taken(self._report_rate, len(entries), slices):
            unknown: Verdict | None = None
            for part in REPORTS.slices(entries):
                if slices:
                    await self._turns.next()
                queued = self._queue_reports(part, unknown)
                if queued is None:
                    # Another gateway may have served a head list that this one has not read yet.
                    unknown = UNKNOWN if await self.publications.read_to_end() else BUSY
                    queued = self._queue_reports(part, unknown)
                    assert queued is not None, "every head list has a verdict now"
                slices.append(queued)
        del body, entries, part
        request.body_dropped()
        verdicts = await all_settled(slices)
        metrics.CLIENT_REPORTS.judged(verdicts)
        return request.hold_answer(answer_for(verdicts, retry_after_s=self._retry_after_s))

    def _queue_one_report(self, body: bytes) -> tuple[ReportTarget, Delivered] | None:
        """Queue a body that is one good report, as nearly every body is; None: nothing was done.

        It does for one report what the rest does for many, at half the cost.
        """
        if len(body) > _SMALL_BODY_BYTES or (report := REPORTS.well_formed(body)) is None:
            return None
        target, rate = self.publications.report_targets.get(report.head_list), self._report_rate
        if target is None or (rate is not None and rate.take(1, now=time.monotonic()) > 0):
            return None
        queued = queue_report(report, target, self.writer, self._wall_clock() * 1000)
        if isinstance(queued, Verdict):
            if rate is not None:
                rate.give_back(1)
            return None
        return target, queued

    def _queue_reports(
        self, entries: Sequence[EncodedEntry], unknown: Verdict | None
    ) -> Queued | None:
        """Decoded, reports need up to thirty times their bytes, which are freed again here."""
        published = self.publications
        return queue_reports(
            REPORTS.decode(entries),
            published.report_targets,
            published.past_head_lists,
            self.writer,
            now_ms=self._wall_clock() * 1000,
            unknown=unknown,
        )

    async def post_optin_records(self, request: SubmitRequest) -> Answer:
        """Judge and queue opt-in records of an application that shows its token."""
        sender = self._sender(request)
        body = await request.body(body_bytes=self.limits.body_bytes)
        published = self.publications
        # Only the end of the release log shows whether no epoch is open.
        unknown = (
            published.optin_targets.now(self._wall_clock() * 1000) is None
            and not await published.read_to_end()
        )
        if not self.clock.ok:
            return self._wrong_clock()
        entries = await self._entries(request, body)
        if unknown:
            return answer_for([BUSY] * len(entries), retry_after_s=self._retry_after_s)
        now_ms = self._wall_clock() * 1000
        targets, paused = published.optin_targets, published.paused(now_ms / 1000)
        slices: list[Queued] = []
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
                        self.writer,
                        sender=sender,
                        now_ms=now_ms,
                        paused_detail=None if paused is None else paused.detail,
                    )
                )
                del records
        # Kafka may take seconds; ids and text are not kept for that long.
        del body, entries, part
        request.body_dropped()
        verdicts = await all_settled(slices)
        metrics.OPTIN_RECORDS.judged(verdicts)
        # Entries without an epoch are read as the open one; a retry after its end must say so.
        current = targets.now(now_ms) if left_out else None
        return request.hold_answer(
            answer_for(
                verdicts,
                retry_after_s=self._retry_after_s,
                epoch=None if current is None else current.epoch,
                resumes_s=None if paused is None else paused.resumes_s,
            )
        )

    async def _entries(self, request: SubmitRequest, body: bytes) -> Sequence[EncodedEntry]:
        """The entries of a body, with room for what each of them takes until its answer."""
        if len(body) > _SMALL_BODY_BYTES:
            await self._turns.next()
        entries = split(body)
        most = self.limits.batch_entries
        if not entries:
            raise Refused(400, f"a batch must hold 1 to {most} entries, got none")
        if len(entries) > most:
            found = f"a batch must hold at most {most} entries, got {len(entries)}"
            raise Refused(413, f"{found}; send it in parts")
        request.hold(QUEUED_ENTRY_BYTES * len(entries))
        return entries

    def _optin_rate(self, sender: Sender) -> TokenBucket | None:
        # Users' devices have a rate of their own, so that none of them can use up the backend's.
        who = (sender.application.name, sender.user is None)
        if who not in self._optin_rates:
            self._optin_rates[who] = self._bucket(self.limits.optin_records_per_s)
        return self._optin_rates[who]

    def _sender(self, request: SubmitRequest) -> Sender:
        authorization = request.headers.get(b"authorization")
        sender: Sender | TokenRefused = TokenRefused.UNKNOWN
        if self._tokens is not None:
            sender = self._tokens.sender(authorization, now_s=self._wall_clock())
        if isinstance(sender, TokenRefused):
            headers = [(b"www-authenticate", b'Bearer realm="opt-in records"')]
            raise Refused(401, _TOKEN_REFUSED[sender], headers=headers)
        return sender

    @contextlib.contextmanager
    def _taken(
        self, rate: TokenBucket | None, entries: int, slices: list[Queued]
    ) -> Iterator[None]:
        """Take `entries` of a rate, or `Refused`; return those that the block did not queue."""
        wait_s = 0.0 if rate is None else rate.take(entries, now=time.monotonic())
        if wait_s > 0:
            raise Refused(
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
        burst = max(rate_per_s, self.limits.batch_entries)
        return TokenBucket(rate_per_s=rate_per_s, burst=burst) if rate_per_s else None

    def _wrong_clock(self) -> Answer:
        return problem(
            503,
            "this gateway's clock is off, or was not compared with the brokers' yet, and it takes "
            "no submissions; send the same request again, another gateway will take it",
            retry_after_s=self._retry_after_s,
            reason="clock",
        )

    @property
    def _retry_after_s(self) -> float:
        return self.writer.limits.delivery_deadline_s

    # --- health ----------------------------------------------------------------------------------

    async def get_health(self, request: Request) -> Answer:
        return self.reading.health(200, [])

    async def get_readiness(self, request: Request) -> Answer:
        reasons = self._unready()
        if not self.clock.ok:
            reasons.append(self.clock.trouble)
        return self.reading.health(503 if reasons else 200, reasons)


class _Endpoint:
    """An endpoint in Starlette's router: leaves its handler's answer in the scope."""

    def __init__(self, handler: Handler, totals: RouteMeter) -> None:
        self._handler = handler
        self._totals = totals

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["totals"] = self._totals
        scope["answer"] = await self._handler(Request(scope))
