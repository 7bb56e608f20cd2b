"""A few thousand documents that no honest server writes: both languages judge each alike.

A device that accepts what another refuses, or reads another id, answers a list that the other one
does not: a server could tell the two apart, or show each of them its own list under one id.
"""

from __future__ import annotations

import base64
import json
import random
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from blendstream.localclient import MalformedDocument, PublishedResult
from blendstream.streams.wire.estimates_document import EstimatesDocument
from blendstream.streams.wire.head_list_document import HeadListDocument
from tests.vectors.device import documents, searches
from tests.webclient.node import CLIENT, node

#: In place of any value of a document, and beside it.
VALUES: list[Any] = [
    None, True, False, "", "x", "\x00", "\ud800", "é" * 600, [], [[]], [None], [["q", "u"]], {},
    {"a": 1}, 0, 1, -1, 2, 63, 64, 1.0, 0.5, -0.0, 1e-320, 1e22, 1e400, 2**31, 2**53 - 1, 2**53,
    2**63, 10**400,
]  # fmt: skip

#: Reads documents, one base64 text a line; writes what each comes to, or null.
JUDGE = """
import { createInterface } from 'node:readline'
import { cellsOf, idOf, readHeadList } from './src/document.js'
import { PublishedResult } from './src/result.js'
const headList = async (bytes) => {
  const list = readHeadList(bytes)
  return list && [await idOf(bytes), cellsOf(list).size]
}
const publication = (bytes) => {
  const result = PublishedResult.read(bytes)
  return result && [result.epoch, result.trends(9).map(({ query }) => query)]
}
const judge = process.argv.at(-1) === 'publication' ? publication : headList
for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await judge(new Uint8Array(Buffer.from(line, 'base64')))))
}
"""


def places(body: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value in a document."""
    yield way
    if isinstance(body, dict):
        for key in body:
            yield from places(body[key], (*way, key))
    elif isinstance(body, list):
        for number in range(min(len(body), 2)):
            yield from places(body[number], (*way, number))


def replaced(body: Any, way: tuple[Any, ...], value: Any) -> Any:
    if not way:
        return value
    copy = dict(body) if isinstance(body, dict) else list(body)
    copy[way[0]] = replaced(copy[way[0]], way[1:], value)
    return copy


def without(body: Any, way: tuple[Any, ...]) -> Any:
    copy = dict(body) if isinstance(body, dict) else list(body)
    if len(way) == 1:
        del copy[way[0]]
    else:
        copy[way[0]] = without(copy[way[0]], way[1:])
    return copy


def spelled(body: Any, **how: Any) -> bytes:
    usual = {"ensure_ascii": False, "sort_keys": True, "separators": (",", ":")}
    return json.dumps(body, **{**usual, **how}).encode("utf-8", "surrogatepass")


def hostile(honest: bytes) -> Iterator[bytes]:
    """Every value replaced, left out or added to; other spellings; bytes changed, cut, repeated."""
    body = json.loads(honest)
    yield honest
    for way in places(body):
        for value in VALUES:
            yield spelled(replaced(body, way, value))
        if way:
            yield spelled(without(body, way))
        for more in ("zz", "__proto__", "constructor", ""):
            found = body
            for step in way:
                found = found[step]
            if isinstance(found, dict):
                yield spelled(replaced(body, way, {**found, more: 1}))
            elif isinstance(found, list):
                yield spelled(replaced(body, way, [*found, *found]))
    for how in ({"ensure_ascii": True}, {"sort_keys": False}, {"separators": (", ", ": ")}):
        yield spelled(body, **how)
    yield from (b"\xef\xbb\xbf" + honest, honest + b"\n", b" " + honest, honest + honest, b"")
    yield honest.replace(b"{", b'{"epoch":1,', 1)  # a key twice
    for old, new in ((b"4.0", b"4"), (b"4.0", b"4e0"), (b"4.0", b"4.00"), (b"0.85", b"8.5e-1")):
        yield honest.replace(old, new, 1)
    dice = random.Random(7)
    for _ in range(600):
        data = bytearray(honest)
        place = dice.randrange(len(data))
        data[place] = dice.choice([data[place] ^ (1 << dice.randrange(8)), *b'0",.:[]{}e-'])
        yield bytes(data)
        yield honest[: dice.randrange(len(honest))]


def in_javascript(kind: str, data: list[bytes]) -> list[Any]:
    ended = subprocess.run(
        [*node("--input-type=module", "--eval", JUDGE), kind],
        input="\n".join(base64.b64encode(each).decode() for each in data) + "\n",
        capture_output=True, text=True, check=True, cwd=CLIENT, timeout=120,
    )  # fmt: skip
    return [json.loads(line) for line in ended.stdout.splitlines()]


def head_list_in_python(data: bytes) -> Any:
    try:
        document = HeadListDocument.from_bytes(data)
    except MalformedDocument:
        return None
    return [document.id, len(document.head_list.cells)]


def publication_in_python(data: bytes) -> Any:
    try:
        result = PublishedResult.load(data)
    except MalformedDocument:
        return None
    return [result.epoch, [row.query for row in result.trends(9)]]


@pytest.mark.long
def test_both_languages_judge_every_hostile_head_list_alike() -> None:
    data = list(hostile(documents.head_list(noisy_counts=(3, 2, 1)).to_bytes()))
    data += [each for _, each in documents.refused()]
    judged = [head_list_in_python(each) for each in data]

    apart = [
        (each[:300], python, javascript)
        for each, python, javascript in zip(
            data, judged, in_javascript("head list", data), strict=True
        )
        if python != javascript
    ]
    assert apart == []
    assert len(data) > 2_000
    assert 20 < sum(each is not None for each in judged) < len(data) / 4


@pytest.mark.long
@pytest.mark.parametrize("document", [searches.publication, searches.over_time])
def test_both_languages_show_the_same_of_every_hostile_publication(
    document: Callable[[], EstimatesDocument],
) -> None:
    """No budget depends on it. The browser's client reads fewer fields, and so passes over damage
    to those that it does not show (and reads an epoch 41.0 as 41, as JavaScript does). What it
    shows then is what an honest publication shows."""
    honest = document().to_bytes()
    data = list(hostile(honest))
    judged = [publication_in_python(each) for each in data]

    apart = [
        (each[:300], python, javascript)
        for each, python, javascript in zip(
            data, judged, in_javascript("publication", data), strict=True
        )
        if python != javascript
        and not (python is None and javascript[1] == publication_in_python(honest)[1])
    ]
    assert apart == []
    assert sum(each is not None for each in judged) > 20
