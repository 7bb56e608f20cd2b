"""Which heads of requests the parser takes and HTTP/1.1 does not (RFC 9110 and 9112).

Promises: what passes has one meaning. Where the gateway and a proxy in front could disagree on
where a request ends or for whom it is, one client could slip a request into another's connection.
Assumes: llhttp, the parser, refuses the rest: two lengths, a length beside chunks, bare LF.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from agents.gateway.responses import Answer, problem

__all__ = ["NOT_HTTP", "SENT_AHEAD", "head_fault"]

#: Requests that a connection may send ahead of their answers; each takes a hundred times its bytes.
SENT_AHEAD = 16

#: `uri-host [":" port]` of RFC 9110, 7.2, but for the empty name that no http address may have.
_HOST = re.compile(
    rb"(?:(?=[^:])[\w.~!$&'()*+,;=-]*(?:%[0-9A-Fa-f]{2}[\w.~!$&'()*+,;=-]*)*"
    rb"|\[[0-9A-Fa-f:.]+\]|\[[vV][0-9A-Fa-f]+\.[\w.~!$&'()*+,;=:-]+\])(?::[0-9]*)?",
    re.ASCII,
)

NOT_HTTP = problem(
    400, f"the request must be valid HTTP/1.1, with at most {SENT_AHEAD} more before its answer"
)
_WRONG_VERSION = problem(505, "the request must be HTTP/1.1 or HTTP/1.0")
_WRONG_HOST = problem(400, "the request must have one Host header: a host, and a port if need be")
_OLD_CHUNKS = problem(400, "HTTP/1.0 has no transfer-encoding; send content-length, or HTTP/1.1")
_WRONG_CODING = problem(501, "transfer-encoding must be chunked, and nothing else")
_UPGRADE_WITH_BODY = problem(
    400, "nothing is upgraded to here; send the request again without its Upgrade header"
)


def head_fault(
    version: str, headers: Iterable[tuple[bytes, bytes]], *, upgrade: bool
) -> Answer | None:
    """The answer to a head that is refused; `headers` by lower-case name, in the order sent.

    >>> head_fault("1.1", [(b"host", b"gateway.example:8080")], upgrade=False) is None
    True
    >>> head_fault("1.1", [(b"host", b"a"), (b"host", b"b")], upgrade=False).status
    400
    """
    if version not in ("1.1", "1.0"):
        return _WRONG_VERSION
    host, codings, sized = None, [], False
    for name, value in headers:
        if name == b"host":
            if host is not None or not _HOST.fullmatch(value.rstrip(b" \t")):
                return _WRONG_HOST
            host = value
        elif name == b"transfer-encoding":
            codings.append(value)
        elif name == b"content-length":
            sized = True
    if host is None and version == "1.1":
        return _WRONG_HOST
    if codings and (fault := _coding_fault(version, codings)) is not None:
        return fault
    if upgrade and (codings or sized):
        # The parser would take the body for what is spoken after the upgrade.
        return _UPGRADE_WITH_BODY
    return None


def _coding_fault(version: str, codings: list[bytes]) -> Answer | None:
    if version == "1.0":
        return _OLD_CHUNKS
    *others, last = b",".join(codings).lower().split(b",")
    if last.strip(b" \t") != b"chunked":
        return NOT_HTTP  # nothing says where the body ends
    return _WRONG_CODING if others else None
