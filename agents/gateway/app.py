"""The gateway's ASGI application: routes requests to submissions, publications and health.

Starlette's router finds the endpoint of a GET. The two POST endpoints are found by their path
before it and build no Starlette request: a framework's work around a report may cost more than
the report (docs/decisions/0075-starlette-for-routing.md).

Promises: the only state is frames on their way to Kafka and copies of publications; any number of
gateways run behind an edge. Every response without a result is a problem that states what to do.
No query, URL, user id, token or address is logged.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from blendstream.agents.clocks import ClockCheck
from blendstream.agents.gateway.http.cors import Cors
from blendstream.agents.gateway.http.request_types import MalformedBody
from blendstream.agents.gateway.http.requests import RefusedRequest, SubmitRequest
from blendstream.agents.gateway.http.resource_limits import ByteBudget
from blendstream.agents.gateway.http.responses import HttpResponse, problem
from blendstream.agents.gateway.openapi import openapi_document
from blendstream.agents.gateway.read.read_api import ReadApi
from blendstream.agents.gateway.routes import ROUTES, ApiRoute
from blendstream.agents.gateway.state import metrics
from blendstream.agents.gateway.state.frame_writer import FrameWriter
from blendstream.agents.gateway.state.metrics import GATEWAY_TOTALS, RouteTotals
from blendstream.agents.gateway.state.publications import Publications
from blendstream.agents.gateway.submit.admission import Admission
from blendstream.agents.gateway.submit.record_submissions import Cohorts
from blendstream.agents.gateway.submit.submitting import SubmitApi
from blendstream.agents.tokens import ApplicationTokens
from blendstream.streams.settings.sections import GatewaySettings

__all__ = ["Gateway"]

log = logging.getLogger(__name__)

#: Takes Starlette's request, or a `SubmitRequest`.
Handler = Callable[[Any], Awaitable[HttpResponse]]


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
        """Take `limits` on bodies, batches and rates; `pages` handles all paths outside the API."""
        self.in_flight = 0
        self._clock = clock
        self._cors = cors
        self._unready = unready
        self._reading = ReadApi(
            publications,
            wall_clock,
            description=lambda: openapi_document(batch_entries=limits.batch_entries),
        )
        self._submitting = SubmitApi(
            limits=limits,
            publications=publications,
            writer=writer,
            clock=clock,
            cohorts=cohorts,
            tokens=tokens,
            admission=admission,
            wall_clock=wall_clock,
        )
        self._bodies = ByteBudget(limits.max_in_flight_body_bytes)
        self._submissions: dict[str, tuple[Handler, RouteTotals]] = {}
        self._router = Router(
            [self._route(described) for described in ROUTES],
            redirect_slashes=False,
            default=None if pages is None else _Endpoint(pages, metrics.OTHER_ROUTES),
        )

    def _route(self, described: ApiRoute) -> Route:
        totals = GATEWAY_TOTALS.route(described.method, described.path, described.answers)
        owners = (self, self._reading, self._submitting)
        owner = next(one for one in owners if hasattr(one, described.handler))
        handler = getattr(owner, described.handler)
        if described.body is not None:
            self._submissions[described.path] = handler, totals
        endpoint = _Endpoint(handler, totals)
        route = Route(described.path, endpoint, methods=[described.method])
        # Starlette ends its pattern with "$", which also matches before a final newline.
        route.path_regex = re.compile(route.path_regex.pattern.removesuffix("$") + r"\Z")
        return route

    @property
    def held_bytes(self) -> int:
        """Bytes reserved by all requests whose response is not complete yet."""
        return self._bodies.used

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; other ASGI events are ignored."""
        if scope["type"] != "http":
            return
        began = time.perf_counter()
        request: SubmitRequest | None = None
        self.in_flight += 1
        try:
            try:
                found = None
                if scope["method"] == "POST":
                    found = self._submissions.get(scope["path"])
                if found is not None:
                    handler, totals = found
                    request = SubmitRequest(scope, receive, self._bodies)
                    response = await handler(request)
                else:
                    # With an application in the scope, the router raises for unknown paths.
                    scope["app"] = self
                    await self._router(scope, receive, send)
                    response, totals = scope["response"], scope["totals"]
            except ClientDisconnect:
                return
            except Exception as error:
                response = self._response_to(error, scope)
                if found is None:
                    totals = scope.get("totals", metrics.OTHER_ROUTES)
            # Outside the `except`: the error and its stack, which refer to the request, are freed.
            totals.count(response.status, time.perf_counter() - began)
            cors = self._cors
            await response.send(send, None if cors is None else cors.headers(scope["headers"]))
        finally:
            self.in_flight -= 1
            if request is not None:
                request.release()

    def _response_to(self, error: Exception, scope: Scope) -> HttpResponse:
        if isinstance(error, RefusedRequest):
            return error.response
        if isinstance(error, MalformedBody):
            return problem(400, str(error))
        if isinstance(error, HTTPException):
            return self._not_routed(scope)
        # The log's handler writes the error's type and location, never its text.
        log.error("request_failed", exc_info=error)
        return problem(500, "an error in the gateway; it was logged, and a retry may succeed")

    def _not_routed(self, scope: Scope) -> HttpResponse:
        if "route" not in scope:
            return problem(404, "no such path; /openapi.json lists the API's paths")
        offered = sorted({*scope["route"].methods, "OPTIONS"})
        allow = (b"allow", ", ".join(offered).encode())
        if scope["method"] == "OPTIONS":
            cors = [] if self._cors is None else self._cors.preflight(scope["headers"], offered)
            return HttpResponse(204, b"", b"text/plain", [allow, *cors])
        return problem(405, f"this path allows {', '.join(offered)}", headers=[allow])

    # --- health ----------------------------------------------------------------------------------

    async def get_health(self, request: Request) -> HttpResponse:
        """Return 200 while the process runs."""
        return self._reading.health(200, [])

    async def get_readiness(self, request: Request) -> HttpResponse:
        """Return 200 while submissions are accepted, otherwise 503 with the reasons."""
        reasons = self._unready()
        if not self._clock.ok:
            reasons.append(self._clock.trouble)
        return self._reading.health(503 if reasons else 200, reasons)


class _Endpoint:
    """An endpoint of Starlette's router; it stores its handler's response in the scope."""

    def __init__(self, handler: Handler, totals: RouteTotals) -> None:
        self._handler = handler
        self._totals = totals

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["totals"] = self._totals
        scope["response"] = await self._handler(Request(scope))
