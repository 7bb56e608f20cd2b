"""The entries of the release log: JSON objects, each of which records one step of an epoch.

All entries of one commit are in one record, a JSON array, after the documents that they name, so
readers see all of them or none, wherever a transaction ends. `streams.releases.epoch_state` folds
them. Readers skip fields and names that they do not know.

    fence               every kind   a random id, first in each record; alone it only proves that
                                     its writer reached the leader, and marks up to where it reads
    epoch_opened        keeper       parameters and charge; from here on the epoch runs to its end
    records_sealed      keeper       the end offset of every opt-in partition, taken after grace
    head_list_released  head-lists   the head list and the opt-in estimates, as documents
    reports_sealed      keeper       the end offset of every report partition
    estimate_released   estimates    the publication; or by head-lists, when there is nothing to ask
    click_graph_released click-graphs  the graph document of the epoch's graph subgroup
    epoch_abandoned     operator     abandoned, with the reason; nothing more is released for it; or
                                     by head-lists or estimates, when the release failed permanently
    service_paused      keeper       the period's budget is spent: from when, until when, why
    log_trimmed         keeper       offsets below which raw records were removed on purpose
    checkpoint          keeper       the ledger so far, and from where a reader needs to start
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping, Sequence
from typing import Any

from blendstream.streams.budget.epoch_plan import EpochParameters
from blendstream.streams.budget.ledger import Ledger
from blendstream.streams.errors import StoreMismatch
from blendstream.streams.releases.documents import StoredDocument
from blendstream.streams.wire.canonical_json import canonical_json

__all__ = [
    "ENTRY_KEY",
    "MAX_REASON_CHARACTERS",
    "PART_PREFIX",
    "Entry",
    "EpochOutcome",
    "IncompleteReason",
    "Kind",
    "checkpoint",
    "click_graph_released",
    "decode",
    "encode",
    "epoch_abandoned",
    "epoch_opened",
    "estimate_released",
    "fence",
    "head_list_released",
    "log_trimmed",
    "of_record",
    "part_key",
    "records_sealed",
    "reports_sealed",
    "service_paused",
]

#: The Kafka key of entries; parts of documents have other keys (`part_key`).
ENTRY_KEY = b"entry"
PART_PREFIX = b"part "
MAX_REASON_CHARACTERS = 200

Entry = dict[str, Any]


class Kind(enum.StrEnum):
    """Kinds of writer to the log. Each has one lease and one transactional id."""

    KEEPER = "keeper"
    HEAD_LISTS = "head-lists"
    ESTIMATES = "estimates"
    CLICK_GRAPHS = "click-graphs"
    OPERATOR = "operator"


class EpochOutcome(enum.StrEnum):
    """Completeness of a publication."""

    COMPLETE = "complete"
    INCOMPLETE = "incomplete"
    EMPTY = "empty"


class IncompleteReason(enum.StrEnum):
    """Reason for an empty or incomplete publication."""

    TOO_FEW_OPTIN_USERS = "too_few_optin_users"
    EMPTY_HEAD_LIST = "empty_head_list"
    HEAD_LIST_TOO_LATE = "head_list_too_late"
    TOO_FEW_REPORTS = "too_few_reports"
    RECORDS_LOST = "records_lost"
    NOT_ALL_COUNTED = "not_all_counted"
    NO_URL_TABLE = "no_url_table"
    COMMIT_REFUSED = "commit_refused"
    DRAW_FAILED = "draw_failed"
    JOB_FAILED = "job_failed"


def epoch_opened(parameters: EpochParameters) -> Entry:
    """Make the entry that opens an epoch with these parameters and this charge."""
    return {"entry": "epoch_opened", "epoch": parameters.epoch, **parameters.to_json()}


def records_sealed(epoch: int, bounds: Sequence[int]) -> Entry:
    """Make the entry that seals an epoch's opt-in records.

    `bounds` has one offset per partition: opt-in records from there on are late.
    """
    return {"entry": "records_sealed", "epoch": epoch, "bounds": list(bounds)}


def reports_sealed(epoch: int, bounds: Sequence[int]) -> Entry:
    """Make the entry that seals an epoch's reports; those from these offsets on are late."""
    return {"entry": "reports_sealed", "epoch": epoch, "bounds": list(bounds)}


