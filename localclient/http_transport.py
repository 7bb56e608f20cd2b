"""Carries a talk's requests over HTTP, with and without asyncio.

Loaded with the first request: httpx takes longer to import, and more memory, than all the rest of
the client, and a device that only keeps searches never needs it.

Promises: each talk uses its own connection, without cookies, so that nothing links one report to
the next. No redirect is followed. No request takes longer than `ANSWER_S`.
Assumes: a server that may be hostile, slow or away.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from functools import cache
from typing import Any

import httpx

from blendstream.localclient.bodies import BoundedBody, UnusableBody
from blendstream.localclient.conversation import DeviceRequest, Outcome, Response
from blendstream.localclient.watchdog import Watchdog

__all__ = ["ANSWER_S", "Advance", "carry", "carry_async"]

#: No request blocks the caller for longer than this, however slowly the server sends its answer.
ANSWER_S = 120
_TIMEOUT = httpx.Timeout(30)
#: What httpx raises when there is no answer to read. A plain ValueError too: httpx parses the
#: address of a redirect even if it does not follow it, and an impossible one (http://xn--/) raises.
_NO_ANSWER = (
    httpx.HTTPError,
    httpx.InvalidURL,
    httpx.StreamError,
    UnusableBody,
    ValueError,
    TimeoutError,
)

#: Takes a response (or `None` when there was none) and gives the next request, or the result.
Advance = Callable[[Response | None], DeviceRequest | Outcome]


def carry(server: str, advance: Advance, http: Callable[[], httpx.Client] | None) -> Outcome:
    """Drive a talk to its end; `http` makes its connection."""
    step = advance(None)
    watchdog = Watchdog()
    with http() if http else httpx.Client(verify=_certificates()) as connection:
        while isinstance(step, DeviceRequest):
            step = advance(_ask(connection, watchdog, server, step))
    return step


async def carry_async(
    server: str, advance: Advance, http: Callable[[], httpx.AsyncClient] | None
) -> Outcome:
    """The same on asyncio. Steps wait for the disk, so they run beside the loop."""
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
        # Another address is another server, and this device was given only one.
        "follow_redirects": False,
    }


@cache
def _certificates() -> ssl.SSLContext:
    """Trusted certificates, read once: that takes longer than a whole report."""
    return httpx.create_ssl_context()


def _response(answer: httpx.Response, body: BoundedBody) -> Response:
    headers = {k.lower(): v for k, v in answer.headers.items()}
    return Response(answer.status_code, headers, body.whole(), body.too_large)
