"""h11 reads the cases of `http_cases`, which tests/edge sends through nginx, and agrees with them.

It must come to the same verdict as a case states, or the case says in which way h11 differs. Where
an edge sees one request and the gateway another, one client can slip a request into another's
connection.
"""

from __future__ import annotations

import h11
import pytest

from tests.agents.gateway.http.http_cases import CASES


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_h11_sees_the_same_requests_or_is_known_to_differ(case):
    """A control that is no part of the server: a table of one's own mistakes proves nothing."""
    parsed = sum(status != 100 for status in case.statuses) - (case.then == "refused")
    ours = (parsed, case.then == "refused")
    if case.h11:
        assert seen_by_h11(case.sent) != ours, "h11 agrees by now; remove the note"
    else:
        assert seen_by_h11(case.sent) == ours


def seen_by_h11(sent: bytes) -> tuple[int, bool]:
    """How many requests h11 reads, and whether it refuses what comes then."""
    server = h11.Connection(h11.SERVER, max_incomplete_event_size=64 * 1024)
    server.receive_data(sent)
    read = 0
    try:
        while True:
            event = server.next_event()
            if event in (h11.NEED_DATA, h11.PAUSED):
                return read, False
            if isinstance(event, h11.EndOfMessage):
                read += 1
                server.send(h11.Response(status_code=404, headers=[("content-length", "0")]))
                server.send(h11.EndOfMessage())
                if server.our_state is not h11.DONE:
                    return read, False
                server.start_next_cycle()
    except h11.RemoteProtocolError:
        return read, True
