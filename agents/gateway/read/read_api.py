"""Handlers of GET requests: head lists, estimates, click graphs, epochs, and the API description.

Promises: responses contain only published bytes and states: anyone may read and cache them.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request

from blendstream.agents.gateway.http.negotiation import (
    CACHE_ONE_MINUTE,
    CSV,
    IMMUTABLE,
    NOT_ACCEPTABLE,
    Representation,
    document_response,
    media_type_for,
    packed,
    page_response,
)
from blendstream.agents.gateway.http.responses import (
    JSON,
    HttpResponse,
    Part,
    json_response,
    problem,
)
from blendstream.agents.gateway.read.epoch_series import SCHEMA as SERIES_SCHEMA
from blendstream.agents.gateway.read.epoch_series import series_piece
from blendstream.agents.gateway.read.estimates_csv import csv_head, csv_table
from blendstream.agents.gateway.read.estimates_tables import TABLES, Table
from blendstream.agents.gateway.read.response_types import Collecting, Epochs, Health, PausedView
from blendstream.agents.gateway.state.publications import (
    Publications,
    PublishedDocument,
    newest_with_rows,
)
from blendstream.streams.wire.epoch_numbers import MAX_EPOCH
from blendstream.streams.wire.schemas import NAMES as SCHEMAS
from blendstream.streams.wire.schemas import schema

__all__ = ["ReadApi"]

_DEFAULT_PAGE, _DEFAULT_SERIES, _LARGEST_PAGE = 10, 30, 100
#: A page ends before it exceeds this size, but has at least one document.
_PAGE_BYTES = 8 * 1024 * 1024
#: Limit of the least-recently-used cache of tables, shared by all readers. A table of 500 records
#: takes 15 ms to build; the limit holds about 270 epochs of that size.
_KEPT_TABLE_BYTES = 64 * 1024 * 1024
_CSV_TYPE = b"text/csv; charset=utf-8; header=present"
_NO_SUCH_PAGE = problem(
    400,
    f"before must be an integer from 0 to {MAX_EPOCH}, limit one from 1 to {_LARGEST_PAGE}",
)
_NO_SUCH_TABLE = problem(400, f"table must be one of {', '.join(TABLES)}")
_Made = Literal["csv", "series"]
#: States change once a minute at most, so caches may absorb many devices that poll.
_CACHE_SECONDS = b"public, max-age=5"


class ReadApi:
    """The handlers of all GET endpoints except health."""

    def __init__(
        self,
        publications: Publications,
        wall_clock: Callable[[], float],
        *,
        description: Callable[[], dict[str, Any]],
    ) -> None:
        """Take the publications; `description` builds the API's description on first use."""
        self._publications = publications
        self._description = functools.cache(lambda: _described(description()))
        self._wall_clock = wall_clock
        self._tables: OrderedDict[str, Representation] = OrderedDict()
        self._making_table = asyncio.Lock()
        self._table_bytes = 0

    # --- documents -------------------------------------------------------------------------------

    async def get_current_head_list(self, request: Request) -> HttpResponse:
        current = self._publications.current_head_list
        found = None if current is None else self._publications.head_lists.get(current)
        if found is None:
            return problem(
                404, "no head list accepts reports yet; see /v1/epochs and try again later"
            )
        return _served(request, found, CACHE_ONE_MINUTE)

    async def get_head_list(self, request: Request) -> HttpResponse:
        published, wanted = self._publications, request.path_params["id"]
        found = published.head_lists.get(wanted)
        if found is None:
            # Another gateway may have served an id that this one has not read yet.
            if not await published.read_to_end():
                return problem(
                    503,
                    "the release log could not be read to its end, so this head list may exist; "
                    "try again later",
                    retry_after_s=1,
                )
            found = published.head_lists.get(wanted)
        if found is None:
            return problem(404, "this gateway has no head list with this id; fetch the current one")
        return _served(request, found, IMMUTABLE)

    async def get_latest_estimates(self, request: Request) -> HttpResponse:
        # Devices replace their copy with this document: one without results must not empty it.
        found = newest_with_rows(self._publications.estimates.values())
        if found is None:
            return problem(404, "no epoch with results has been published yet; see /v1/epochs")
        return await self._estimates(request, found, CACHE_ONE_MINUTE)

    async def get_epoch_estimates(self, request: Request) -> HttpResponse:
        found = _of_epoch(self._publications.estimates, request)
        if found is None:
            return problem(404, "no published epoch has this number here; see /v1/estimates")
        return await self._estimates(request, found, IMMUTABLE)

    async def get_latest_click_graph(self, request: Request) -> HttpResponse:
        graphs = self._publications.click_graphs
        if not graphs:
            return problem(404, "no click graph was published; it is an optional release")
        return _served(request, graphs[max(graphs)], CACHE_ONE_MINUTE)

    async def get_click_graph(self, request: Request) -> HttpResponse:
        found = _of_epoch(self._publications.click_graphs, request)
        if found is None:
            return problem(404, "this gateway has no click graph of this epoch")
        return _served(request, found, IMMUTABLE)

    async def _estimates(
        self, request: Request, found: PublishedDocument, cache_control: bytes
    ) -> HttpResponse:
        form = media_type_for(request)
        if form == JSON:
            return _served(request, found, cache_control)
        if form != CSV:
            return NOT_ACCEPTABLE
        table = _table_asked(request)
        if table is None:
            return _NO_SUCH_TABLE
        whole = await self._made(found, "csv", table)
        return document_response(request, whole, cache_control=cache_control)

    async def _made(self, found: PublishedDocument, kind: _Made, table: Table) -> Representation:
        """Return the document as a CSV table or its part of a series, cached if possible."""
        name = f"{found.id}-{table}-{kind}"
        if name not in self._tables:
            # A large table takes a second and several times the memory of its document, so tables
            # are built one at a time, in a thread, while the gateway serves other requests.
            async with self._making_table:
                if name not in self._tables:
                    made = await asyncio.to_thread(_make, name, found.body, kind, table)
                    self._keep(made)
                    return made
        self._tables.move_to_end(name)
        return self._tables[name]

    def _keep(self, made: Representation) -> None:
        self._tables[made.name] = made
        self._table_bytes += _size(made)
        while self._table_bytes > _KEPT_TABLE_BYTES:
            _, oldest = self._tables.popitem(last=False)
            self._table_bytes -= _size(oldest)

    # --- history ---------------------------------------------------------------------------------

    async def get_estimates(self, request: Request) -> HttpResponse:
        asked = _page_asked(request.query_params, _DEFAULT_PAGE)
        if asked is None:
            return _NO_SUCH_PAGE
        before, limit = asked
        estimates = self._publications.estimates
        numbers = sorted((n for n in estimates if n < before), reverse=True)
        page: list[PublishedDocument] = []
        size = 0
        for number in numbers[:limit]:
            size += len(estimates[number].body)
            if page and size > _PAGE_BYTES:
                break
            page.append(estimates[number])
        more = len(page) < len(numbers)
        following = _following(request, page[-1].epoch, limit) if more else None
        form = media_type_for(request)
        headers = [(b"cache-control", CACHE_ONE_MINUTE)]
        if following is not None:
            headers.append((b"link", f'<{following}>; rel="next"'.encode()))
        if form == CSV:
            table = _table_asked(request)
            if table is None:
                return _NO_SUCH_TABLE
            head = csv_head(table)
            parts: list[Part] = [head]
            for document in page:
                whole = await self._made(document, "csv", table)
                parts.append(memoryview(whole.body)[len(head) :])
            name = _page_name(f"csv {table}", page, following)
            return page_response(request, name, parts, _CSV_TYPE, headers)
        if form != JSON:
            return NOT_ACCEPTABLE
        listed = _listed(b'{"estimates":[', [document.body for document in page], following)
        return page_response(request, _page_name("json", page, following), listed, JSON, headers)

    async def get_series(self, request: Request) -> HttpResponse:
        asked = _page_asked(request.query_params, _DEFAULT_SERIES)
        if asked is None:
            return _NO_SUCH_PAGE
        table = _table_asked(request, default="queries")
        if table is None:
            return _NO_SUCH_TABLE
        before, limit = asked
        estimates = self._publications.estimates
        page = [estimates[n] for n in sorted((n for n in estimates if n < before), reverse=True)]
        pieces: list[bytes] = []
        size = 0
        for document in page[:limit]:
            made = (await self._made(document, "series", table)).body
            size += len(made)
            if pieces and size > _PAGE_BYTES:
                break
            pieces.append(made)
        more = len(pieces) < len(page)
        following = _following(request, page[len(pieces) - 1].epoch, limit) if more else None
        head = msgspec.json.encode({"schema": SERIES_SCHEMA, "table": table})[:-1]
        return page_response(
            request,
            _page_name(f"series {table}", page[: len(pieces)], following),
            _listed(head + b',"epochs":[', pieces, following),
            JSON,
            [(b"cache-control", CACHE_ONE_MINUTE)],
        )

    # --- states ----------------------------------------------------------------------------------

    async def get_epochs(self, request: Request) -> HttpResponse:
        published = self._publications
        now_s = self._wall_clock()
        view, pause = published.collecting(now_s), published.paused(now_s)
        collecting = msgspec.convert(view, Collecting | None, from_attributes=True)
        paused = None if pause is None else PausedView(pause.resumes_s, pause.reason)
        newest_first = [view for _, view in sorted(published.epochs.items(), reverse=True)]
        return json_response(
            200, Epochs(collecting, paused, newest_first), [(b"cache-control", _CACHE_SECONDS)]
        )

    def health(self, status: int, reasons: list[str]) -> HttpResponse:
        """Return `ready`, with the reasons if it is false."""
        return json_response(
            status, Health(not reasons, reasons), [(b"cache-control", b"no-store")]
        )

    async def get_schema(self, request: Request) -> HttpResponse:
        if request.path_params["name"] not in SCHEMAS:
            return problem(404, f"schemas are named {', '.join(SCHEMAS)}")
        return document_response(
            request, _schema(request.path_params["name"]), cache_control=CACHE_ONE_MINUTE
        )

    async def get_openapi(self, request: Request) -> HttpResponse:
        return document_response(request, self._description(), cache_control=CACHE_ONE_MINUTE)


