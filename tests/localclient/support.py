"""What the device's tests share: a clock and dice to hold, a head list, and a real HTTP server."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from blendstream.blender.values.cells import HeadList, RandomizerSpec
from blendstream.blender.values.record import NORMALISATION_VERSION, Record
from blendstream.localclient import Limits, LocalClient
from blendstream.localclient.files import Files
from blendstream.localclient.local_client import _Parts
from blendstream.localclient.state import State
from blendstream.streams.wire.head_list_document import HeadListDocument
from tests.head_lists import QUANTITY, stating_width

HOUR = 3_600
DAY = 24 * HOUR
#: The window of epoch 7 in these tests, and the end of its reporting window.
START, END, UNTIL = 100 * DAY, 101 * DAY, 102 * DAY

LISTED = (
    Record("weather", "https://weather.example/"),
    Record("weather", "https://rain.example/"),
    Record("news", "https://news.example/"),
)


class ManualClock:
    """Time that moves when told."""

    def __init__(self, now_s: float = END + HOUR) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


class SeededDice:
    """Dice that fall the same way in every run of a test."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)


class UnsyncedFiles(Files):
    """A real folder, where nothing cuts the power, so nothing waits for the platter."""

    def _sync(self, handle: int) -> None:
        pass


def limits(**changes: Any) -> Limits:
    chosen = {
        "epsilon_per_report": 4.0,
        "delta_per_report": 1e-5,
        "epsilon_per_period": 40.0,
        "delta_per_period": 1e-4,
        "period_s": 30 * DAY,
    }
    return Limits(**{**chosen, **changes})


def spec(**changes: Any) -> RandomizerSpec:
    return RandomizerSpec(**{"name": "two-stage", "epsilon": 4.0, "delta": 1e-5, **changes})


def head_list(
    epoch: int = 7,
    *,
    shift_s: int = 0,
    randomizer: RandomizerSpec | None = None,
    records: tuple[Record, ...] = LISTED,
    normalisation: int = NORMALISATION_VERSION,
    **changes: Any,
) -> HeadListDocument:
    times = {"window_start_s": START, "window_end_s": END, "reports_until_s": UNTIL}
    heads = HeadList(
        records=records,
        listed=len(records),
        randomizer=randomizer or spec(),
        query_wildcards=True,
        normalisation=normalisation,
    )
    shifted = {name: at_s + shift_s for name, at_s in times.items()}
    given = {"epoch": epoch, "head_list": heads, "quantity": QUANTITY, **shifted, **changes}
    return HeadListDocument(**{**given, "head_list": stating_width(given["head_list"])})


@dataclass
class Gateway:
    """A server that keeps what it is sent. `answers` overrides what a path is answered with."""

    url: str = ""
    current: bytes | None = None
    lists: dict[str, bytes] = field(default_factory=dict)
    collecting: dict[str, int] | None = None
    posted: list[tuple[str, bytes, dict[str, str]]] = field(default_factory=list)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    #: The device's port and the path of each request.
    connections: list[tuple[int, str]] = field(default_factory=list)
    answers: dict[str, tuple[int, dict[str, str], bytes]] = field(default_factory=dict)
    date_s: float | None = None

    def show(self, document: HeadListDocument) -> HeadListDocument:
        """Publish this list."""
        self.current = self.lists[document.id] = document.to_bytes()
        return document

    @property
    def bodies(self) -> list[bytes]:
        """The bodies posted, in order."""
        return [body for _, body, _ in self.posted]

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        if path in self.answers:
            return self.answers[path]
        if path == "/v1/epochs":
            return 200, {}, json.dumps({"collecting": self.collecting}).encode()
        if path.startswith("/v1/head-lists/"):
            name = path.rsplit("/", 1)[1]
            body = self.current if name == "current" else self.lists.get(name)
            return (404, {}, b"") if body is None else (200, {}, body)
        return 202, {}, b'{"verdicts":[{"status":"accepted"}]}'


@contextmanager
def serving() -> Iterator[Gateway]:
    """A gateway on a free port of this machine."""
    gateway = Gateway()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            gateway.asked.append((self.path, dict(self.headers)))
            self._answer()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            gateway.posted.append((self.path, body, dict(self.headers)))
            self._answer()

        def _answer(self) -> None:
            gateway.connections.append((self.client_address[1], self.path))
            status, headers, body = gateway.answer(self.path)
            self.send_response_only(status)
            if gateway.date_s is not None:
                self.send_header("date", formatdate(gateway.date_s, usegmt=True))
            for name, value in {**headers, "content-length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    gateway.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield gateway
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def device(
    gateway: Gateway,
    folder: Path,
    clock: Callable[[], float],
    *,
    seed: int = 1,
    files: Callable[[Path], Files] = Files,
    own: Limits | None = None,
    **more: Any,
) -> LocalClient:
    """A device as an application would start it, but for its clock and dice."""
    parts = _Parts(clock, SeededDice(seed), files)
    return LocalClient(gateway.url, folder, own or limits(), _parts=parts, **more)


def state_of(folder: Path) -> State:
    """What the device remembers, read from its disk."""
    return State.from_bytes((folder / "state").read_bytes())
