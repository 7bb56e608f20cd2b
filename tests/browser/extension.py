"""The extension in headless Chromium, and a search page for it."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TypeVar

from playwright.sync_api import BrowserContext, Page, Playwright, Worker

from blendstream.streams.user_tokens import mint_user_token
from tests.service.waiting import wait_for

T = TypeVar("T")

EXTENSION = Path(__file__).parents[2] / "webclient/extension"

#: Limits that let a test see a report within seconds; nobody's searches are in it.
QUICK = {
    "epsilonPerReport": "20",
    "deltaPerReport": "0.00001",
    "epsilonPerPeriod": "40",
    "deltaPerPeriod": "0.00002",
    "periodS": "86400",
    "minWindowS": "2",
    "maxWaitS": "4",
}


def permitted(folder: Path) -> Path:
    """A copy that has permission for this machine's sites.

    A browser gives it after a dialogue that no test can reach. Nothing else is changed.
    """
    shutil.copytree(EXTENSION, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["host_permissions"] = ["http://127.0.0.1/*", "http://localhost/*"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


class Extension:
    """A browser with the extension in it."""

    def __init__(self, context: BrowserContext) -> None:
        self.context = context
        context.set_default_timeout(60_000)
        self.complaints: list[str] = []
        context.on("console", lambda said: self._said(said.type, said.text))
        context.on("weberror", lambda error: self._said("error", str(error.error)))
        self.address = self.worker.url.rpartition("/")[0]

    def _said(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(text)

    @property
    def worker(self) -> Worker:
        """Its service worker; the browser ends and starts it as it likes."""
        workers = self.context.service_workers
        return workers[0] if workers else self.context.wait_for_event("serviceworker")

    def wait_for_first_page(self) -> None:
        """Installing it opens its options; a tab opened meanwhile might be taken for that."""
        opened = "chrome.runtime.getContexts({ contextTypes: ['TAB'] })"
        # Playwright notices what happens only while it is asked.
        wait_for(lambda: self.worker.evaluate(opened), "the options page", 20)

    def open(self, name: str) -> Page:
        """One of its pages, complete."""
        page = self.context.new_page()
        page.goto(f"{self.address}/{name}")
        return page

    def turn_on(self, server: str, search_page: str = "", **limits: str) -> Page:
        """As a person would: fill in the options and press the button."""
        page = self.open("options.html")
        fill(page, {"server": server, "searchPage": search_page, **QUICK, **limits})
        page.click("#save")
        page.wait_for_selector("#off:visible")
        return page

    def told(self, page: Page) -> dict[str, str]:
        """What the page of what was spent says now."""
        names = page.locator("#spent dt").all_inner_texts()
        return dict(zip(names, page.locator("#spent dd").all_inner_texts(), strict=False))

    def suggestions(self, typed: str) -> list[dict[str, str]]:
        """What the address bar would offer: the very event that Chromium sends to the worker."""
        offered: list[dict[str, str]] = self.worker.evaluate(
            """(typed) => new Promise(
              (offered) => chrome.omnibox.onInputChanged.dispatch(typed, offered))""",
            typed,
        )
        return offered


def fill(page: Page, values: Mapping[str, str]) -> None:
    """Type into the fields of these ids."""
    for name, value in values.items():
        page.fill(f"#{name}", value)


@contextmanager
def browsing(driver: Playwright, extension: Path, profile: Path) -> Iterator[Extension]:
    """Headless Chromium with the extension and a profile that survives it."""
    is_new = not profile.exists()
    context = driver.chromium.launch_persistent_context(
        str(profile),
        executable_path="/usr/bin/chromium",
        ignore_default_args=["--disable-extensions"],
        # A container's root has no sandbox; the pages are our own.
        args=[
            "--no-sandbox",
            "--disable-gpu",
            f"--disable-extensions-except={extension}",
            f"--load-extension={extension}",
        ],
    )
    try:
        extension = Extension(context)
        if is_new:
            extension.wait_for_first_page()
        yield extension
    finally:
        context.close()


RESULTS = """<!doctype html><title>results</title>
<a id="result" href="https://r1.example/#part">a result</a>
<a id="own" href="/find?q=next">the next page</a>
<a id="other" href="https://r2.example/">another result</a>
<script>addEventListener('click', (event) => event.preventDefault())</script>
"""


class _Results(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = RESULTS.encode()
        self.send_response(200)
        self.send_header("content-type", "text/html; charset=utf-8")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class _Backend(BaseHTTPRequestHandler):
    """An application's backend: a new token for who is signed in there, by cookie."""

    key = ""

    def do_GET(self) -> None:
        signed_in = SimpleCookie(self.headers.get("cookie", "")).get("session")
        token = ""
        if signed_in is not None:
            token = mint_user_token(self.key, signed_in.value, expires_s=int(time.time()) + 60)
        self.send_response(200 if token else 401)
        self.send_header("content-length", str(len(token)))
        self.end_headers()
        self.wfile.write(token.encode())

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def backend(key: str) -> Iterator[str]:
    """The address that mints tokens with this key."""
    handler = type("Backend", (_Backend,), {"key": key})
    with serving(handler) as origin:
        yield f"{origin}/token"


@contextmanager
def search_site() -> Iterator[str]:
    """A site with results at any address: its origin."""
    with serving(_Results) as origin:
        yield origin


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()