@functools.cache
def _schema(name: str) -> Representation:
    return _described(schema(name))


def _described(document: dict[str, Any]) -> Representation:
    body = msgspec.json.format(msgspec.json.encode(document), indent=1)
    return Representation(hashlib.sha256(body).hexdigest(), body, packed(body))


def _make(name: str, body: bytes, kind: _Made, table: Table) -> Representation:
    if kind == "series":
        return Representation(name, series_piece(body, table), None)
    made = csv_table(body, table)
    return Representation(name, made, packed(made), _CSV_TYPE)


def _size(form: Representation) -> int:
    return len(form.body) + len(form.packed or b"")


def _page_name(kind: str, page: Sequence[PublishedDocument], following: str | None) -> str:
    """Return an ETag's text for a page that is assembled from these documents."""
    names = "".join(document.id for document in page)
    return hashlib.sha256(f"{kind} {names} {following}".encode()).hexdigest()


def _listed(head: bytes, pieces: Sequence[bytes], following: str | None) -> list[Part]:
    """Return the parts of a JSON object that ends with a list and the next page's path."""
    listed: list[Part] = [head]
    for place, piece in enumerate(pieces):
        listed += (b"," if place else b"", piece)
    return [*listed, b'],"next":' + msgspec.json.encode(following) + b"}"]


