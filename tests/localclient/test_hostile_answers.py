"""Answers that are not what they should be, in any part: refused or passed over, never a crash.

One exception that nobody expects would end an application's background task for good.
"""

from __future__ import annotations

import hashlib
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

import blendstream.localclient.http_transport
from blendstream.localclient import (
    AsyncLocalClient,
    ClientRefused,
    LocalClient,
    OptIn,
    Outcome,
    ResultCode,
)
from blendstream.localclient.local_client import _Parts
from blendstream.localclient.search import PublishedResult
from blendstream.localclient.state import State
from blendstream.streams.wire.head_list_document import MalformedDocument
from tests.localclient.publications import publication
from tests.localclient.support import (
    END,
    HOUR,
    LISTED,
    START,
    Gateway,
    ManualClock,
    SeededDice,
    UnsyncedFiles,
    head_list,
    limits,
    state_of,
)

SECRET = "zq-secret"
#: Everything JSON can say where something else belongs; 10^400 is no float, 2^70 fits no column.
WRONG: tuple[Any, ...] = (
    *(None, True, SECRET, "", "\ud800", 0, -1, 1, 1 << 70, 10**400),
    *(1.5, -0.0, 1e308, float("nan"), float("inf")),
    *([], [[]], [None], {}, {SECRET: {}}, {SECRET: SECRET}),
)


def broken(document: Any) -> Iterator[bytes]:
    """The document with each of its parts, and the whole, replaced by everything that is wrong."""
    for path in _paths(document):
        for wrong in WRONG:
            yield _json(_put(document, path, wrong))


