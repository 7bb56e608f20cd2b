"""Pages of other origins that may call the API, by setting (CORS).

Promises: nothing is allowed unless the operator lists the origin; only an origin listed by name may
send a token (`Authorization`); cookies never are, since the API knows none. An answer that depends
on the origin says so to caches.
Starlette's middleware was not taken: docs/decisions/0075-starlette-for-routing.md.
"""

from __future__ import annotations

from collections.abc import Iterable

from blendstream.agents.gateway.http.responses import Headers

__all__ = ["Cors"]

#: How long a browser may remember the answer to a preflight.
_MAX_AGE_S = 86_400


class Cors:
    """The headers that let browsers through."""

    def __init__(self, origins: Iterable[str]) -> None:
        """`origins` as browsers send them, `https://news.example`, and `*` for everyone."""
        self._origins = frozenset(origin.encode() for origin in origins)
        self._everyone = b"*" in self._origins

    def headers(self, asked: Headers) -> Headers:
        """What is added to the answer to a request with these headers."""
        if self._everyone:
            return [(b"access-control-allow-origin", b"*"), _EXPOSED]
        origin = _origin(asked)
        if origin not in self._origins:
            return [(b"vary", b"origin")]
        return [(b"access-control-allow-origin", origin), (b"vary", b"origin"), _EXPOSED]

    def preflight(self, asked: Headers, offered: Iterable[str]) -> Headers:
        """What an OPTIONS request asks: which methods and headers a page may use."""
        listed = _origin(asked) in self._origins
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


def _origin(asked: Headers) -> bytes:
    return b", ".join(value for name, value in asked if name == b"origin")


#: Devices compare their clock with Date.
_EXPOSED = (b"access-control-expose-headers", b"date, etag, retry-after")
