"""The gateway's decoder takes what the API's description says, and nothing breaks it."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from blendstream.agents.gateway.http.request_types import (
    OPTIN_RECORDS,
    REPORTS,
    MalformedBody,
    OptinRecord,
    Report,
    split,
)

_scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 1 << 33), st.just(0.5), st.text(max_size=8)
)
_odd = st.recursive(_scalars, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
_hex32, _hex64 = st.just("0" * 32), st.just("ab" * 32)


def decode_reports(body):
    return REPORTS.decode(split(body))


def decode_optin_records(body):
    return OPTIN_RECORDS.decode(split(body))


def _maybe(field, good):
    return st.one_of(good, good, good, _odd).map(lambda value: {field: value})


def _object(**fields):
    merged = st.tuples(*(_maybe(name, good) for name, good in fields.items()))
    whole = merged.map(lambda parts: {k: v for part in parts for k, v in part.items()})
    dropped = st.tuples(whole, st.sampled_from([None, *fields])).map(
        lambda pair: {k: v for k, v in pair[0].items() if k != pair[1]}
    )
    extra = whole.map(lambda value: value | {"extra": 1})
    return st.one_of(whole, whole, dropped, extra, _odd)


_answers = st.lists(st.just([1]), min_size=1, max_size=2)
_reports = _object(head_list=_hex64, contributor=_hex32, answers=_answers)
_records = _object(
    user_id=st.text(min_size=1, max_size=9),
    slot=st.integers(0, 3),
    query=st.sampled_from(["q", "q" * 1025, "\u0301" * 513, " " * 1000 + "q"]),
    url=st.sampled_from(["u", " " * 4096 + "u"]),
    epoch=st.integers(0, 9),
)


def _as_described(decode, entry_type, entries):
    described = Draft202012Validator(msgspec.json.schema(entry_type))
    expected = [described.is_valid(entry) for entry in entries]
    decoded = decode(json.dumps(entries).encode())
    assert [not isinstance(entry, str) for entry in decoded] == expected
    if not isinstance(entries[0], list):
        alone = json.dumps(entries[0]).encode()
        try:
            [entry] = decode(alone)
        except MalformedBody:  # text that is no Unicode is no JSON; alone, it is the whole body
            entry = "refused"
        assert isinstance(entry, str) != expected[0]


@given(entries=st.lists(_reports, min_size=1, max_size=5))
def test_reports_are_decoded_as_the_api_describes_them(entries):
    """Fields and types. Whether cells fit their head list is judged with the list."""
    _as_described(decode_reports, Report, entries)


@given(entries=st.lists(_records, min_size=1, max_size=5))
def test_opt_in_records_are_decoded_as_the_api_describes_them(entries):
    """Lengths in characters; in bytes they are judged where text is normalised."""
    _as_described(decode_optin_records, OptinRecord, entries)


@pytest.mark.parametrize(
    "body",
    [b"", b" ", b"{", b"[1", b"nul", b"\xff", b"[" * 10_000, b"[1]x"],
)
def test_what_is_no_json_is_refused_whole(body):
    with pytest.raises(MalformedBody, match="must"):
        decode_reports(body)


@given(body=st.binary(max_size=200))
def test_no_bytes_break_the_decoder(body):
    """Whatever arrives, the answer is entries, sentences or a refusal."""
    for decode in (decode_reports, decode_optin_records):
        try:
            decoded = decode(body)
        except MalformedBody:
            continue
        assert all(isinstance(entry, str | Report | OptinRecord) for entry in decoded)


@given(
    sizes=st.lists(st.integers(1, 200_000) | st.integers(1, 50), min_size=1, max_size=40),
    repeated=st.integers(1, 100),
)
def test_slices_are_all_entries_in_their_order_and_each_is_bounded(sizes, repeated):
    entries = [b"0" * size for size in sizes * repeated]
    for decoder, most_bytes in ((REPORTS, 256 * 1024), (OPTIN_RECORDS, 16 * 1024)):
        slices = list(decoder.slices(entries))
        assert [entry for part in slices for entry in part] == entries
        for part in slices:
            assert 1 <= len(part) <= 1000
            assert len(part) == 1 or sum(map(len, part)) <= most_bytes


def test_a_representation_names_nobody():
    """Representations end up in logs."""
    [record] = decode_optin_records(
        b'{"user_id":"somebody","slot":0,"query":"secret","url":"https://secret.example"}'
    )
    assert "somebody" not in repr(record)
    assert "secret" not in repr(record)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"query": 3}, "query must be string or null, got integer"),
        ({"url": ""}, "url must be string of length >= 1"),
        ({"slot": -1}, "slot must be integer >= 0"),
        ({"slot": None}, "slot must be given; the fields are user_id, slot, query, url, epoch"),
        ({"my secret": 1}, "the entry must have no fields but user_id, slot, query, url, epoch"),
    ],
)
def test_a_refusal_begins_with_the_field_that_is_wrong(change, said):
    """The field was at the end, as `$.query`, after a sentence about "the stated fields"."""
    entry = {"user_id": "a", "slot": 0, "query": "q", "url": "https://u.example/"} | change
    entry = {name: value for name, value in entry.items() if value is not None}

    assert OPTIN_RECORDS.decode([json.dumps(entry).encode()]) == [said]


def test_a_bad_cell_is_named_by_the_field_that_holds_it():
    body = b'{"head_list": "%s", "contributor": "%s", "answers": [[1, -2]]}' % (
        b"0" * 64,
        b"0" * 32,
    )

    (said,) = REPORTS.decode([body])
    assert said == "answers[…][…] must be integer >= 0"
