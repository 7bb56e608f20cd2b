"""Decode messages and cut them into runs that one Redis script can store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from blendstream.streams.tables.batch_verdict import Delivery
from blendstream.streams.tables.count_table import MAX_ENTRIES_PER_SCRIPT
from blendstream.streams.tables.optin_records import MAX_RECORD_BYTES_PER_SCRIPT
from blendstream.streams.wire.frames import NewerFrame, OptinFrame, ReportFrame, decode

__all__ = ["Message", "first_run"]


class Message(NamedTuple):
    """The parts of a Kafka message that counting needs."""

    offset: int
    append_ms: int
    value: bytes | None


def first_run(messages: Sequence[Message]) -> list[Delivery] | NewerFrame:
    """Decode the first consecutive messages that fit one script.

    A frame of a newer version ends the run; if it comes first, the function returns it instead.
    """
    run: list[Delivery] = []
    entries = record_bytes = 0
    for message in messages:
        if run and message.offset != run[-1].offset + 1:
            break
        value = message.value or b""
        frame = decode(value)
        if isinstance(frame, NewerFrame):
            return run or frame
        entries += len(frame) if isinstance(frame, ReportFrame | OptinFrame) else 1
        record_bytes += len(value) if isinstance(frame, OptinFrame) else 0
        if run and (entries > MAX_ENTRIES_PER_SCRIPT or record_bytes > MAX_RECORD_BYTES_PER_SCRIPT):
            break
        run.append(Delivery(message.offset, message.append_ms, frame, len(value)))
    return run
