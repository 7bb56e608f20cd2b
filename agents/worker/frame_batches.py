"""Decodes messages and cuts them into runs that one Redis script can store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from streams.stores.batch_verdict import Delivery
from streams.stores.count_store import MAX_RECORDS_PER_SCRIPT, MAX_REPORTS_PER_SCRIPT
from streams.wire.frames import NewerFrame, OptinFrame, ReportFrame, decode

__all__ = ["Message", "first_run"]


class Message(NamedTuple):
    """The parts of a Kafka message that counting needs."""

    offset: int
    append_ms: int
    value: bytes | None


def first_run(messages: Sequence[Message]) -> list[Delivery] | NewerFrame:
    """The first messages that follow one another without a gap and fit one script, decoded.

    A frame of a newer version ends the run; if it comes first, it is returned instead.
    """
    run: list[Delivery] = []
    reports = records = 0
    for message in messages:
        if run and message.offset != run[-1].offset + 1:
            break
        value = message.value or b""
        frame = decode(value)
        if isinstance(frame, NewerFrame):
            return run or frame
        reports += len(frame) if isinstance(frame, ReportFrame) else 1
        records += len(frame) if isinstance(frame, OptinFrame) else 0
        if run and (reports > MAX_REPORTS_PER_SCRIPT or records > MAX_RECORDS_PER_SCRIPT):
            break
        run.append(Delivery(message.offset, message.append_ms, frame, len(value)))
    return run
