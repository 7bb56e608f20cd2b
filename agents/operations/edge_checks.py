"""Check a running edge from outside, as a device would: `blendstream doctor --edge URL`.

Sends seven requests; none contains a report or a record, and nothing is stored. The slow ones take
until the edge closes them, at most 30 s. The requirements are those of docs/install.md, *The
edge*; they also apply to HAProxy, Envoy or a cloud's load balancer.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
import time
from collections.abc import AsyncIterator, Callable
from urllib.parse import SplitResult, urlsplit

import httpx

from blendstream.agents.operations.findings import Finding, fix, note, ok
from blendstream.agents.plurals import counted
from blendstream.streams.wire.submissions import MAX_BODY_BYTES

__all__ = ["examine_edge"]

#: If an edge waited longer for the rest of a request, a few machines could exhaust its connections.
LONGEST_WAIT_S = 30.0
#: Enough time to notice and repair a failed renewal.
_DAYS_LEFT = 14
_CONNECT_S = 10.0
_HOW = "compare with deploy/edge/nginx.conf and docs/install.md, The edge"
_UNFINISHED = {
    "slow head": "POST /v1/reports HTTP/1.1\r\nhost: {host}\r\nx: ",
    "slow body": "POST /v1/reports HTTP/1.1\r\nhost: {host}\r\ncontent-length: 100\r\n\r\n[",
}
_CACHE_HEADERS = ("cache-status", "x-cache", "x-cache-status", "cf-cache-status")


async def examine_edge(url: str, clock: Callable[[], float] = time.time) -> AsyncIterator[Finding]:
    """Check the edge at `url` and yield each finding immediately. `clock` is this machine's."""
    address = urlsplit(url)
    if address.scheme != "https" or not address.hostname:
        yield fix("tls", f"devices need https://HOST, got {address.scheme or url!r}; name that URL")
        return
    trusted = await _certificate(address, clock)
    yield trusted
    if trusted.grade != "ok":
        return
    async with httpx.AsyncClient(base_url=url, timeout=_CONNECT_S) as client:
        try:
            yield await _behind(client)
            yield await _body_limit(client)
            yield await _cache(client)
        except httpx.TransportError as error:
            yield fix("edge", f"must respond to every request, got {type(error).__name__}; {_HOW}")
            return
    slow = [_slow(subject, address, start) for subject, start in _UNFINISHED.items()]
    for finding in await asyncio.gather(*slow):
        yield finding


async def _connect(
    address: SplitResult,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    trust = ssl.create_default_context()
    trust.set_alpn_protocols(["http/1.1"])
    async with asyncio.timeout(_CONNECT_S):
        return await asyncio.open_connection(address.hostname, address.port or 443, ssl=trust)


async def _certificate(address: SplitResult, clock: Callable[[], float]) -> Finding:
    try:
        _, writer = await _connect(address)
    except ssl.SSLCertVerificationError as error:
        return fix(
            "tls",
            f"the certificate must be one that devices trust, got: {error.verify_message}; renew "
            "it, give its whole chain, and reload the edge",
        )
    except (OSError, TimeoutError) as error:
        return fix(
            "tls",
            f"must accept connections on port {address.port or 443}, got {type(error).__name__}",
        )
    tls = writer.get_extra_info("ssl_object")
    writer.close()
    left = (ssl.cert_time_to_seconds(tls.getpeercert()["notAfter"]) - clock()) / 86_400
    state = f"{tls.version()}, and the certificate expires in {counted(int(left), 'day')}"
    if left < _DAYS_LEFT:
        return fix("tls", f"{state}; renew it, reload the edge, and repair automatic renewal")
    return ok("tls", state)


async def _behind(client: httpx.AsyncClient) -> Finding:
    response = await client.get("/healthz")
    server = response.headers.get("server", "")
    if response.status_code != 200:
        return fix(
            "gateway",
            f"/healthz must be 200 through the edge, got {response.status_code}; start a gateway "
            "and check the address that the edge forwards to",
        )
    if re.search(r"\d", server):
        return fix("gateway", f"Server must name no version, got {server!r}; {_HOW}")
    return ok("gateway", f"responds; Server is {server!r} and names no version")


async def _body_limit(client: httpx.AsyncClient) -> Finding:
    """Check the response to a body over the limit, and its type, because the edge writes it."""
    response = await client.post("/v1/reports", content=b" " * (MAX_BODY_BYTES + 1))
    form = response.headers.get("content-type", "")
    if response.status_code != 413:
        return fix(
            "body limit",
            f"a body of {MAX_BODY_BYTES + 1} bytes must be refused with 413, got "
            f"{response.status_code}; {_HOW}",
        )
    if not form.startswith("application/problem+json"):
        return fix("body limit", f"413 must be application/problem+json, got {form!r}; {_HOW}")
    return ok("body limit", f"above {MAX_BODY_BYTES} bytes 413, as problem+json")


async def _cache(client: httpx.AsyncClient) -> Finding:
    for _ in range(2):
        response = await client.get("/openapi.json")
    status = " ".join(response.headers.get(name, "") for name in _CACHE_HEADERS).lower()
    if "hit" in status or "age" in response.headers:
        return ok("cache", "publications are cached: the second response came from the edge")
    return note(
        "cache",
        "no Age or Cache-Status header shows that publications are cached: the gateways serve "
        f"every reader; {_HOW}",
    )


async def _slow(subject: str, address: SplitResult, start: str) -> Finding:
    """Send the start of a request and wait until the edge closes the connection."""
    reader, writer = await _connect(address)
    writer.write(start.format(host=address.hostname).encode())
    began = time.monotonic()
    try:
        async with asyncio.timeout(LONGEST_WAIT_S):
            with contextlib.suppress(ConnectionError):
                await reader.read()
    except TimeoutError:
        return fix(
            subject,
            f"an unfinished request must be ended within {LONGEST_WAIT_S:.0f} s, and was not; "
            f"{_HOW}",
        )
    finally:
        writer.close()
    return ok(subject, f"ended after {time.monotonic() - began:.0f} s")
