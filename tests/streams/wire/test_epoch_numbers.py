"""Epochs are numbered 0 to 2⁵³ − 1 by everything that reads or writes one.

Readers in other languages, and scripts in Redis, keep numbers as doubles: beyond 2⁵³ two epochs
would be one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from blendstream.agents.gateway.http.request_types import OPTIN_RECORDS, split
from blendstream.agents.gateway.openapi import openapi_document
from blendstream.blender.values.errors import BlenderError
from blendstream.streams.releases import entries
from blendstream.streams.wire.canonical_json import canonical_json
from blendstream.streams.wire.estimates_document import EstimatesDocument
from blendstream.streams.wire.frames import OptinEntry, encode_optin_records
from blendstream.streams.wire.head_list_document import HeadListDocument
from blendstream.streams.wire.schemas import NAMES, schema
from blendstream.streams.wire.submissions import read_collecting_epoch
from tests.agents.gateway.doubles import make_gateway
from tests.localclient.support import head_list
from tests.release_entries import log_state_of
from tests.streams.wire.published_epochs import epoch_state, graph, published

LAST = 2**53 - 1


def numbered(data: bytes, epoch: object) -> bytes:
    return canonical_json({**json.loads(data), "epoch": epoch})


def collecting(epoch: object) -> bytes:
    body = {"window_start_s": 0, "window_end_s": 1, "optin_until_s": 1, "records_per_user": 1}
    return canonical_json({"collecting": {**body, "epoch": epoch}})


def record(epoch: object) -> bytes:
    return canonical_json({"user_id": "a", "slot": 0, "query": "q", "url": "u", "epoch": epoch})


def one_record(epoch: object) -> None:
    (found,) = OPTIN_RECORDS.decode(split(record(epoch)))
    if isinstance(found, str):
        raise ValueError(found)


def opened(epoch: Any) -> Any:
    return log_state_of({**entries.epoch_opened(epoch_state().parameters), "epoch": epoch})


READERS: dict[str, Callable[[Any], Any]] = {
    "head list": lambda e: HeadListDocument.from_bytes(numbered(head_list().to_bytes(), e)),
    "head list written": head_list,
    "estimates": lambda e: EstimatesDocument.from_bytes(
        numbered(published("sharp", 10).to_bytes(), e)
    ),
    "collecting": lambda e: read_collecting_epoch(collecting(e)),
    "opt-in record": one_record,
    "parameters": lambda e: replace(epoch_state().parameters, epoch=e),
    "release log": opened,
    "frame": lambda e: encode_optin_records(
        e, [OptinEntry(bytes(16), 0, b"q", b"u")], log_position=1
    ),
}


@pytest.mark.parametrize("reader", READERS)
def test_an_epoch_beyond_the_last_is_refused_and_the_last_is_not(reader: str) -> None:
    READERS[reader](LAST)
    for beyond in (LAST + 1, 2**61, -1):
        with pytest.raises((BlenderError, ValueError)):
            READERS[reader](beyond)


DOCUMENTS = {"head-list": head_list, "estimates": lambda: published("sharp", 10)}


@pytest.mark.parametrize("name", NAMES)
def test_the_schemas_say_so_too(name: str) -> None:
    document = {**DOCUMENTS, "click-graph": graph}[name]()
    body = json.loads(document.to_bytes())
    check = Draft202012Validator(schema(name))
    check.validate({**body, "epoch": LAST})
    with pytest.raises(ValidationError, match="maximum"):
        check.validate({**body, "epoch": LAST + 1})


def epochs_of(part: Any) -> Iterator[dict[str, Any]]:
    """The schema of each epoch that the API's description speaks of."""
    if isinstance(part, dict):
        if part.get("name") in ("epoch", "before") and "schema" in part:
            yield part["schema"]
        for name, value in part.items():
            if name == "epoch" and isinstance(value, dict):
                yield from value.get("anyOf", [value])
            yield from epochs_of(value)
    elif isinstance(part, list):
        for value in part:
            yield from epochs_of(value)


def test_the_description_of_the_api_says_so_too() -> None:
    found = [one for one in epochs_of(openapi_document()) if one.get("type") != "null"]
    assert len(found) >= 8
    for one in found:
        assert (one["type"], one["minimum"], one["maximum"]) == ("integer", 0, LAST)


async def test_the_gateway_answers_about_no_epoch_beyond_the_last() -> None:
    gateway = make_gateway()
    for kind in ("estimates", "click-graphs"):
        assert (await gateway.ask("GET", f"/v1/{kind}/{LAST + 1}")).status == 404
    asked = [await gateway.ask("GET", f"/v1/estimates?before={n}") for n in (LAST, LAST + 1)]
    assert [reply.status for reply in asked] == [200, 400]
    assert str(LAST) in asked[1].json()["detail"]
