"""Epochs, frames and people for tests of the worker's verdict on each entry."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from blendstream.agents.worker.entry_checks import (
    judge_optin_records,
)
from blendstream.streams.epoch_keys import EpochKeys
from blendstream.streams.releases.entries import Entry
from blendstream.streams.releases.epoch_state import ReleaseLogState
from blendstream.streams.tables.batch_verdict import BatchVerdict, Delivery
from blendstream.streams.tables.fingerprints import FingerprintTable
from blendstream.streams.wire.frames import (
    OptinEntry,
    decode,
    encode_optin_records,
)
from tests.release_entries import head_list_entries, log_state_of, opened_entry
from tests.report_frames import encode_reports
from tests.service.settings import MASTER

START, END, GRACE, SKEW = 1_000_000, 2_000_000, 10_000, 500
UNTIL = 3_000_000
HEAD_LIST = bytes(range(32))
KEYS = {n: EpochKeys.derive(MASTER, n) for n in range(1, 5)}


def opened(epoch: int, **changes: Any) -> Entry:
    terms: dict[str, Any] = {
        "window_start_ms": START, "window_end_ms": END, "grace_ms": GRACE, "skew_ms": SKEW,
        "shares_ppm": (600_000, 300_000, 100_000), "optin_partitions": 4, "report_partitions": 4,
    }  # fmt: skip
    return opened_entry(epoch, **terms | changes)


def published(epoch: int, head_list_id: bytes = HEAD_LIST, **changes: Any) -> list[Entry]:
    """Its records sealed and its head list out, in one commit."""
    shape = {"cells": 10, "cells_per_answer": 2, "answers": 2, "reports_until_ms": UNTIL}
    return head_list_entries(epoch, head_list_id, **shape | changes)


def tables() -> dict[int, FingerprintTable]:
    return defaultdict(FingerprintTable)


def delivered(value: bytes, *, at: int = START, offset: int = 0) -> Delivery:
    frame = decode(value)
    return Delivery(offset, at, frame, len(value))  # type: ignore[arg-type]


def person(number: int) -> bytes:
    return number.to_bytes(16, "big")


def reports(rows: list[list[int]], people: list[int] | None = None, epoch: int = 1) -> bytes:
    who = [person(i) for i in people or range(len(rows))]
    return encode_reports(epoch, HEAD_LIST, who, np.array(rows), 1)


def records(*entries: tuple[int, int, bytes, bytes], epoch: int = 1) -> bytes:
    sent = [OptinEntry(person(w), s, q, u) for w, s, q, u in entries]
    return encode_optin_records(epoch, sent, log_position=1)


def judged_records(*deliveries: Delivery, log_state: ReleaseLogState | None = None) -> BatchVerdict:
    return judge_optin_records(0, deliveries, log_state or log_state_of(opened(1)), KEYS, tables())