def _table_asked(request: Request, default: Table = TABLES[0]) -> Table | None:
    asked = request.query_params.get("table", default)
    return next((table for table in TABLES if table == asked), None)


def _following(request: Request, before: int, limit: int) -> str:
    """Return the next page's path, for the same format and table."""
    asked = request.query_params
    kept = {name: asked[name] for name in ("format", "table") if name in asked}
    path = request.scope["path"]
    return f"{path}?{urlencode({'before': before, 'limit': limit, **kept})}"


def _served(request: Request, found: PublishedDocument, cache_control: bytes) -> HttpResponse:
    form = Representation(found.id, found.body, found.packed)
    return document_response(request, form, cache_control=cache_control)


def _of_epoch(
    documents: dict[int, PublishedDocument], request: Request
) -> PublishedDocument | None:
    # ASCII digits without leading zeros only: each epoch has one URL.
    text = request.path_params["epoch"]
    if not (text.isascii() and text.isdecimal() and len(text) <= 16):
        return None
    return documents.get(int(text)) if text == str(int(text)) else None


def _page_asked(query: Mapping[str, str], default_limit: int) -> tuple[int, int] | None:
    before = _number(query.get("before"), MAX_EPOCH + 1, range(MAX_EPOCH + 1))
    limit = _number(query.get("limit"), default_limit, range(1, _LARGEST_PAGE + 1))
    return None if before is None or limit is None else (before, limit)


def _number(text: str | None, default: int, allowed: range) -> int | None:
    if text is None:
        return default
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 16 else -1
    return number if number in allowed else None
