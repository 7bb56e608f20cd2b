"""Run an exchange over HTTP, with and without asyncio.

The client imports this module with its first request: httpx takes more time and memory to import
than the rest of the client, and a device that only stores searches never needs it.

Promises: each exchange uses its own connection, without cookies, so that nothing links one report
to the next. No redirect is followed. No request takes longer than `ANSWER_S`.
Assumes: a server that may be hostile, slow or unavailable.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from functools import cache
from typing import Any

import httpx

from blendstream.localclient.bodies import BoundedBody, UnusableBody
from blendstream.localclient.exchange import DeviceRequest, Outcome, Response
from blendstream.localclient.watchdog import Watchdog

__all__ = ["ANSWER_S", "Advance", "run_exchange", "run_exchange_async"]

#: Maximum duration of one request, however slowly the server responds.
ANSWER_S = 120
_TIMEOUT = httpx.Timeout(30)
#: Errors of httpx that mean "no response". ValueError is among them, because httpx parses the
#: address of a redirect even if it does not follow it, and raises ValueError for an impossible one
#: (http://xn--/).
_NO_ANSWER = (
    httpx.HTTPError,
    httpx.InvalidURL,
    httpx.StreamError,
    UnusableBody,
    ValueError,
    TimeoutError,
)

#: Takes a response (`None` if there was none) and returns the next request, or the outcome.
Advance = Callable[[Response | None], DeviceRequest | Outcome]


def run_exchange(server: str, advance: Advance, http: Callable[[], httpx.Client] | None) -> Outcome:
    """Run an exchange to its end; `http` creates its connection."""
    step = advance(None)
    watchdog = Watchdog()
    with http() if http else httpx.Client(verify=_certificates()) as connection:
        while isinstance(step, DeviceRequest):
            step = advance(_ask(connection, watchdog, server, step))
    return step


async def run_exchange_async(
    server: str, advance: Advance, http: Callable[[], httpx.AsyncClient] | None
) -> Outcome:
    """Run an exchange on asyncio. Its steps wait for the disk, so they run in threads."""
    step = await asyncio.to_thread(advance, None)
    async with http() if http else httpx.AsyncClient(verify=_certificates()) as connection:
        while isinstance(step, DeviceRequest):
            response = await _ask_async(connection, server, step)
            step = await asyncio.to_thread(advance, response)
    return step


def _ask(
    http: httpx.Client, watchdog: Watchdog, server: str, request: DeviceRequest
) -> Response | None:
    http.cookies.clear()
    arguments = _arguments(server, request)
    try:
        with (
            watchdog.ends_after(ANSWER_S),
            http.stream(**arguments, extensions={"trace": watchdog.trace}) as answer,
        ):
            body = BoundedBody(answer.headers.get("content-encoding", ""), request.max_bytes)
            for chunk in answer.iter_raw():
                body.add(chunk)
                if body.too_large or watchdog.ended:
                    break
            return None if watchdog.ended else _response(answer, body)
    except _NO_ANSWER:
        return None


async def _ask_async(
    http: httpx.AsyncClient, server: str, request: DeviceRequest
) -> Response | None:
    http.cookies.clear()
    try:
        async with (
            asyncio.timeout(ANSWER_S),
            http.stream(**_arguments(server, request)) as answer,
        ):
            body = BoundedBody(answer.headers.get("content-encoding", ""), request.max_bytes)
            async for chunk in answer.aiter_raw():
                body.add(chunk)
                if body.too_large:
                    break
            return _response(answer, body)
    except _NO_ANSWER:
        return None


def _arguments(server: str, request: DeviceRequest) -> dict[str, Any]:
    own = {"user-agent": "blendstream-localclient", "accept-encoding": "gzip"}
    headers = {**own, **request.headers}
    return {
        "method": request.method,
        "url": server + request.path,
        "headers": headers,
        "content": request.body,
        "timeout": _TIMEOUT,
        # A redirect leads to another server; the person chose this one.
        "follow_redirects": False,
    }


@cache
def _certificates() -> ssl.SSLContext:
    """Read the trusted certificates, once: that takes longer than a whole report."""
    return httpx.create_ssl_context()


def _response(answer: httpx.Response, body: BoundedBody) -> Response:
    headers = {k.lower(): v for k, v in answer.headers.items()}
    return Response(answer.status_code, headers, body.whole(), body.too_large)
