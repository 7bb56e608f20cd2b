"""Thousands of requests made up from the API's own description: no 5xx but 503, ever.

schemathesis generates them, good and bad, from `/openapi.json`; they are sent straight into the
ASGI application, because a socket for each would take a hundred times as long, and every fifth over
a socket of the real server too. `make test` sends at least 1 000, `make fuzz` at least 10 000.
"""

from __future__ import annotations

import asyncio
import json
import urllib.parse
from collections import Counter
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig

from blendstream.agents.gateway.http.cors import Cors
from blendstream.agents.gateway.openapi import openapi_document
from blendstream.agents.gateway.read.static_pages import StaticPages
from blendstream.agents.gateway.state.publications import PublishedDocument
from blendstream.agents.tokens import ApplicationTokens, add_token
from blendstream.streams.releases.epoch_view import EpochView
from tests.agents.gateway.doubles import HEAD_LIST, Reply, make_gateway
from tests.agents.gateway.live import exchange, serving
from tests.agents.gateway.published import estimates

pytestmark = [pytest.mark.fuzz, pytest.mark.filterwarnings("ignore")]

API = openapi_document()


def _smaller(schema: Any) -> Any:
    """The same description with short arrays: drawing a hundred numbers finds no more than two."""
    if isinstance(schema, dict):
        smaller = {name: _smaller(value) for name, value in schema.items()}
        if "maxItems" in smaller:
            smaller["maxItems"] = min(smaller["maxItems"], 2)
        return smaller
    return [_smaller(value) for value in schema] if isinstance(schema, list) else schema


SCHEMA = schemathesis.openapi.from_dict(_smaller(API), config=SchemathesisConfig())
OPERATIONS = sorted(
    (operation.ok() for operation in SCHEMA.get_all_operations()), key=lambda o: o.label
)
#: Generated ids are never those of published lists, so that reports would stop at the first check.
SOMETIMES_KNOWN = {"head_list": HEAD_LIST}


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


@pytest.fixture(scope="module")
def gateway(loop, tmp_path_factory):
    path = tmp_path_factory.mktemp("tokens") / "tokens"
    token = add_token(path, "fuzz")

    async def make():
        return make_gateway(
            tokens=ApplicationTokens(path, clock=lambda: 0.0),
            cors=Cors(["*"]),
            pages=StaticPages(),
        )

    made = loop.run_until_complete(make())
    made.publications.estimates = {
        n: PublishedDocument(n, f"{n:064x}", estimates(n)) for n in range(5)
    }
    made.publications.head_lists = {
        HEAD_LIST: PublishedDocument(7, HEAD_LIST, b'{"schema":"x","epoch":7}')
    }
    made.publications.current_head_list = HEAD_LIST
    made.publications.epochs = {8: EpochView(8, "collecting", 0, 1 << 50, 1 << 50, 1, 1)}
    return made, token


@pytest.fixture(scope="module")
def port(gateway, loop) -> Iterator[int]:
    made, _ = gateway
    server = serving(made)
    yield loop.run_until_complete(server.__aenter__())
    loop.run_until_complete(server.__aexit__(None, None, None))


async def _over_a_socket(
    port: int, method: str, path: str, body: bytes, headers: dict[str, str]
) -> Reply:
    address, mark, query = path.partition("?")
    line = f"{method} {urllib.parse.quote(address, errors='replace')}{mark}{query} HTTP/1.1\r\n"
    fixed = {"host": "x", "connection": "close", "content-length": str(len(body))}
    given = {name.lower(): value for name, value in headers.items()} | fixed
    head = line + "".join(f"{name}: {value}\r\n" for name, value in given.items()) + "\r\n"
    answer = await exchange(port, head.encode() + body)
    start, _, content = answer.partition(b"\r\n\r\n")
    status, *lines = start.decode().split("\r\n")
    named = dict(line.lower().split(": ", 1) for line in lines)
    assert len(content) == int(named.get("content-length", 0))
    return Reply(int(status.split()[1]), named, content)


def _body(case: Any, known: bool) -> bytes:
    body = case.body
    if isinstance(body, bytes):
        return body
    if isinstance(body, schemathesis.core.NotSet):
        return b""
    if known and isinstance(body, dict) and "head_list" in body:
        body = body | SOMETIMES_KNOWN
    return json.dumps(body).encode(errors="surrogatepass")


def _headers(case: Any, token: str) -> dict[str, str]:
    headers = {
        name: value
        for name, value in dict(case.headers or {}).items()
        if isinstance(value, str) and value.isascii() and value.isprintable()
    }
    if case.path.startswith("/v1/optin"):
        headers["authorization"] = f"Bearer {token}"
    return headers


def _path(case: Any) -> str:
    path = case.path
    for name, value in (case.path_parameters or {}).items():
        path = path.replace(f"{{{name}}}", urllib.parse.quote(str(value), safe=""))
    query = urllib.parse.urlencode(dict(case.query or {}), doseq=True)
    return urllib.parse.unquote(path, errors="replace") + (f"?{query}" if query else "")


def _check(operation: Any, reply: Reply) -> None:
    """The answer is one that the description promises."""
    assert reply.status < 500 or reply.status == 503, reply.body
    described = API["paths"][operation.path][operation.method.lower()]["responses"]
    if reply.status in (404, 405):
        return  # A parameter with a slash in it is another address.
    assert str(reply.status) in described, (reply.status, reply.body)
    kind = reply.headers.get("content-type", "").partition(";")[0]
    if reply.status != 304 and kind != "text/csv":
        assert kind in described[str(reply.status)]["content"], kind
        json.loads(reply.body)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: o.label)
@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda m: m.value)
def test_no_request_that_the_description_allows_or_forbids_breaks_the_gateway(
    gateway, port, loop, operation, mode, thorough
):
    """13 operations, good and bad: the counts below add up to the promised thousands."""
    made, token = gateway
    wanted = (230 if mode is GenerationMode.POSITIVE else 150) if operation.body else 45
    wanted *= 12 if thorough else 1
    seen: Counter[int] = Counter()

    @hypothesis.given(
        case=operation.as_strategy(generation_mode=mode), known=hypothesis.strategies.booleans()
    )
    @hypothesis.settings(
        max_examples=wanted,
        derandomize=not thorough,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate],
    )
    def send(case: Any, known: bool) -> None:
        request = case.method, _path(case), _body(case, known), _headers(case, token)
        reply = loop.run_until_complete(made.ask(*request))
        seen[reply.status] += 1
        _check(operation, reply)
        if seen.total() % 5 == 1:
            _check(operation, loop.run_until_complete(_over_a_socket(port, *request)))
            OVER_A_SOCKET[operation.label] += 1

    try:
        send()
    except hypothesis.errors.Unsatisfiable:
        # Nothing about this operation can be wrong: it has neither parameters nor a body.
        assert mode is GenerationMode.NEGATIVE
        assert not operation.body
    SENT.update(seen)


SENT: Counter[int] = Counter()
OVER_A_SOCKET: Counter[str] = Counter()


def test_the_requests_were_as_many_as_promised(thorough):
    """Runs last in this file. A generator that quietly gives up would prove nothing."""
    total = sum(SENT.values())
    assert total >= (10_000 if thorough else 1_000), SENT
    assert SENT[202] >= 10, "good submissions are among them"
    assert SENT[422] > 50
    assert SENT[200] > 20
    assert SENT[500] == 0
    assert OVER_A_SOCKET.total() >= total // 6
    assert len(OVER_A_SOCKET) == len(OPERATIONS)
