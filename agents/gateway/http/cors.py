"""CORS headers: pages of the origins in `gateway.cors_origins` may call the API.

Promises: only listed origins are allowed, and only an origin listed by name may send a token
(`Authorization`). Cookies are never allowed: the API uses none. A response that depends on the
origin has `Vary: origin`.
Starlette's middleware is not used: docs/decisions/0075-starlette-for-routing.md.
"""

from __future__ import annotations

from collections.abc import Iterable

from blendstream.agents.gateway.http.responses import Headers

__all__ = ["Cors"]

#: How long a browser may cache the response to a preflight.
_MAX_AGE_S = 86_400


class Cors:
    """Computes the CORS headers of responses."""

    def __init__(self, origins: Iterable[str]) -> None:
        """Take `origins` as browsers send them, `https://news.example`, or `*` for all."""
        self._origins = frozenset(origin.encode() for origin in origins)
        self._everyone = b"*" in self._origins

    def headers(self, request: Headers) -> Headers:
        """Return the headers to add to the response to a request with these headers."""
        if self._everyone:
            return [(b"access-control-allow-origin", b"*"), _EXPOSED]
        origin = _origin(request)
        if origin not in self._origins:
            return [(b"vary", b"origin")]
        return [(b"access-control-allow-origin", origin), (b"vary", b"origin"), _EXPOSED]

    def preflight(self, request: Headers, offered: Iterable[str]) -> Headers:
        """Return the headers for an OPTIONS request: methods and headers that a page may use."""
        listed = _origin(request) in self._origins
        if not self._everyone and not listed:
            return []
        headers = b"content-type, if-none-match"
        if listed:
            headers = b"authorization, " + headers
        return [
            (b"access-control-allow-methods", ", ".join(offered).encode()),
            (b"access-control-allow-headers", headers),
            (b"access-control-max-age", b"%d" % _MAX_AGE_S),
        ]


def _origin(request: Headers) -> bytes:
    return b", ".join(value for name, value in request if name == b"origin")


#: Devices compare their clock with Date.
_EXPOSED = (b"access-control-expose-headers", b"date, etag, retry-after")
