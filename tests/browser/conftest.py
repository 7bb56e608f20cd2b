"""Debian's Chromium, a gateway that serves invented publications, and this repository's files."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, sync_playwright

from blendstream.agents.gateway.read.static_pages import StaticPages
from blendstream.agents.gateway.state.publications import (
    Publications,
    PublishedDocument,
)
from blendstream.agents.local.ports import free_port
from blendstream.streams.releases.epoch_state import PauseNotice
from blendstream.streams.releases.epoch_view import EpochView
from blendstream.streams.wire.estimates_document import EstimatesDocument
from tests.agents.gateway.doubles import make_gateway
from tests.browser.publications import DAY_S, publications
from tests.service.waiting import wait_for

ROOT = Path(__file__).parents[2]


@dataclass
class Site:
    """Where the pages are, and what is published there, oldest first."""

    url: str
    documents: list[EstimatesDocument]
    published: Publications

    def publish(self, document: EstimatesDocument) -> None:
        """One more epoch, while people look at the page."""
        self.documents.append(document)
        _publish(self.published, document)


@dataclass
class Visit:
    """A page, with everything that must not happen on it."""

    page: Page
    host: str
    complaints: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)

    def watch(self) -> None:
        """Take note of complaints and of requests that leave the host."""
        self.page.on("console", lambda said: self._said(said.type, said.text))
        self.page.on("pageerror", lambda error: self._said("error", str(error)))
        self.page.on("requestfailed", lambda request: self._said("error", request.url))
        self.page.on("request", lambda request: self._asked(request.url))

    def _said(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(text)

    def _asked(self, url: str) -> None:
        if urlsplit(url).scheme not in ("data", "blob") and urlsplit(url).netloc != self.host:
            self.strangers.append(url)


def _view(document: EstimatesDocument) -> EpochView:
    return EpochView(
        epoch=document.epoch,
        state="published",
        window_start_s=document.window_start_s,
        window_end_s=document.window_end_s,
        optin_until_s=document.window_end_s + 60,
        records_per_user=1,
        cohorts=1,
        head_list=document.head_list_id,
        reports_until_s=document.reports_until_s,
        outcome=document.outcome,
        reasons=document.reasons,
    )


def _publish(held: Publications, document: EstimatesDocument) -> None:
    held.estimates[document.epoch] = PublishedDocument(
        document.epoch, f"{document.epoch:064x}", document.to_bytes()
    )
    held.epochs[document.epoch] = _view(document)


@contextmanager
def serving(documents: list[EstimatesDocument], pause: PauseNotice | None = None) -> Iterator[Site]:
    """A gateway that has published these, oldest first."""
    port = free_port()
    started: list[uvicorn.Server] = []
    all_held: list[Publications] = []

    async def serve() -> None:
        gateway = make_gateway(pages=StaticPages())
        held = gateway.publications
        all_held.append(held)
        held.last_pause = pause
        for document in documents:
            _publish(held, document)
        if documents:
            last = documents[-1]
            held.epochs[last.epoch + 1] = EpochView(
                epoch=last.epoch + 1,
                state="collecting",
                window_start_s=last.window_end_s,
                window_end_s=last.window_end_s + DAY_S,
                optin_until_s=last.window_end_s + DAY_S + 60,
                records_per_user=1,
                cohorts=1,
            )
        config = uvicorn.Config(
            gateway.app, port=port, lifespan="off", log_config=None, access_log=False
        )
        server = uvicorn.Server(config)
        started.append(server)
        await server.serve()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    wait_for(lambda: started and started[0].started, "the gateway", 30, every_s=0.02)
    yield Site(f"http://127.0.0.1:{port}", documents, all_held[0])
    started[0].should_exit = True
    thread.join(30)


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    """A gateway with a dozen published epochs."""
    with serving(publications()) as made:
        yield made


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Headless Chromium. Not for longer: its driver's event loop would be in asyncio tests' way."""
    with sync_playwright() as driver:
        # A container's root has no sandbox; the pages are our own.
        chromium = driver.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
        )
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Visit]]:
    """Open a page: `visit(url, dark=True, phone=True)`. A clock that is held moves by hand."""
    opened = []

    def open_page(
        url: str, *, dark: bool = False, phone: bool = False, hold_clock: bool = False
    ) -> Visit:
        context = browser.new_context(
            color_scheme="dark" if dark else "light",
            viewport={"width": 390, "height": 844} if phone else {"width": 1200, "height": 900},
            device_scale_factor=2 if phone else 1,
            has_touch=phone,
        )
        context.set_default_timeout(15_000)
        opened.append(context)
        made = Visit(context.new_page(), urlsplit(url).netloc)
        made.watch()
        if hold_clock:
            made.page.clock.install()
        made.page.goto(url, wait_until="networkidle")
        # A busy machine draws the results page long after the network fell silent.
        made.page.wait_for_function("() => !document.querySelector('main[aria-busy=true]')")
        return made

    yield open_page
    for context in opened:
        context.close()


@pytest.fixture(scope="session")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pictures go, for people who want to look."""
    return tmp_path_factory.mktemp("screenshots")


class _Quiet(SimpleHTTPRequestHandler):
    extensions_map = {**SimpleHTTPRequestHandler.extensions_map, ".mjs": "text/javascript"}  # noqa: RUF012

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def origin() -> Iterator[str]:
    """This repository's files, on a free port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(ROOT)))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/webclient/package.json"
    server.shutdown()
    server.server_close()
    thread.join()
