"""What holds for every submission and every body."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from streams.wire.submissions import (
    MalformedSubmission,
    OptinRecord,
    Report,
    read_optin_records,
    read_reports,
)

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(
    data=st.data(),
    answers=st.integers(1, 5),
    width=st.integers(1, 6),
)
def test_a_report_is_read_as_it_was_written(data: st.DataObject, answers: int, width: int) -> None:
    cells = st.sets(st.integers(0, 2**32 - 1), min_size=width, max_size=width)
    report = Report(
        data.draw(st.binary(min_size=32, max_size=32)).hex(),
        data.draw(st.binary(min_size=16, max_size=16)).hex(),
        tuple(tuple(sorted(data.draw(cells))) for _ in range(answers)),
    )
    assert read_reports(report.to_bytes()) == [report]


@given(body=anything, secret=st.text("xyz", min_size=12, max_size=20))
def test_whatever_is_sent_gets_an_answer_that_does_not_quote_it(body: object, secret: str) -> None:
    """Neither crashes the gateway nor puts what was sent into its answer."""
    entry = {"user_id": secret, "query": secret, "url": secret, "slot": body, secret: body}
    for sent in (body, entry, {"head_list": secret, "contributor": secret, "answers": body}):
        data = json.dumps(sent).encode()
        for read in (read_reports, read_optin_records):
            try:
                found = read(data)  # type: ignore[operator]
            except MalformedSubmission as refusal:
                found = [refusal]
            for one in found:
                assert isinstance(one, Report | OptinRecord | MalformedSubmission)
                if isinstance(one, MalformedSubmission):
                    assert secret not in str(one)