def head_list_released(
    epoch: int,
    documents: Sequence[StoredDocument],
    *,
    cells: int,
    cells_per_answer: int,
    answers: int,
    wildcard_alone: bool,
    reports_until_ms: int,
    reasons: Sequence[IncompleteReason],
) -> Entry:
    """Make the entry that releases a head list, which is the first document."""
    return {
        "entry": "head_list_released",
        "epoch": epoch,
        "head_list_id": documents[0].id,
        "cells": cells,
        "cells_per_answer": cells_per_answer,
        "answers": answers,
        "wildcard_alone": wildcard_alone,
        "reports_until_ms": reports_until_ms,
        "reasons": sorted(reasons),
        "documents": [document.to_json() for document in documents],
    }


def estimate_released(
    epoch: int, document: StoredDocument, outcome: EpochOutcome, reasons: Sequence[IncompleteReason]
) -> Entry:
    """Make the entry that publishes an epoch's estimates; its raw data is then deleted."""
    return {
        "entry": "estimate_released",
        "epoch": epoch,
        "outcome": outcome.value,
        "reasons": sorted(reasons),
        "documents": [document.to_json()],
    }


def click_graph_released(
    epoch: int, document: StoredDocument, outcome: EpochOutcome, reasons: Sequence[IncompleteReason]
) -> Entry:
    """Make the entry that releases the click graph of the epoch's graph subgroup."""
    return {
        "entry": "click_graph_released",
        "epoch": epoch,
        "outcome": outcome.value,
        "reasons": sorted(reasons),
        "documents": [document.to_json()],
    }


def epoch_abandoned(epoch: int, reason: str) -> Entry:
    """Make the entry that abandons an epoch: it releases nothing more, and its charge stays."""
    # An operator's terminal may pass bytes that are not text.
    text = reason.encode(errors="replace").decode()[:MAX_REASON_CHARACTERS]
    return {"entry": "epoch_abandoned", "epoch": epoch, "reason": text}


def service_paused(epoch: int, from_ms: int, resumes_at_ms: int, reason: str) -> Entry:
    """Make the entry that pauses the service until `resumes_at_ms`, when `epoch` opens."""
    return {
        "entry": "service_paused",
        "epoch": epoch,
        "from_ms": from_ms,
        "resumes_at_ms": resumes_at_ms,
        "reason": reason,
    }


def log_trimmed(topic: str, version: int, bounds: Sequence[int]) -> Entry:
    """Make the entry that notes the removal of raw records below these offsets."""
    return {
        "entry": "log_trimmed",
        "topic": topic,
        "topic_version": version,
        "bounds": list(bounds),
    }


def checkpoint(ledger: Ledger, from_offset: int) -> Entry:
    """Make the entry of a checkpoint: readers may start at `from_offset` with this ledger."""
    return {"entry": "checkpoint", "ledger": ledger.to_json(), "from_offset": from_offset}


def fence(fence_id: str, kind: Kind) -> Entry:
    """Make the entry that identifies one record: no two have the same id and other entries."""
    return {"entry": "fence", "id": fence_id, "kind": kind.value}


def encode(together: Sequence[Mapping[str, Any]]) -> bytes:
    """Encode the entries of one commit as one record."""
    return canonical_json(list(together))


def decode(value: bytes) -> list[Entry]:
    """Decode the entries of a record; raise `StoreMismatch` when it contains anything else."""
    try:
        body = json.loads(value)
    except (ValueError, RecursionError):
        body = None
    together: list[Entry] = body if isinstance(body, list) else []
    if not together or not all(isinstance(entry, dict) for entry in together):
        raise StoreMismatch(
            "a record of entries in the release log must be a JSON array of objects, as this "
            "release writes it, and is not; upgrade this process, or restore the log"
        )
    return together


def of_record(key: bytes | None, value: bytes | None) -> list[Entry]:
    """Return the entries in a committed record of the log; none if it is part of a document."""
    return decode(value) if key == ENTRY_KEY and value is not None else []


def part_key(document_id: str, number: int) -> bytes:
    """Return the Kafka key of one part of a document."""
    return PART_PREFIX + f"{document_id} {number}".encode()
