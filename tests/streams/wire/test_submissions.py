"""Tests of devices' bodies and responses: exact bytes, strict parsing, errors without content."""

from __future__ import annotations

import json

import pytest

from blendstream.blender.values.record import Record
from blendstream.streams.wire.submissions import (
    CollectingEpoch,
    EntryStatus,
    MalformedResponse,
    read_collecting_epoch,
    read_verdicts,
    write_optin_records,
    write_report,
)


def test_a_report_has_one_spelling_on_the_wire() -> None:
    """Worked by hand: keys sorted, no spaces but those that hide its length at the end."""
    body = b'{"answers":[[1,5],[0,9]],"contributor":"CONTRIBUTOR","head_list":"ID"}'

    assert write_report("ID", "CONTRIBUTOR", ((1, 5), (0, 9)), cells=10) == body
    assert write_report("ID", "CONTRIBUTOR", ((1, 5), (0, 9)), cells=101) == body + b" " * 8


def test_opt_in_records_have_one_spelling_on_the_wire() -> None:
    """A retry repeats these bytes: epoch and slots with them."""
    assert (
        write_optin_records("sonja", 3, [Record("café", "u"), Record("q", "v")])
        == (
            '[{"epoch":3,"query":"café","slot":0,"url":"u","user_id":"sonja"},'
            '{"epoch":3,"query":"q","slot":1,"url":"v","user_id":"sonja"}]'
        ).encode()
    )


def test_verdicts_are_read_without_the_sentences_beside_them() -> None:
    answer = b"""{"epoch": 3, "verdicts": [{"status": "accepted"},
        {"status": "refused", "reason": "over_limit", "detail": "Send fewer."}]}"""

    assert read_verdicts(answer) == [
        (EntryStatus.ACCEPTED, None),
        (EntryStatus.REFUSED, "over_limit"),
    ]


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b"NaN",
        b"[" * 100_000,
        b"1" * 5000,
        b"{}",
        b'{"verdicts": {}}',
        b'{"verdicts": [1]}',
        b'{"verdicts": [{}]}',
        b'{"verdicts": [{"status": ["accepted"]}]}',
        b'{"verdicts": [{"status": "perhaps"}]}',
        b'{"verdicts": [{"status": "refused", "reason": 5}]}',
        b'{"verdicts": [{"status": "refused", "reason": "what you typed: Secret"}]}',
    ],
)
def test_an_answer_that_is_none_is_refused_and_not_quoted(answer: bytes) -> None:
    """Reasons are codes, so that a hostile server cannot put words into a device's log."""
    with pytest.raises(MalformedResponse) as refused:
        read_verdicts(answer)
    assert "Secret" not in str(refused.value)
    with pytest.raises(MalformedResponse):
        read_collecting_epoch(answer)


def test_the_collecting_epoch_is_found_among_what_else_the_answer_holds() -> None:
    epoch = {
        "epoch": 4,
        "window_start_s": 10,
        "window_end_s": 20,
        "optin_until_s": 25,
        "records_per_user": 1,
        "state": "collecting",
    }
    body = json.dumps({"collecting": epoch, "epochs": []}).encode()
    assert read_collecting_epoch(body) == CollectingEpoch(4, 10, 20, 25, 1)
    assert read_collecting_epoch(b'{"collecting": null}') is None
    for broken in ({}, {"collecting": {}}, {"collecting": {**epoch, "window_end_s": 5}}):
        with pytest.raises(MalformedResponse):
            read_collecting_epoch(json.dumps(broken).encode())
