"""Requests as bytes, and what the gateway must answer: RFC 9110 and 9112, and our own limits."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from tests.agents.gateway.doubles import report

__all__ = ["CASES", "Case", "request"]

HOST = b"host: x\r\n"
REPORT = json.dumps(report()).encode()


@dataclass(frozen=True)
class Case:
    """What is sent on a new connection, in one segment, and what comes back."""

    name: str
    sent: bytes
    statuses: tuple[int, ...]
    #: "open": the connection takes another request afterwards. "closed": it was closed after the
    #: last answer. "refused": the same, and the last answer is the server's own to what is no
    #: request that it takes.
    then: str = "open"
    #: How h11 sees it otherwise, if it does.
    h11: str = ""


def request(
    line: bytes = b"GET /healthz HTTP/1.1", headers: bytes = HOST, body: bytes = b""
) -> bytes:
    return line + b"\r\n" + headers + b"\r\n" + body


def post(headers: bytes = b"", body: bytes = REPORT) -> bytes:
    return request(b"POST /v1/reports HTTP/1.1", HOST + headers, body)


def sized(body: bytes = REPORT, more: bytes = b"") -> bytes:
    return post(b"content-length: %d\r\n" % len(body) + more, body)


def chunked(body: bytes, te: bytes = b"transfer-encoding: chunked\r\n") -> bytes:
    return post(te, body)


def chunks(*pieces: bytes, trailers: bytes = b"") -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces) + b"0\r\n" + trailers + b"\r\n"


def ok(name: str, sent: bytes, *statuses: int, h11: str = "") -> Case:
    return Case(name, sent, statuses or (200,), h11=h11)


def closed(name: str, sent: bytes, *statuses: int, h11: str = "") -> Case:
    return Case(name, sent, statuses or (200,), "closed", h11)


def refused(name: str, sent: bytes, *statuses: int, h11: str = "") -> Case:
    return Case(name, sent, statuses or (400,), "refused", h11)


def hosts(*values: bytes) -> bytes:
    return b"".join(b"host: " + value + b"\r\n" for value in values)


ASK = request()
_VALUE = "checks no more of Host than how many there are"
_SIZE = "has another limit"
_TARGET = "takes any visible characters as a target"
_METHOD = "takes any token as a method"
_VERSION = "leaves the version to its caller"
_UPGRADE = "reads the body, since its caller did not upgrade"

_HOSTS = [
    ok("a name", request(headers=hosts(b"gateway.example"))),
    ok("a name with a port", request(headers=hosts(b"gateway.example:8080"))),
    ok("a port without digits", request(headers=hosts(b"gateway.example:"))),
    ok("an IPv4 address", request(headers=hosts(b"127.0.0.1:80"))),
    ok("an IPv6 address", request(headers=hosts(b"[::1]:80"))),
    ok("a name with an escape", request(headers=hosts(b"a%20b"))),
    ok("any case of the field's name", request(headers=b"HOST: x\r\n")),
    ok("white space around it", request(headers=b"host: \t x \t \r\n")),
    refused("no Host", request(headers=b"")),
    refused("no Host, absolute target", request(b"GET http://x/healthz HTTP/1.1", b"")),
    refused("two hosts", request(headers=hosts(b"x", b"y"))),
    refused("the same Host twice", request(headers=hosts(b"x", b"x"))),
    refused("two hosts in HTTP/1.0", request(b"GET /healthz HTTP/1.0", hosts(b"x", b"y"))),
    refused("an empty Host", request(headers=b"host:\r\n"), h11=_VALUE),
    refused("a Host of white space", request(headers=b"host:  \t\r\n"), h11=_VALUE),
    refused("a space in Host", request(headers=hosts(b"a b")), h11=_VALUE),
    refused("a path in Host", request(headers=hosts(b"a/b")), h11=_VALUE),
    refused("a user in Host", request(headers=hosts(b"user@a")), h11=_VALUE),
    refused("a scheme in Host", request(headers=hosts(b"http://a")), h11=_VALUE),
    refused("a port of letters", request(headers=hosts(b"a:http")), h11=_VALUE),
    refused("an open bracket", request(headers=hosts(b"[::1")), h11=_VALUE),
    refused("a bad escape in Host", request(headers=hosts(b"a%zz")), h11=_VALUE),
    refused("a Host that is no ASCII", request(headers=hosts(b"\xc3\xa9")), h11=_VALUE),
    refused("bad Host, HTTP/1.0", request(b"GET /healthz HTTP/1.0", hosts(b"a/b")), h11=_VALUE),
]

_VERSIONS = [
    closed("HTTP/1.0", request(b"GET /healthz HTTP/1.0", b"")),
    closed(
        "HTTP/1.0 that would stay",
        request(b"GET /healthz HTTP/1.0", HOST + b"connection: keep-alive\r\n"),
    ),
    closed(
        "HTTP/1.0 gets no 100",
        request(
            b"POST /v1/reports HTTP/1.0",
            b"expect: 100-continue\r\ncontent-length: %d\r\n" % len(REPORT),
            REPORT,
        ),
        202,
    ),
    refused(
        "HTTP/1.0 in chunks",
        request(b"POST /v1/reports HTTP/1.0", b"transfer-encoding: chunked\r\n", chunks(REPORT)),
        h11="reads the chunks, and closes",
    ),
    refused("HTTP/0.9", b"GET /healthz\r\n\r\n", 505),
    refused("no version", request(b"GET /healthz"), 505),
    refused("HTTP/0.9 by name", request(b"GET /healthz HTTP/0.9"), 505, h11=_VERSION),
    refused("HTTP/2.0", request(b"GET /healthz HTTP/2.0"), 505, h11=_VERSION),
    refused("HTTP/2's preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", h11=_VERSION),
    refused("HTTP/1.2", request(b"GET /healthz HTTP/1.2"), h11=_VERSION),
    refused("HTTP/3.0", request(b"GET /healthz HTTP/3.0"), h11=_VERSION),
    refused("HTTP/1.10", request(b"GET /healthz HTTP/1.10")),
    refused("HTTP/1", request(b"GET /healthz HTTP/1")),
    refused("http in small letters", request(b"GET /healthz http/1.1")),
    closed("RTSP/1.0, which the parser knows", request(b"GET /healthz RTSP/1.0"), h11="refuses it"),
]

_LINES = [
    ok("empty lines before a request", b"\r\n\r\n" + ASK, h11="allows none"),
    ok("absolute target", request(b"GET http://other:80/healthz HTTP/1.1")),
    ok("absolute target without a path", request(b"GET http://other HTTP/1.1"), 404),
    ok("absolute target with a query", request(b"GET http://other?q HTTP/1.1"), 404),
    ok("a query", request(b"GET /healthz?a=b HTTP/1.1")),
    ok("an escaped letter", request(b"GET /%68ealthz HTTP/1.1")),
    ok("an escaped NUL", request(b"GET /%00 HTTP/1.1"), 404),
    ok("a bad escape", request(b"GET /%zz HTTP/1.1"), 404),
    ok("an escape that is no UTF-8", request(b"GET /%ff HTTP/1.1"), 404),
    ok("a way up", request(b"GET /../../etc/passwd HTTP/1.1"), 404),
    ok("two slashes", request(b"GET //healthz HTTP/1.1"), 404),
    ok("OPTIONS", request(b"OPTIONS /v1/reports HTTP/1.1"), 204),
    ok("OPTIONS for all", request(b"OPTIONS * HTTP/1.1"), 404),
    ok("HEAD", request(b"HEAD /healthz HTTP/1.1")),
    ok("HEAD of nothing", request(b"HEAD /nothing HTTP/1.1"), 404),
    ok("DELETE", request(b"DELETE /healthz HTTP/1.1"), 405),
    ok("TRACE", request(b"TRACE /healthz HTTP/1.1"), 405),
    refused("CONNECT", request(b"CONNECT x:443 HTTP/1.1"), h11=_METHOD),
    refused("a method in small letters", request(b"get /healthz HTTP/1.1"), h11=_METHOD),
    refused("an unknown method", request(b"FETCH /healthz HTTP/1.1"), h11=_METHOD),
    refused("no method", request(b" /healthz HTTP/1.1")),
    refused("no target", request(b"GET HTTP/1.1")),
    refused("an empty target", request(b"GET  HTTP/1.1")),
    refused("a target without a slash", request(b"GET healthz HTTP/1.1"), h11=_TARGET),
    refused("an authority as target", request(b"GET x:80 HTTP/1.1"), h11=_TARGET),
    refused("only a query", request(b"GET ?a=b HTTP/1.1"), h11=_TARGET),
    refused("a target that is no ASCII", request(b"GET /\xc3\xa9 HTTP/1.1")),
    refused("a control character in it", request(b"GET /a\x01b HTTP/1.1")),
    refused("a NUL in it", request(b"GET /a\0b HTTP/1.1")),
    refused("tabs between", request(b"GET\t/healthz\tHTTP/1.1")),
    refused("a space at the end", request(b"GET /healthz HTTP/1.1 ")),
    refused("lines ended by LF", b"GET /healthz HTTP/1.1\nhost: x\n\n", h11="takes LF alone"),
    refused("lines ended by CR", b"GET /healthz HTTP/1.1\rhost: x\r\r\n\r\n"),
    refused("no HTTP", b"nonsense\r\n\r\n"),
    refused("a TLS hello", b"\x16\x03\x01\x00\xff\r\n\r\n"),
    refused("a NUL", b"\0\r\n\r\n"),
]

_HEADERS = [
    ok("an empty value", request(headers=HOST + b"x:\r\n")),
    ok("a value that is no ASCII", request(headers=HOST + b"x: \xc3\xa9\xff\r\n")),
    ok("a tab in a value", request(headers=HOST + b"x: a\tb\r\n")),
    ok("a head just within the limit", request(headers=HOST + b"x: " + b"y" * 16_000 + b"\r\n")),
    refused("a folded line", request(headers=HOST + b"x: a\r\n b\r\n"), h11="unfolds it"),
    refused("a space before the colon", request(headers=HOST + b"x : a\r\n")),
    refused("a space before the first name", request(headers=b" x: a\r\n" + HOST)),
    refused("no colon", request(headers=HOST + b"x\r\n")),
    refused("no name", request(headers=HOST + b": a\r\n")),
    refused("a bracket in a name", request(headers=HOST + b"a(b: c\r\n")),
    refused("a name that is no ASCII", request(headers=HOST + b"\xc3\xa9: a\r\n")),
    refused("a NUL in a value", request(headers=HOST + b"x: a\0b\r\n")),
    refused(
        "a control character in a value",
        request(headers=HOST + b"x: a\x01b\r\n"),
        h11="takes it, as browsers once did",
    ),
    refused("a CR in a value", request(headers=HOST + b"x: a\rb\r\n")),
    refused("an LF at the end of a field", request(headers=b"x: a\n" + HOST), h11="takes LF alone"),
    refused(
        "60 KB of head", request(headers=HOST + b"x: " + b"y" * 60_000 + b"\r\n"), 431, h11=_SIZE
    ),
    refused("many short fields", request(headers=HOST + b"x: y\r\n" * 4000), 431, h11=_SIZE),
    refused("60 KB of target", request(b"GET /" + b"a" * 60_000 + b" HTTP/1.1"), 431, h11=_SIZE),
    refused("60 KB without an end", b"GET /" + b"a" * 60_000, 431, h11=_SIZE),
    refused("a field without an end", request()[:-2] + b"x: " + b"y" * 60_000, 431, h11=_SIZE),
]

_LENGTHS = [
    ok("a report", sized(), 202),
    ok("a body of nothing", sized(b""), 400),
    ok("no length: no body", post(body=b""), 411),
    ok(
        "a body that GET has no use for",
        request(headers=HOST + b"content-length: 4\r\n", body=b"GET "),
    ),
    ok("zeros before the length", post(b"content-length: 00%d\r\n" % len(REPORT)), 202),
    closed("a body over the limit", post(b"content-length: 2000000\r\n", b""), 413, h11="waits"),
    refused("a length with a sign", post(b"content-length: +5\r\n", b"12345")),
    refused("a length below nothing", post(b"content-length: -5\r\n", b"12345")),
    refused("an empty length", post(b"content-length:\r\n", b"")),
    refused("a length in hexadecimal", post(b"content-length: 0x5\r\n", b"12345")),
    refused("a length with a comma", post(b"content-length: 5, 6\r\n", b"123456")),
    refused("two lengths", post(b"content-length: 5\r\ncontent-length: 6\r\n", b"123456")),
    refused(
        "the same length twice",
        post(b"content-length: 5\r\ncontent-length: 5\r\n", b"12345"),
        h11="takes them as one",
    ),
    refused(
        "the same length in a list", post(b"content-length: 5, 5\r\n", b"12345"), h11="the same"
    ),
    refused("a length beyond 64 bits", post(b"content-length: 99999999999999999999999\r\n", b"1")),
    refused("two numbers", post(b"content-length: 5 5\r\n", b"12345")),
    refused(
        "length and chunks",
        post(b"content-length: 5\r\ntransfer-encoding: chunked\r\n", chunks() + ASK),
        h11="goes by the chunks",
    ),
    refused(
        "chunks and length",
        post(b"transfer-encoding: chunked\r\ncontent-length: 5\r\n", chunks() + ASK),
        h11="goes by the chunks",
    ),
    refused(
        "an underscore for a hyphen",
        post(b"content_length: 9\r\n", b"12345\r\n\r\n"),
        411,
        400,
    ),
]

_TE = b"transfer-encoding: "
_CODINGS = [
    ok("a report in chunks", chunked(chunks(REPORT[:9], REPORT[9:])), 202),
    ok("Chunked", chunked(chunks(REPORT), b"transfer-encoding: ChunkeD\r\n"), 202),
    ok("an extension", chunked(b"%x;a=b\r\n%s\r\n0\r\n\r\n" % (len(REPORT), REPORT)), 202),
    ok("a trailer", chunked(chunks(REPORT, trailers=b"x: y\r\n")), 202),
    ok("a trailer that looks like a head", chunked(chunks(REPORT, trailers=HOST * 2)), 202),
    refused("gzip first", chunked(chunks(), _TE + b"gzip, chunked\r\n"), 501),
    refused("chunks in chunks", chunked(chunks(), _TE + b"chunked, chunked\r\n")),
    refused("chunks on two lines", chunked(chunks(), (_TE + b"chunked\r\n") * 2)),
    refused("gzip last", chunked(chunks(), _TE + b"chunked, gzip\r\n")),
    refused("only gzip", chunked(b"", _TE + b"gzip\r\n")),
    refused("identity", chunked(b"", _TE + b"identity\r\n")),
    refused("no coding", chunked(b"", _TE + b"\r\n")),
    refused("another word", chunked(chunks(), _TE + b"xchunked\r\n")),
    refused("a parameter", chunked(chunks(), _TE + b"chunked;q=1\r\n")),
    refused("a vertical tab", chunked(chunks(), _TE + b"\x0bchunked\r\n")),
    refused("a size with a sign", chunked(b"-1\r\na\r\n0\r\n\r\n")),
    refused("a size in no hexadecimal", chunked(b"g\r\na\r\n0\r\n\r\n")),
    refused("a size with 0x", chunked(b"0x1\r\na\r\n0\r\n\r\n")),
    refused("no size", chunked(b"\r\na\r\n0\r\n\r\n")),
    refused("a size beyond 64 bits", chunked(b"f" * 17 + b"\r\na\r\n"), h11="waits for it all"),
    refused("a size and a space", chunked(b"1 \r\na\r\n0\r\n\r\n"), h11="skips it"),
    refused("chunks ended by LF", chunked(b"1\na\n0\n\n"), h11="takes LF alone"),
    refused("a chunk without its end", chunked(b"1\r\naX0\r\n\r\n")),
    refused("a chunk that is too long", chunked(b"2\r\nabc\r\n0\r\n\r\n")),
    refused("an LF in an extension", chunked(b"1;a\nb\r\na\r\n0\r\n\r\n")),
    refused("a bad trailer", chunked(chunks(REPORT, trailers=b"x y\r\n"))),
    refused(
        "60 KB of trailers",
        chunked(chunks(REPORT, trailers=b"x: " + b"y" * 60_000 + b"\r\n")),
        431,
        h11=_SIZE,
    ),
    refused(
        "many short trailers",
        chunked(chunks(REPORT, trailers=b"x: y\r\n" * 12_000)),
        431,
        h11=_SIZE,
    ),
]

_CONNECTIONS = [
    ok("three in a row", ASK + sized() + ASK, 200, 202, 200),
    ok("HEAD, then GET", request(b"HEAD /healthz HTTP/1.1") + ASK, 200, 200),
    ok("OPTIONS, then GET", request(b"OPTIONS /healthz HTTP/1.1") + ASK, 204, 200),
    ok("a refused body, then GET", sized(b"{") + ASK, 400, 200),
    ok("an expectation nobody has", sized(more=b"expect: a-cake\r\n"), 202),
    ok("a body that did not wait for 100", sized(more=b"expect: 100-continue\r\n"), 100, 202),
    closed("the last one", request(headers=HOST + b"connection: close\r\n")),
    closed("the last of a list", request(headers=HOST + b"connection: x, Close\r\n")),
    closed("the last, and one more", request(headers=HOST + b"connection: close\r\n") + ASK),
    closed("the last, and rubbish", request(headers=HOST + b"connection: close\r\n") + b"\0\r\n"),
    refused("rubbish after an answer", ASK + b"\0\r\n\r\n", 200, 400),
    refused("rubbish after two", ASK + sized() + b"nonsense\r\n\r\n", 200, 202, 400),
    refused("no Host in the second", ASK + request(headers=b""), 200, 400),
    refused("HTTP/2.0 in the second", ASK + request(b"GET / HTTP/2.0"), 200, 505, h11=_VERSION),
    refused("a large second head", ASK + request(headers=HOST + b"x: " + b"y" * 60_000 + b"\r\n"),
            200, 431, h11=_SIZE),
    refused("bad chunks in the second", sized() + chunked(b"g\r\n"), 202, 400),
    ok("an upgrade that is not offered",
       request(headers=HOST + b"connection: upgrade\r\nupgrade: h2c\r\n")),
    ok("a request behind it",
       request(headers=HOST + b"connection: upgrade\r\nupgrade: h2c\r\n") + ASK, 200, 200),
    refused("an upgrade with a body",
            sized(more=b"connection: upgrade\r\nupgrade: h2c\r\n") + ASK, 400, h11=_UPGRADE),
    refused("an upgrade with chunks",
            chunked(chunks(ASK), _TE + b"chunked\r\nconnection: upgrade\r\nupgrade: x\r\n"),
            400, h11=_UPGRADE),
]  # fmt: skip


def _grouped(group: str, cases: list[Case]) -> list[Case]:
    return [replace(case, name=f"{group}: {case.name}") for case in cases]


CASES = [
    *_grouped("host", _HOSTS),
    *_grouped("version", _VERSIONS),
    *_grouped("line", _LINES),
    *_grouped("header", _HEADERS),
    *_grouped("length", _LENGTHS),
    *_grouped("coding", _CODINGS),
    *_grouped("connection", _CONNECTIONS),
]
