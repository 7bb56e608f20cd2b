"""The messages that one script stores together."""

from __future__ import annotations

import numpy as np

from blendstream.agents.worker.frame_batches import Message, first_run
from blendstream.streams.tables.count_table import CHUNK_BYTES
from blendstream.streams.tables.optin_records import MAX_RECORD_BYTES_PER_SCRIPT
from blendstream.streams.wire.frames import OptinEntry, encode_optin_records
from tests.report_frames import encode_reports

REPORTS = encode_reports(1, bytes(32), bytes(16 * 8192), np.zeros((8192, 1), int), 1)
RECORDS = encode_optin_records(1, [OptinEntry(bytes(16), 0, b"q", b"u")] * 8192, log_position=1)
LONG_RECORDS = encode_optin_records(
    1, [OptinEntry(bytes(16), 0, b"q" * 256, b"u" * 1024)] * 200, log_position=1
)


def run_of(*values: bytes) -> int:
    run = first_run([Message(offset, 0, value) for offset, value in enumerate(values)])
    assert isinstance(run, list)
    return len(run)


def test_a_script_stores_no_more_than_redis_can_do_in_a_moment() -> None:
    """131 072 reports take it 3 ms; the text of as many records might not fit one string."""
    assert run_of(*[REPORTS] * 20) == 16
    assert run_of(*[RECORDS] * 20) == 16
    assert run_of(*[LONG_RECORDS] * 40) == MAX_RECORD_BYTES_PER_SCRIPT // len(LONG_RECORDS)
    assert 2 * MAX_RECORD_BYTES_PER_SCRIPT < CHUNK_BYTES


def test_messages_that_are_no_frames_are_stored_like_reports() -> None:
    assert run_of(*[b"?"] * 40, *[REPORTS] * 20) == 40 + 15
