"""Bodies that devices post (a report, opt-in records, a batch of either), and their responses.

    POST /v1/reports          {"head_list": ID, "contributor": KEY, "answers": [[cell, …], …]}
    POST /v1/optin-records    {"epoch": e, "user_id": …, "slot": s, "query": …, "url": …}
                              slot 0, query and URL null: this user has no record
    GET  /v1/epochs           … "collecting": {"epoch", "window_start_s", "window_end_s",
                                               "optin_until_s", "records_per_user"}

A body is one entry (an object) or a batch (an array of them). The response to a readable body is
`{"verdicts": [{"status": …, "reason": …}, …]}`, one verdict per entry in the order sent: 202 when
at least one was accepted. One entry refused, or all of them: 422 problem+json with the same
`verdicts`. Entries to retry unchanged: 503 with Retry-After, or `retry` in a batch.

Promises: gateways read the bodies written here (`agents.gateway.http.request_types` has the types
and the decoder). Responses, which may be from a hostile server, have the stated keys and types when
accepted, and an error states what must hold without quoting them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from blendstream.blender.values.errors import ParameterError
from blendstream.blender.values.record import Record
from blendstream.streams.wire.canonical_json import canonical_json
from blendstream.streams.wire.epoch_numbers import MAX_EPOCH, is_epoch

__all__ = [
    "MAX_BATCH_ENTRIES",
    "MAX_BODY_BYTES",
    "MAX_USER_ID_BYTES",
    "CollectingEpoch",
    "EntryStatus",
    "MalformedResponse",
    "read_collecting_epoch",
    "read_verdicts",
    "write_optin_records",
    "write_report",
]

#: If smaller, relays send more requests than frames; if larger, one body delays a worker.
MAX_BATCH_ENTRIES = 10_000
#: The slowest JSON takes a gateway 40 ms per MiB in calls that nothing interrupts, while other
#: senders wait. If smaller, senders of long records need more requests.
MAX_BODY_BYTES = 512 * 1024
#: Longer than any account name or UUID; short enough that hashing it costs nothing.
MAX_USER_ID_BYTES = 256
#: Far above any ω or m_C in use; a report is a few numbers, not a file.
MAX_ANSWERS = 1_000
MAX_CELLS_PER_ANSWER = 4_096

_REASON = re.compile(r"[a-z][a-z_]{0,39}")


class MalformedResponse(ParameterError):
    """Raised for an invalid response; the message states what must hold."""


@dataclass(frozen=True, slots=True)
class CollectingEpoch:
    """The epoch that collects opt-in records, as `GET /v1/epochs` describes it.

    Gateways accept records of the window until `optin_until_s` (its end plus the grace), at most
    `records_per_user` (m_O) per user.
    """

    epoch: int
    window_start_s: int
    window_end_s: int
    optin_until_s: int
    records_per_user: int

    def __post_init__(self) -> None:
        """Check that times increase and that a user may send a record."""
        numbers = (getattr(self, name) for name in self.__slots__)
        _require(
            all(map(is_epoch, numbers)),
            f"a collecting epoch must be described by whole numbers from 0 to {MAX_EPOCH}",
        )
        _require(
            self.window_start_s < self.window_end_s <= self.optin_until_s,
            "times must run window_start_s < window_end_s <= optin_until_s",
        )
        _require(self.records_per_user >= 1, "records_per_user must be at least 1")


class EntryStatus(StrEnum):
    """Result of submitting one entry."""

    ACCEPTED = "accepted"  # durably queued; duplicates are detected later
    REFUSED = "refused"  # a retry cannot succeed
    RETRY = "retry"  # not queued; send the same entry again later


def write_report(
    head_list_id: str, contributor: str, answers: Sequence[Sequence[int]], *, cells: int
) -> bytes:
    """Encode a device's randomised answers, padded to one length for all reports on a head list.

    `contributor` is the 128-bit id that the device drew for this head list, in hexadecimal.
    Encryption does not hide a report's length, and small cell numbers are shorter than large ones.
    So spaces at the end replace each digit that a number has fewer than `cells` − 1.
    """
    digits = len(str(cells - 1))
    missing = sum(digits - len(str(cell)) for answer in answers for cell in answer)
    body = {"head_list": head_list_id, "contributor": contributor, "answers": answers}
    return canonical_json(body) + b" " * missing


def write_optin_records(user_id: str, epoch: int, records: Sequence[Record]) -> bytes:
    """Encode a batch of one user's records, in slots 0, 1, … A retry repeats these bytes.

    Without records the batch has one entry without text: the number of users must not reveal who
    searched.
    """
    return canonical_json(
        [
            {"user_id": user_id, "epoch": epoch, "slot": slot, "query": query, "url": url}
            for slot, (query, url) in enumerate(records or [(None, None)])
        ]
    )


def read_verdicts(data: bytes) -> list[tuple[EntryStatus, str | None]]:
    """Read each entry's status, and the reason's code unless it was accepted.

    The sentences in the response are ignored, since a hostile server may have written them.
    """
    body = _parse(data)
    _require(
        isinstance(body, dict) and isinstance(body.get("verdicts"), list),
        "an answer must have a list of verdicts",
    )
    verdicts = []
    for entry in body["verdicts"]:
        _require(isinstance(entry, dict), "a verdict must be an object")
        status, reason = entry.get("status"), entry.get("reason")
        _require(status in tuple(EntryStatus), f"a status must be one of {', '.join(EntryStatus)}")
        _require(
            reason is None or (isinstance(reason, str) and _REASON.fullmatch(reason) is not None),
            "a reason must be a code of lower-case letters and underscores",
        )
        verdicts.append((EntryStatus(status), reason))
    return verdicts


def read_collecting_epoch(data: bytes) -> CollectingEpoch | None:
    """Read the collecting epoch from the body of `GET /v1/epochs`; `None` if there is none."""
    body = _parse(data)
    _require(
        isinstance(body, dict) and "collecting" in body,
        'the answer to /v1/epochs must have the key "collecting"',
    )
    if body["collecting"] is None:
        return None
    names = CollectingEpoch.__slots__
    _require(
        isinstance(body["collecting"], dict) and all(n in body["collecting"] for n in names),
        f"a collecting epoch must have the keys {', '.join(names)}",
    )
    return CollectingEpoch(**{name: body["collecting"][name] for name in names})


def _parse(data: bytes) -> Any:
    try:
        return json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise MalformedResponse("a body must be UTF-8 JSON") from None


def _no_constant(_: str) -> None:
    raise ValueError


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise MalformedResponse(message)
