"""The head list as devices read it: one spelling, checked to the last field."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from blendstream.blender.values.cells import HeadList, RandomizerSpec
from blendstream.blender.values.errors import ParameterError
from blendstream.blender.values.record import Record
from blendstream.streams.wire.head_list_document import HeadListDocument, MalformedDocument
from blendstream.streams.wire.schemas import schema


def document(**changes: object) -> HeadListDocument:
    fields: dict[str, object] = {
        "epoch": 41,
        "window_start_s": 1000,
        "window_end_s": 2000,
        "reports_until_s": 3000,
        "head_list": HeadList(
            records=(Record("wetter", "https://a.example/"), Record("⋆", "https://b.example/")),
            listed=1,
            randomizer=RandomizerSpec("subset", 4.0, cells_per_answer=1),
            query_wildcards=False,
            noisy_counts=(12, 9),
        ),
        "cohorts": 2,
        "mechanisms": (("profile", "sharp"),),
        "quantity": "Records are ranked by noisy counts.",
    }
    return HeadListDocument(**{**fields, **changes})  # type: ignore[arg-type]


def test_reading_gives_back_what_was_written() -> None:
    """A device that read something else would randomise against other cells than are counted."""
    original = document()
    assert HeadListDocument.from_bytes(original.to_bytes()) == original


def test_a_list_states_the_length_of_an_answer_and_fits_its_schema() -> None:
    """A device that computes another length must be able to tell."""
    Draft202012Validator(schema("head-list")).validate(json.loads(document().to_bytes()))
    heads = document().head_list
    silent = replace(heads, randomizer=replace(heads.randomizer, cells_per_answer=None))
    with pytest.raises(ParameterError, match="must state cells_per_answer"):
        document(head_list=silent)


def test_the_id_is_the_hash_of_the_bytes_and_changes_with_any_field() -> None:
    ids = {document().id, document(epoch=42).id, document(cohorts=3).id, document(mechanisms=()).id}
    assert len(ids) == 4
    assert document().id == document().id


def change(path: list[object], value: object) -> bytes:
    body = json.loads(document().to_bytes())
    place = body
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    text = json.dumps(body, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return text.encode()


@pytest.mark.parametrize(
    ("path", "value", "wording"),
    [
        (["schema"], "other/1", "schema"),
        (["surprise"], 1, "exactly the stated keys"),
        (["epoch"], True, "whole numbers"),
        (["epoch"], -1, "epoch must lie in 0"),
        (["listed"], 3, "listed must lie in 0..2"),
        (["noisy_counts"], [1], "one entry per record"),
        (["records", 0], ["only one"], "pair of texts"),
        (["records", 0], ["q" * 300, "u"], "within 256"),
        (["randomizer", "epsilon"], 4, "finite real"),
        (["reports_until_s"], 10, "times must run"),
        (["query_wildcards"], 1, "true or false"),
        (["mechanisms"], {"profile": 1}, "as text"),
        (["records"], 7, "stated types"),
    ],
)
def test_a_wrong_field_is_refused_in_words(path: list[object], value: object, wording: str) -> None:
    """A hostile server must not get a device to guess."""
    with pytest.raises(MalformedDocument, match=wording) as caught:
        HeadListDocument.from_bytes(change(path, value))
    assert "wetter" not in str(caught.value)


def test_another_spelling_of_the_same_document_is_refused() -> None:
    """Two spellings would have two ids, and reports to one would be unknown to the other."""
    spaced = json.dumps(json.loads(document().to_bytes()), sort_keys=True).encode()
    with pytest.raises(MalformedDocument, match="canonical"):
        HeadListDocument.from_bytes(spaced)


@given(st.binary(max_size=200))
def test_no_bytes_make_reading_crash(data: bytes) -> None:
    with pytest.raises(MalformedDocument):
        HeadListDocument.from_bytes(data)


@given(at=st.integers(0, 500), byte=st.integers(0, 255))
def test_a_flipped_byte_is_refused_or_is_another_document(at: int, byte: int) -> None:
    data = bytearray(document().to_bytes())
    data[at % len(data)] = byte
    try:
        read = HeadListDocument.from_bytes(bytes(data))
    except MalformedDocument:
        return
    assert read.to_bytes() == bytes(data)