def _paths(part: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if not isinstance(part, dict | list):
        return
    items = part.items() if isinstance(part, dict) else enumerate(part)
    for key, value in items:
        yield from _paths(value, (*path, key))


def _put(part: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = part.copy()
    copy[path[0]] = _put(part[path[0]], path[1:], value)
    return copy


def _json(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


class Answered:
    """Devices that get their answers from here; a new one whenever the last came to something."""

    def __init__(self, folder: Path, clock: ManualClock, opt_in: OptIn | None = None) -> None:
        self.answers: dict[str, bytes] = {}
        self.posted = 0
        self._place, self._clock, self._opt_in = folder, clock, opt_in
        self._begin()

    def _begin(self) -> None:
        self.posted = 0
        self.folder = self._place / str(len(list(self._place.iterdir())))
        self._client = LocalClient(
            "https://gateway.example",
            self.folder,
            limits(),
            opt_in=self._opt_in,
            http=lambda: httpx.Client(transport=httpx.MockTransport(self._answer), verify=False),
            _parts=_Parts(self._clock, SeededDice(1), UnsyncedFiles),
        )
        now_s, self._clock.now_s = self._clock.now_s, START + 1
        self._client.record(*LISTED[0])
        self._clock.now_s = now_s

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.posted += request.method == "POST"
        return httpx.Response(200, content=iter([self.answers[request.url.path]]))

    def call(self) -> tuple[Outcome | ClientRefused, State, int]:
        """What a call came to, what the device then remembers, and how often it has posted."""
        came_to: Outcome | ClientRefused
        try:
            came_to = self._client.report_now()
        except ClientRefused as refusal:
            came_to = refusal
            quoted = SECRET in str(refusal)
            assert not quoted
        state, posted = state_of(self.folder), self.posted
        if state != State():
            self._begin()
        return came_to, state, posted


_ACCEPTED = b'{"verdicts":[{"status":"accepted"}]}'


def test_a_head_list_wrong_in_any_part_is_refused_or_answered_and_nothing_between(
    tmp_path: Path, clock: ManualClock
) -> None:
    """`"mechanisms": []` was neither."""
    server, refused = Answered(tmp_path, clock), 0
    server.answers["/v1/reports"] = _ACCEPTED
    body = json.loads(head_list(mechanisms=(("selector", "a-name"),)).to_bytes())
    for data in broken(body):
        server.answers["/v1/head-lists/current"] = data
        server.answers[f"/v1/head-lists/{hashlib.sha256(data).hexdigest()}"] = data
        came_to, state, posted = server.call()
        if isinstance(came_to, ClientRefused):
            refused += 1
            assert (state.budget_entries, posted) == ((), 0)
        else:
            assert len(state.budget_entries) == posted == (came_to.code is ResultCode.SENT)
    assert refused > 500


def test_epochs_wrong_in_any_part_are_refused_or_answered_and_nothing_between(
    tmp_path: Path, clock: ManualClock
) -> None:
    server, refused = Answered(tmp_path, clock, OptIn("sonja", "token")), 0
    server.answers["/v1/optin-records"] = _ACCEPTED
    times = {"window_start_s": START, "window_end_s": END, "optin_until_s": END + 2 * HOUR}
    for data in broken({"collecting": {"epoch": 7, "records_per_user": 2, **times}}):
        server.answers["/v1/epochs"] = data
        came_to, state, posted = server.call()
        if isinstance(came_to, ClientRefused):
            refused += 1
            assert (state.budget_entries, posted) == ((), 0)
        else:
            assert len(state.budget_entries) == posted == (came_to.code is ResultCode.SENT)
    assert refused > 100


def test_verdicts_wrong_in_any_part_leave_the_report_kept_or_settled(
    tmp_path: Path, clock: ManualClock
) -> None:
    """The budget is spent by then: an unexpected error would come back at each try."""
    server, document = Answered(tmp_path, clock), head_list()
    for name in ("current", document.id):
        server.answers[f"/v1/head-lists/{name}"] = document.to_bytes()
    for data in broken({"verdicts": [{"status": "refused", "reason": "late", "detail": "…"}]}):
        server.answers["/v1/reports"] = data
        came_to, state, posted = server.call()
        assert isinstance(came_to, Outcome)
        assert (len(state.budget_entries), posted) == (1, 1)
        assert (state.pending is not None) == (came_to.code is ResultCode.TRY_LATER)


def test_a_publication_wrong_in_any_part_is_refused_or_read() -> None:
    for data in broken(json.loads(publication().to_bytes())):
        try:
            result = PublishedResult.load(data)
        except MalformedDocument as refusal:
            quoted = SECRET in str(refusal)
            assert not quoted
        else:
            result.search("weather")
            result.trends(3)


@pytest.mark.parametrize(
    "headers",
    [
        {"location": "http://xn--/"},
        {"location": "http://[::1"},
        {"location": "http://a:99999999/"},
        {"location": "\xff\x00"},
        {"date": "Mon, 99 Foo 99999 99:99:99 +9999999"},
        {"date": "-0000"},
        {"retry-after": "9" * 400},
        {"retry-after": "\xb2"},
        {"content-encoding": "gzip, br"},
        {"content-type": "text/html; charset=\xff"},
        {"set-cookie": "a=b; expires=\xff; domain=xn--; max-age=1e999"},
    ],
)
async def test_headers_that_make_no_sense_are_no_reason_to_crash(
    gateway: Gateway, tmp_path: Path, clock: ManualClock, headers: dict[str, str]
) -> None:
    """A redirect to http://xn--/, which is not followed, once ended the background task."""
    document = gateway.show(head_list())
    for status in (200, 302, 503):
        gateway.answers["/v1/head-lists/current"] = (status, headers, document.to_bytes())
        for client in (AsyncLocalClient, LocalClient):
            folder = tmp_path / f"{client.__name__}{status}"
            parts = _Parts(clock, SeededDice(1), UnsyncedFiles)
            came_to = client(gateway.url, folder, limits(), _parts=parts).maybe_report()
            outcome = came_to if isinstance(came_to, Outcome) else await came_to
            assert outcome.code in (ResultCode.WAITING, ResultCode.TRY_LATER)


@contextmanager
def dripping(whole: bytes, first: bytes, drip: bytes, last: bytes) -> Iterator[str]:
    """A server that answers one request well, if `whole` is anything, and then drips the next.

    It sends `drip` again and again, and after some five seconds ends its answer.
    """
    done = threading.Event()

    def answer(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection, suppress(OSError):  # the client has gone
            if whole:
                connection.recv(65_536)
                connection.sendall(whole)
            connection.recv(65_536)
            connection.sendall(first)
            for _ in range(500):
                if done.wait(0.01):
                    return
                connection.sendall(drip)
            connection.sendall(last)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=partial(answer, listening), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        done.set()
        thread.join()


_NOT_FOUND = b"HTTP/1.1 404 Not Found\r\n"
_END = b"content-length: 0\r\nconnection: close\r\n\r\n"
_LIST = head_list().to_bytes()
_SHOWN = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(_LIST), _LIST)


@pytest.mark.parametrize("asyncio", [False, True])
@pytest.mark.parametrize(
    ("whole", "first", "drip", "last"),
    [
        (b"", _NOT_FOUND, b"x-more: 1\r\n", _END),
        (b"", b"", b"HTTP/1.1 100 Continue\r\n\r\n", _NOT_FOUND + _END),
        (b"", _NOT_FOUND + b"connection: close\r\n\r\n", b"x", b""),
        (_SHOWN, _NOT_FOUND, b"x-more: 1\r\n", _END),
    ],
    ids=["headers", "1xx", "body", "second request"],
)
async def test_a_server_that_drips_does_not_hold_the_device(
    tmp_path: Path,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    whole: bytes,
    first: bytes,
    drip: bytes,
    last: bytes,
    asyncio: bool,
) -> None:
    """Each byte comes in time, the answer never: a device that waited for it would read its 404."""
    monkeypatch.setattr(blendstream.localclient.http_transport, "ANSWER_S", 0.2)
    parts = _Parts(clock, SeededDice(1), UnsyncedFiles)
    with dripping(whole, first, drip, last) as url:
        if asyncio:
            outcome = await AsyncLocalClient(url, tmp_path, limits(), _parts=parts).report_now()
        else:
            outcome = LocalClient(url, tmp_path, limits(), _parts=parts).report_now()
    assert outcome.code is ResultCode.TRY_LATER
    assert "did not answer" in outcome.detail
