"""Pages of other origins that may call the API, by setting (CORS).

Promises: nothing is allowed unless the operator lists the origin; only an origin listed by name may
send a token (`Authorization`); cookies never are, since the API knows none.
"""

from __future__ import annotations

from collections.abc import Iterable

from agents.gateway.http.requests import Request
from agents.gateway.responses import Headers

__all__ = ["Cors"]

#: How long a browser may remember the answer to a preflight.
_MAX_AGE_S = 86_400


class Cors:
    """The headers that let browsers through."""

    def __init__(self, origins: Iterable[str]) -> None:
        """`origins` as browsers send them, `https://news.example`, and `*` for everyone."""
        self._origins = frozenset(origin.encode() for origin in origins)
        self._everyone = b"*" in self._origins

    def headers(self, request: Request) -> Headers | None:
        """For an answer to a page of this origin; `None` when there is nothing to add."""
        if self._everyone:
            return [(b"access-control-allow-origin", b"*"), _EXPOSED]
        origin = request.headers.get(b"origin")
        if origin not in self._origins:
            return [(b"vary", b"origin")]
        return [(b"access-control-allow-origin", origin or b""), (b"vary", b"origin"), _EXPOSED]

    def preflight(self, request: Request, offered: Iterable[str]) -> Headers:
        """What an OPTIONS request asks: which methods and headers a page may use."""
        if not self._everyone and request.headers.get(b"origin") not in self._origins:
            return []
        headers = b"content-type, if-none-match"
        if request.headers.get(b"origin") in self._origins:
            headers = b"authorization, " + headers
        return [
            (b"access-control-allow-methods", ", ".join(offered).encode()),
            (b"access-control-allow-headers", headers),
            (b"access-control-max-age", b"%d" % _MAX_AGE_S),
        ]


#: Devices compare their clock with Date.
_EXPOSED = (b"access-control-expose-headers", b"date, etag, retry-after")
