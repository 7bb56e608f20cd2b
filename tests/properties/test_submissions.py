"""What holds for every submission and every body."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from blendstream.agents.gateway.http.request_types import (
    OPTIN_RECORDS,
    REPORTS,
    MalformedBody,
    OptinRecord,
    Report,
    split,
)
from blendstream.streams.wire.submissions import write_report

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
    """What a device writes, spaces at the end with it, is what a gateway makes of it."""
    numbers = st.sets(st.integers(0, 2**32 - 1), min_size=width, max_size=width)
    head_list = data.draw(st.binary(min_size=32, max_size=32)).hex()
    contributor = data.draw(st.binary(min_size=16, max_size=16)).hex()
    cells = [sorted(data.draw(numbers)) for _ in range(answers)]

    body = write_report(head_list, contributor, cells, cells=1 << 32)

    assert REPORTS.decode(split(body)) == [Report(head_list, contributor, cells)]


@given(body=anything, secret=st.text("xyz", min_size=12, max_size=20))
def test_whatever_is_sent_gets_an_answer_that_does_not_quote_it(body: object, secret: str) -> None:
    """Neither crashes the gateway nor puts what was sent into its answer."""
    entry = {"user_id": secret, "query": secret, "url": secret, "slot": body, secret: body}
    for sent in (body, entry, {"head_list": secret, "contributor": secret, "answers": body}):
        data = json.dumps(sent).encode()
        for decoder in (REPORTS, OPTIN_RECORDS):
            try:
                decoded = decoder.decode(split(data))
            except MalformedBody as refusal:
                decoded = [str(refusal)]
            for one in decoded:
                assert isinstance(one, Report | OptinRecord | str)
                assert not isinstance(one, str) or secret not in one
