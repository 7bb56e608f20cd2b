"""The bodies that devices post: exact, strict, and silent about what was in them."""

from __future__ import annotations

import json

import pytest

from streams.wire.submissions import (
    MAX_BATCH_ENTRIES,
    CollectingEpoch,
    MalformedSubmission,
    OptinRecord,
    Report,
    Status,
    Verdict,
    read_collecting_epoch,
    read_optin_records,
    read_reports,
    read_verdicts,
    write_batch,
    write_verdicts,
)

REPORT = {"head_list": "ab" * 32, "contributor": "0f" * 16, "answers": [[1, 5], [0, 9]]}
OPTIN = {"epoch": 3, "user_id": "sonja", "slot": 0, "query": "Secret", "url": "https://s.example/"}


def refusal(body: object, read=read_reports) -> str:  # type: ignore[no-untyped-def]
    (entry,) = read(json.dumps(body).encode())
    assert isinstance(entry, MalformedSubmission)
    return str(entry)


def test_a_report_has_one_spelling_on_the_wire() -> None:
    """Worked by hand: keys sorted, no spaces."""
    report = Report("ab" * 32, "0f" * 16, ((1, 5), (0, 9)))
    assert report.to_bytes() == (
        b'{"answers":[[1,5],[0,9]],"contributor":"' + b"0f" * 16 + b'","head_list":"'
        b"" + b"ab" * 32 + b'"}'
    )
    assert read_reports(report.to_bytes()) == [report]


def test_a_batch_is_an_array_and_a_bad_entry_spoils_only_itself() -> None:
    good = Report("ab" * 32, "0f" * 16, ((1,),))
    body = json.dumps([json.loads(good.to_bytes()), {"nonsense": 1}, json.loads(good.to_bytes())])
    first, bad, last = read_reports(body.encode())
    assert first == last == good
    assert isinstance(bad, MalformedSubmission)


@pytest.mark.parametrize(
    ("change", "wording"),
    [
        ({"head_list": "AB" * 32}, "64 lower-case hexadecimal"),
        ({"head_list": None}, "64 lower-case hexadecimal"),
        ({"contributor": "0f" * 15}, "32 lower-case hexadecimal"),
        ({"contributor": "0f" * 16 + "\n"}, "32 lower-case hexadecimal"),
        ({"answers": []}, "1 to 1000 answers"),
        ({"answers": [[]]}, "1 to 4096 cell numbers"),
        ({"answers": {"0": 1}}, "list of lists"),
        ({"answers": [[1], [1, 2]]}, "equally many"),
        ({"answers": [[2, 1]]}, "strictly increasing"),
        ({"answers": [[1, 1]]}, "strictly increasing"),
        ({"answers": [[-1]]}, "whole numbers from 0"),
        ({"answers": [[1.0]]}, "whole numbers from 0"),
        ({"answers": [[True]]}, "whole numbers from 0"),
        ({"answers": [[1 << 32]]}, "whole numbers from 0"),
        ({"answers": [["1"]]}, "whole numbers from 0"),
        ({"more": 1}, "and no others"),
    ],
)
def test_a_report_that_breaks_a_rule_is_told_which(change: dict[str, object], wording: str) -> None:
    assert wording in refusal({**REPORT, **change})


@pytest.mark.parametrize(
    ("change", "wording"),
    [
        ({"epoch": -1}, "epoch must be a whole number"),
        ({"epoch": "3"}, "epoch must be a whole number"),
        ({"slot": True}, "slot must be a whole number"),
        ({"user_id": ""}, "user_id must be text"),
        ({"user_id": "s" * 257}, "user_id must be text of 1 to 256"),
        ({"user_id": "\ud800"}, "user_id must be text"),
        ({"query": " \t "}, "query must not be empty"),
        ({"query": "Secret" * 100}, "at most 256 bytes"),
        ({"query": "\u0315\u0300" * (1 << 17)}, "at most 1024 bytes of UTF-8 before"),
        ({"url": "s" * 4097}, "at most 4096 bytes of UTF-8 before"),
        ({"url": 5}, "must be text"),
        ({"url": "https://secret.example/\u0007"}, "control characters"),
        ({"extra": "Secret"}, "and no others"),
    ],
)
def test_an_opt_in_record_that_breaks_a_rule_is_told_which_and_not_quoted(
    change: dict[str, object], wording: str
) -> None:
    """Answers are logged by proxies on the way; what a person typed must not be in them."""
    message = refusal({**OPTIN, **change}, read_optin_records)
    assert wording in message
    assert "ecret" not in message
    assert "sonja" not in message


def test_an_opt_in_record_is_normalised_alike_wherever_it_is_read() -> None:
    (entry,) = read_optin_records(json.dumps({**OPTIN, "query": "  SECRET  plan "}).encode())
    assert isinstance(entry, OptinRecord)
    assert entry.record == ("secret plan", "https://s.example/")
    assert "ecret" not in repr(entry)
    assert "sonja" not in repr(entry)


def test_an_epoch_may_be_left_out() -> None:
    (entry,) = read_optin_records(
        json.dumps({k: v for k, v in OPTIN.items() if k != "epoch"}).encode()
    )
    assert isinstance(entry, OptinRecord)
    assert entry.epoch is None


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[]", b"[" * 100_000, b"NaN", b"1" * 5000])
def test_a_body_that_is_no_submission_is_refused_whole_or_by_entry(body: bytes) -> None:
    try:
        entries = read_reports(body)
    except MalformedSubmission:
        return
    assert all(isinstance(entry, MalformedSubmission) for entry in entries)


def test_a_batch_over_the_limit_is_refused_before_it_is_read() -> None:
    body = json.dumps([REPORT] * (MAX_BATCH_ENTRIES + 1)).encode()
    with pytest.raises(MalformedSubmission, match=r"1 to 10000 entries, got 10001"):
        read_reports(body)


def test_batches_and_verdicts_are_read_as_they_were_written() -> None:
    entries = [OptinRecord("sonja", slot, "q", "u", 3) for slot in range(2)]
    assert read_optin_records(write_batch(entries)) == entries

    verdicts = [Verdict(Status.ACCEPTED), Verdict(Status.REFUSED, "slot_over_limit", "Send fewer.")]
    assert read_verdicts(write_verdicts(verdicts)) == [
        Verdict(Status.ACCEPTED),
        Verdict(Status.REFUSED, "slot_over_limit"),
    ]
    with pytest.raises(MalformedSubmission, match="code of lower-case letters"):
        Verdict(Status.REFUSED, "what you typed: Secret")


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
        with pytest.raises(MalformedSubmission):
            read_collecting_epoch(json.dumps(broken).encode())
