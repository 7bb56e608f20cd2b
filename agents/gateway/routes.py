"""The endpoints of the public API; the router and the API description both use this list.

`{…}` in a path matches one segment. `body` is the type that decodes one entry of a request's body;
`answers` maps each status that a caller must handle to the type of the response's body.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from blendstream.agents.gateway.http.request_types import EpochNumber, OptinRecord, Report
from blendstream.agents.gateway.http.responses import Problem
from blendstream.agents.gateway.read.epoch_series import EpochSeries
from blendstream.agents.gateway.read.estimates_tables import TABLES
from blendstream.agents.gateway.read.response_types import Epochs, Health
from blendstream.agents.gateway.state.verdicts import Verdicts

__all__ = ["ROUTES", "ApiRoute", "Document", "Parameter"]


class EstimatesPage(msgspec.Struct, frozen=True):
    """Published epochs, newest first; `next` is the path of the next page, of older epochs."""

    estimates: list[dict[str, Any]]
    next: str | None


class Series(msgspec.Struct, frozen=True):
    """Published epochs in columns, newest first; `next` is the path of the next page."""

    schema: str
    table: str
    epochs: list[EpochSeries]
    next: str | None


class Document(msgspec.Struct, frozen=True):
    """A published document, byte for byte as released; `schema` names its JSON schema."""

    schema: str
    epoch: EpochNumber


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter in the path or in the query string."""

    name: str
    where: str
    kind: Any
    sentence: str


@dataclass(frozen=True, slots=True)
class ApiRoute:
    """One method on one path, with its possible responses."""

    path: str
    handler: str
    sentence: str
    answers: Mapping[int, Any]
    method: str = "GET"
    tag: str = "read"
    body: Any = None
    csv: bool = False
    token: bool = False
    #: The published document's schema, one of `streams.wire.schemas.NAMES`.
    schema: str | None = None
    parameters: tuple[Parameter, ...] = field(default=())
    #: One entry of a body, as a sender would write it.
    example: Mapping[str, Any] | None = None


_DOCUMENT = {200: Document, 304: None, 404: Problem}
_READ = {400: Problem, 406: Problem}
# Patterns, not enumerations: Swagger UI renders those as menus without a name for screen readers.
_TABLE = (
    Parameter(
        "format",
        "query",
        Annotated[str, Meta(pattern="^(json|csv)$")],
        "json or csv; takes precedence over the Accept header.",
    ),
    Parameter(
        "table",
        "query",
        Annotated[str, Meta(pattern=f"^({'|'.join(TABLES)})$")],
        "With CSV: records, one row per record, or queries, one row per query.",
    ),
)
_WRITE = {202: Verdicts, **dict.fromkeys((400, 411, 413, 415, 422, 429, 503), Problem)}
_EPOCH = Parameter("epoch", "path", EpochNumber, "The number of an epoch.")

ROUTES: tuple[ApiRoute, ...] = (
    ApiRoute(
        "/v1/reports",
        "post_reports",
        "Send randomised reports: one, or an array of them. Accepted means stored in Kafka; a "
        "repeated report counts once.",
        {**_WRITE, 403: Problem},
        method="POST",
        tag="submit",
        body=Report,
        example={
            "head_list": "815c" * 16,
            "contributor": "d3b07384d113edec49eaa6238ad5ff00",
            "answers": [[3, 17]],
        },
    ),
    ApiRoute(
        "/v1/optin-records",
        "post_optin_records",
        "Send records of opt-in users: one, or an array of them. For a user without a record, send "
        "slot 0 with null query and URL. A retry repeats user, epoch and slot, and counts once.",
        {200: Verdicts, **_WRITE, 401: Problem},
        method="POST",
        tag="submit",
        body=OptinRecord,
        token=True,
        example={
            "user_id": "u-17",
            "slot": 0,
            "query": "tide tables",
            "url": "https://tide.example/",
        },
    ),
    ApiRoute(
        "/v1/head-lists/current",
        "get_current_head_list",
        "The newest head list that devices report against.",
        _DOCUMENT,
        schema="head-list",
    ),
    ApiRoute(
        "/v1/head-lists/{id}",
        "get_head_list",
        "A head list by its id, the SHA-256 of its bytes.",
        {**_DOCUMENT, 503: Problem},
        schema="head-list",
        parameters=(Parameter("id", "path", str, "64 hexadecimal digits."),),
    ),
    ApiRoute(
        "/v1/estimates",
        "get_estimates",
        "Published epochs, newest first, in pages.",
        {200: EstimatesPage, **_READ},
        csv=True,
        parameters=(
            Parameter("before", "query", EpochNumber, "Only epochs below this one."),
            Parameter("limit", "query", int, "At most this many epochs, 1 to 100."),
            *_TABLE,
        ),
    ),
    ApiRoute(
        "/v1/estimates/latest",
        "get_latest_estimates",
        "The newest published epoch that has results. /v1/epochs has the states of newer epochs, "
        "/v1/estimates/{epoch} also returns epochs without results.",
        {**_DOCUMENT, **_READ},
        csv=True,
        schema="estimates",
        parameters=_TABLE,
    ),
    ApiRoute(
        "/v1/estimates/{epoch}",
        "get_epoch_estimates",
        "One published epoch.",
        {**_DOCUMENT, **_READ},
        csv=True,
        schema="estimates",
        parameters=(_EPOCH, *_TABLE),
    ),
    ApiRoute(
        "/v1/series",
        "get_series",
        "Estimated shares of many published epochs in one small document, newest first. Each "
        "number is a column, rounded to five digits; /v1/estimates has the whole documents. Rows "
        "from `listed` on are not on the epoch's list and have only `filtered`.",
        {200: Series, 304: None, 400: Problem},
        parameters=(
            Parameter("before", "query", EpochNumber, "Only epochs below this one."),
            Parameter("limit", "query", int, "At most this many epochs, 1 to 100; default 30."),
            Parameter(
                "table",
                "query",
                Annotated[str, Meta(pattern=f"^({'|'.join(TABLES)})$")],
                "queries (the default), one row per query, or records.",
            ),
        ),
    ),
    ApiRoute(
        "/v1/click-graphs/latest",
        "get_latest_click_graph",
        "The newest published query click graph.",
        _DOCUMENT,
        schema="click-graph",
    ),
    ApiRoute(
        "/v1/click-graphs/{epoch}",
        "get_click_graph",
        "The query click graph of one epoch.",
        _DOCUMENT,
        schema="click-graph",
        parameters=(_EPOCH,),
    ),
    ApiRoute(
        "/v1/schemas/{name}",
        "get_schema",
        "The JSON schema of a published document.",
        {200: dict, 304: None, 404: Problem},
        parameters=(Parameter("name", "path", str, "head-list, estimates or click-graph."),),
    ),
    ApiRoute(
        "/v1/epochs",
        "get_epochs",
        "States and times of recent epochs, and the epoch that collects records now.",
        {200: Epochs},
    ),
    ApiRoute("/healthz", "get_health", "200 while the process runs.", {200: Health}, tag="operate"),
    ApiRoute(
        "/readyz",
        "get_readiness",
        "200 while submissions are accepted, 503 with the reasons otherwise.",
        {200: Health, 503: Health},
        tag="operate",
    ),
    ApiRoute("/openapi.json", "get_openapi", "This description.", {200: dict}, tag="operate"),
)
