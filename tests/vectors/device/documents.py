"""Head lists to accept, with their ids and cells, and bytes to refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from blendstream.blender.values.cells import HeadList, RandomizerSpec
from blendstream.blender.values.errors import BlenderError
from blendstream.blender.values.record import Record
from blendstream.streams.wire.head_list_document import HeadListDocument, MalformedDocument
from tests.head_lists import stating_width

LISTED = (
    Record("weather", "https://weather.example/"),
    Record("weather", "https://rain.example/"),
    Record("news", "https://news.example/"),
)
#: Text that is easily written in another way: quotes, controls, a line separator, other planes.
ODD = (
    Record('say "hi" \\ there', "https://example.org/?q=a/b"),
    Record("\x01\x1f\x7f\u2028 tab\t", "https://example.org/\u00fc"),
    Record("\U0001f600 zürich", "https://example.org/\uffff"),
)


def head_list(**changes: Any) -> HeadListDocument:
    """A small list; `changes` go to the document, its list or its randomizer."""
    spec = {"name": "subset-or-none", "epsilon": 4.0, "delta": 0.0}
    heads = {"records": LISTED, "listed": 3, "query_wildcards": False, "normalisation": 2}
    times = {"window_start_s": 8640000, "window_end_s": 8726400, "reports_until_s": 8812800}
    document: dict[str, Any] = {"epoch": 7, "quantity": "Records are ranked.", **times}
    for name, value in changes.items():
        of_spec = name in RandomizerSpec.__slots__
        of_list = name in HeadList.__slots__
        (spec if of_spec else heads if of_list else document)[name] = value
    made = HeadList(randomizer=RandomizerSpec(**spec), **heads)
    try:
        made = stating_width(made)
    except BlenderError:  # a list that no device can answer
        made = replace(made, randomizer=replace(made.randomizer, cells_per_answer=1))
    return HeadListDocument(head_list=made, **document)


ACCEPTED: list[tuple[str, HeadListDocument]] = [
    ("the usual", head_list()),
    ("listed are fewer than the records: only they have cells", head_list(listed=2)),
    ("nothing listed", head_list(listed=0)),
    ("no record at all", head_list(records=(), listed=0)),
    ("two stages, with query wildcards", head_list(name="two-stage", query_wildcards=True)),
    (
        "two stages, one of three listed",
        head_list(name="two-stage", query_wildcards=True, listed=1, delta=1e-5),
    ),
    (
        "queries in order of first appearance",
        head_list(
            name="two-stage",
            query_wildcards=True,
            records=(Record("b", "x"), Record("a", "x"), Record("b", "y"), Record("a", "z")),
            listed=4,
        ),
    ),
    ("noisy counts, below zero too", head_list(noisy_counts=(12, -3, 0))),
    ("text that needs care", head_list(records=ODD, mechanisms=(("profile", "\u22c6"),))),
    (
        "mechanisms in the order of code points, not of UTF-16",
        head_list(mechanisms=(("\uffee", "a"), ("\U0001f600", "b"), ("10", "c"), ("9", "d"))),
    ),
    (
        "a float that Python writes with an exponent",
        head_list(delta=1e-5, epsilon=1e16, cells_per_answer=1),
    ),
    (
        "floats at the edge of exponents",
        head_list(delta=1e-4, epsilon=9007199254740992.0, cells_per_answer=1),
    ),
    ("the smallest float", head_list(delta=5e-324, epsilon=1.5e300, cells_per_answer=1)),
    ("a delta of minus zero", head_list(delta=-0.0)),
    ("many digits", head_list(epsilon=0.1 + 0.2, query_budget_share=1 / 3)),
    ("the smallest epsilon", head_list(epsilon=2.0**-32)),
    ("the highest epoch", head_list(epoch=2**53 - 1)),
    (
        "the same record beyond the listed ones",
        head_list(records=(*LISTED, LISTED[0]), listed=3),
    ),
    ("a randomizer that this client does not know", head_list(name="a newer one")),
    ("a newer normalisation", head_list(normalisation=3)),
    ("cohorts", head_list(cohorts=30)),
    ("longest texts", head_list(records=(Record("é" * 128, "u" * 1024),), listed=1)),
    ("what it ranks, in a sentence", head_list(quantity="Records are ranked by \u22c6.")),
    ("a key that JavaScript treats as its own", head_list(mechanisms=(("__proto__", "x"),))),
    ("hardly anyone holds what is listed", head_list(cells_per_answer=2, listed_64ths=1)),
    ("nearly everyone does", head_list(listed_64ths=63)),
    ("a width that does not follow is refused only when built", head_list(cells_per_answer=1000)),
]


def _changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    body = json.loads(head_list(noisy_counts=(3, 2, 1)).to_bytes())
    change(body)
    return _spelled(body)


def _spelled(body: object, **how: Any) -> bytes:
    usual = {"ensure_ascii": False, "sort_keys": True, "separators": (",", ":")}
    return json.dumps(body, **{**usual, **how}).encode("utf-8", "surrogatepass")


def _set(*path: Any) -> bytes:
    *way, last, value = path

    def change(body: dict[str, Any]) -> None:
        place: Any = body
        for step in way:
            place = place[step]
        place[last] = value

    return _changed(change)


def refused() -> list[tuple[str, bytes]]:
    """What a hostile or careless server may send; each alone is wrong with it."""
    good = head_list().to_bytes()
    body = json.loads(good)
    text = good.decode()
    swap = lambda old, new: text.replace(old, new, 1).encode()  # noqa: E731
    return [
        ("nothing", b""),
        ("not JSON", b"{"),
        ("a list", b"[]"),
        ("null", b"null"),
        ("a byte-order mark", b"\xef\xbb\xbf" + good),
        ("not UTF-8", good.replace(b"news", b"n\xffws")),
        ("an unpaired surrogate in UTF-8", good.replace(b"news", b"\xed\xa0\x80")),
        ("UTF-16", text.encode("utf-16")),
        ("white space after it", good + b"\n"),
        ("white space inside", _spelled(body, separators=(", ", ": "))),
        ("keys in another order", _spelled(dict(reversed(body.items())), sort_keys=False)),
        ("escaped where it need not be", swap("news", "n\\u0065ws")),
        ("a slash escaped", swap("//news", "\\/\\/news")),
        ("an unpaired surrogate, escaped", swap('"news"', '"\\ud800"')),
        ("an unpaired surrogate in a mechanism", swap("{}", '{"a":"\\udfff"}')),
        ("a key twice", swap('{"cohorts":1', '{"cohorts":1,"cohorts":1')),
        ("a key too many", _set("more", 1)),
        ("a key missing", _changed(lambda b: b.pop("listed"))),
        ("an older schema", _set("schema", "blendstream/head-list/1")),
        ("a newer schema", _set("schema", "blendstream/head-list/3")),
        ("a whole number for epsilon", swap('"epsilon":4.0', '"epsilon":4')),
        ("an exponent where Python writes none", swap('"epsilon":4.0', '"epsilon":4e0')),
        ("more digits than needed", swap('"epsilon":4.0', '"epsilon":4.00')),
        ("an exponent of one digit", swap('"delta":0.0', '"delta":1e-5')),
        ("a float for a whole number", swap('"listed":3', '"listed":3.0')),
        ("an epoch of minus zero", swap('"epoch":7', '"epoch":-0')),
        ("true for a number", _set("listed", True)),
        ("text for a number", _set("epoch", "7")),
        ("an epoch below 0", _set("epoch", -1)),
        ("an epoch above 2^53 - 1", _set("epoch", 2**53)),
        ("a count above 2^53 - 1", _set("noisy_counts", 0, 2**53)),
        ("a count that is no whole number", _set("noisy_counts", 0, 1.5)),
        ("fewer counts than records", _set("noisy_counts", [1])),
        ("an object for counts", _set("noisy_counts", {})),
        ("more listed than records", _set("listed", 4)),
        ("listed below 0", _set("listed", -1)),
        ("a record twice", _set("records", 2, ["weather", "https://weather.example/"])),
        ("a record of three texts", _set("records", 0, ["a", "b", "c"])),
        ("a record with a number", _set("records", 0, ["a", 1])),
        ("an object for a record", _set("records", 0, {"0": "a", "1": "b"})),
        ("an object for records", _set("records", {})),
        ("an empty query", _set("records", 0, ["", "u"])),
        ("an empty URL", _set("records", 0, ["q", ""])),
        ("a query too long", _set("records", 0, ["é" * 129, "u"])),
        ("a URL too long", _set("records", 0, ["q", "u" * 1025])),
        ("no cohort", _set("cohorts", 0)),
        ("a window that ends before it starts", _set("window_end_s", 8640000)),
        ("reports until before the window's end", _set("reports_until_s", 8726399)),
        ("a window before 1970", _set("window_start_s", -1)),
        ("1 for true", _set("query_wildcards", 1)),
        ("an epsilon of 0", _set("randomizer", "epsilon", 0.0)),
        ("an epsilon below 0", _set("randomizer", "epsilon", -1.0)),
        ("an epsilon without signal", _set("randomizer", "epsilon", 2.0**-33)),
        ("an infinite epsilon", swap('"epsilon":4.0', '"epsilon":Infinity')),
        ("an epsilon too large for a float", swap('"epsilon":4.0', '"epsilon":1e999')),
        ("an epsilon that is no number", swap('"epsilon":4.0', '"epsilon":NaN')),
        ("text for epsilon", _set("randomizer", "epsilon", "4.0")),
        ("a delta of 1", _set("randomizer", "delta", 1.0)),
        ("a delta below 0", _set("randomizer", "delta", -1e-9)),
        ("null for delta", _set("randomizer", "delta", None)),
        ("no answer", _set("randomizer", "answers", 0)),
        ("no cell an answer", _set("randomizer", "max_cells_per_answer", 0)),
        ("all budget for the query", _set("randomizer", "query_budget_share", 1.0)),
        ("a randomizer's key too many", _set("randomizer", "truth", 0.9)),
        ("a randomizer without a name", _set("randomizer", "name", None)),
        ("null for the randomizer", _set("randomizer", None)),
        ("a list for mechanisms", _set("mechanisms", [])),
        ("a number for a mechanism", _set("mechanisms", {"a": 1})),
        ("null for mechanisms", _set("mechanisms", None)),
        ("null for its quantity", _set("quantity", None)),
        ("a number for its quantity", _set("quantity", 1)),
        ("no quantity", _changed(lambda b: b.pop("quantity"))),
        ("no share that is listed", _changed(lambda b: b["randomizer"].pop("listed_64ths"))),
        ("no width", _changed(lambda b: b["randomizer"].pop("cells_per_answer"))),
        ("a list for the schema", _set("schema", ["blendstream/head-list/2"])),
        *(
            (f"{name} of {value!r}", _set("randomizer", name, value))
            for name, values in (
                ("listed_64ths", (0, 64, -1, 16.0, True, None, "16")),
                ("cells_per_answer", (0, -1, 1.0, True, None, "1", 2**53)),
            )
            for value in values
        ),
    ]


def as_text(data: bytes) -> dict[str, str]:
    """Bytes as they are written into a vector: text where they are UTF-8."""
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"hex": data.hex()}


def vectors() -> dict[str, object]:
    """The contents of documents.json."""
    return {
        "about": "Head lists: bytes (text, or hex where they are no UTF-8) to accept, with their "
        "id and cells in order ([query, url], null is a star), and bytes to refuse.",
        "accepted": [_accepted(name, document) for name, document in ACCEPTED],
        "refused": [{"name": name, **as_text(data)} for name, data in refused() if _bad(data)],
    }


def _accepted(name: str, document: HeadListDocument) -> dict[str, object]:
    data = document.to_bytes()
    assert HeadListDocument.from_bytes(data).to_bytes() == data, name
    cells = document.head_list.cells
    return {
        "name": name,
        **as_text(data),
        "id": document.id,
        "cells": [list(cells.cell(number)) for number in range(len(cells))],
    }


def _bad(data: bytes) -> bool:
    try:
        HeadListDocument.from_bytes(data)
    except MalformedDocument:
        return True
    raise AssertionError(f"Python accepts {data[:60]!r}…")
