"""Generate the OpenAPI 3.1 description from the routes and the types that decode requests.

Promises: nothing is described twice; a field added to a request type appears in the description
and in the decoder together.
"""

from __future__ import annotations

from typing import Any

import msgspec

from blendstream.agents.gateway.http.responses import Problem
from blendstream.agents.gateway.routes import ROUTES, ApiRoute, Parameter
from blendstream.agents.gateway.routes import Document as DocumentShape
from blendstream.streams.version import version_of
from blendstream.streams.wire.submissions import MAX_BATCH_ENTRIES

__all__ = ["openapi_document"]

_REF = "#/components/schemas/{name}"
_SENTENCES = {
    200: "The requested document.",
    202: "At least one entry was accepted; the verdicts show which.",
    304: "The caller's copy is current.",
    400: "The request could not be read.",
    401: "A token of a known application, or one that it signed for the user, is needed.",
    403: "The admission hook of this deployment refused the request.",
    404: "Not found, or not published yet.",
    406: "Neither JSON nor CSV was acceptable.",
    411: "The body's length must be stated in Content-Length.",
    413: "The body or the batch is too large.",
    415: "The body must be JSON, not compressed.",
    422: "No entry was accepted and a retry cannot succeed; the verdicts have the reasons.",
    429: "Too many entries; repeat the same request after Retry-After.",
    503: "Unavailable; repeat the same request after Retry-After. QueuedSlice entries count once.",
}
_TAGS = {
    "submit": "For devices and applications.",
    "read": "For analysts and devices: published documents.",
    "operate": "For operators.",
}


def openapi_document(*, batch_entries: int = MAX_BATCH_ENTRIES) -> dict[str, Any]:
    """Return the description, for a gateway that accepts `batch_entries` entries per request."""
    types = {kind for route in ROUTES for kind in route.answers.values()}
    types |= {route.body for route in ROUTES}
    structs = sorted(
        (t for t in types if isinstance(t, type) and issubclass(t, msgspec.Struct)),
        key=lambda t: t.__name__,
    )
    _, schemas = msgspec.json.schema_components(structs, ref_template=_REF)
    # Documents have more fields than the two that all of them share.
    schemas[DocumentShape.__name__]["additionalProperties"] = True
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, batch_entries)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "blendstream",
            "version": version_of("blendstream"),
            "summary": "Submit records and reports; read publications.",
            "description": (
                "Times are whole seconds since 1970, UTC. Errors are problem+json (RFC 9457): "
                "`detail` states what must hold and what to do, `reason` is a code for programs."
            ),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "application": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The application's token, issued by the operator.",
                },
                "user": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "NAME.EXPIRES.USER.SIGNATURE: a token that the application's "
                    "backend signed for one user; it admits records of that user only.",
                },
            },
        },
    }


def _operation(route: ApiRoute, batch_entries: int) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.handler,
        "summary": route.sentence.partition(":")[0].partition(". ")[0].rstrip("."),
        "description": route.sentence,
        "tags": [route.tag],
        "responses": {
            str(status): _response(route, status, kind)
            for status, kind in sorted(route.answers.items())
        },
    }
    if route.parameters:
        operation["parameters"] = [_parameter(parameter) for parameter in route.parameters]
    if route.schema is not None:
        operation["externalDocs"] = {
            "description": "JSON schema of the whole document.",
            "url": f"/v1/schemas/{route.schema}",
        }
    if route.token:
        operation["security"] = [{"application": []}, {"user": []}]
    if route.body is not None:
        entry = {"$ref": _REF.format(name=route.body.__name__)}
        batch = {"type": "array", "items": entry, "minItems": 1, "maxItems": batch_entries}
        operation["requestBody"] = {
            "required": True,
            "content": {
                "application/json": {"schema": {"oneOf": [entry, batch]}, "example": route.example}
            },
        }
        operation["description"] += f"\n\n```sh\n{_curl(route)}\n```"
    return operation


def _curl(route: ApiRoute) -> str:
    """Return the example as a curl command, for a gateway on this machine."""
    token = ' -H "Authorization: Bearer $TOKEN"' if route.token else ""
    return (
        f"curl http://127.0.0.1:8080{route.path}{token} -H 'Content-Type: application/json' "
        f"-d '{msgspec.json.encode(route.example).decode()}'"
    )


def _response(route: ApiRoute, status: int, kind: Any) -> dict[str, Any]:
    response: dict[str, Any] = {"description": _SENTENCES[status]}
    if kind is None:
        return response
    media = "application/problem+json" if kind is Problem else "application/json"
    schema = {"type": "object"} if kind is dict else {"$ref": _REF.format(name=kind.__name__)}
    response["content"] = {media: {"schema": schema}}
    if route.csv and status == 200:
        response["content"]["text/csv"] = {"schema": {"type": "string"}}
    if status in (429, 503) and kind is Problem:
        response["headers"] = {
            "Retry-After": {
                "description": "Seconds to wait before repeating the same request.",
                "schema": {"type": "integer", "minimum": 1},
            }
        }
    return response


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.where,
        "required": parameter.where == "path",
        "description": parameter.sentence,
        "schema": msgspec.json.schema(parameter.kind),
    }
