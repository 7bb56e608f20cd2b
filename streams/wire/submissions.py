"""What devices post: a report, an opt-in record, one or a batch of them, and the verdicts returned.

    POST /v1/reports          {"head_list": ID, "contributor": KEY, "answers": [[cell, …], …]}
    POST /v1/optin-records    {"epoch": e, "user_id": …, "slot": s, "query": …, "url": …}
    GET  /v1/epochs           … "collecting": {"epoch", "window_start_s", "window_end_s",
                                               "optin_until_s", "records_per_user"}

A body is one entry (an object) or a batch (an array of them). The answer to a body that could be
read is `{"verdicts": [{"status": …, "reason": …}, …]}`, one verdict per entry in the order sent:
202 when at least one was accepted. One entry refused, or all of them: 422 problem+json with the
same `verdicts`. Entries to be sent again, unchanged: 503 with Retry-After, or `retry` in a batch.

Promises: an entry that is built is well formed; reading accepts exactly the stated keys and
types, and a refusal says what must hold without quoting what was sent. A bad entry in a batch
spoils only itself.
Assumes: nothing about the sender. Whether cells fit their head list is judged with the list.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any, TypeVar

from blender.errors import ParameterError
from blender.record import Record, normalise
from streams.wire.epoch_numbers import MAX_EPOCH, is_epoch

__all__ = [
    "MAX_BATCH_ENTRIES",
    "MAX_BODY_BYTES",
    "MAX_USER_ID_BYTES",
    "CollectingEpoch",
    "MalformedSubmission",
    "OptinRecord",
    "Report",
    "Status",
    "Verdict",
    "decode_optin_record",
    "decode_report",
    "read_collecting_epoch",
    "read_optin_records",
    "read_reports",
    "read_verdicts",
    "write_batch",
    "write_verdicts",
]

#: Smaller would make relays send more requests than frames; larger lets one body hold a worker up.
MAX_BATCH_ENTRIES = 10_000
#: The slowest JSON takes a gateway 40 ms a MiB in calls that nothing interrupts, and other senders
#: wait meanwhile. Smaller would make senders of long records send more requests.
MAX_BODY_BYTES = 512 * 1024
#: Longer than any account name or UUID; short enough to hash without thinking.
MAX_USER_ID_BYTES = 256
#: Far above any ω or m_C in use; a report is a few numbers, not a file.
MAX_ANSWERS = 1_000
MAX_CELLS_PER_ANSWER = 4_096

_MAX_CELL = (1 << 32) - 1
_HEAD_LIST_ID = re.compile(r"[0-9a-f]{64}")
_CONTRIBUTOR = re.compile(r"[0-9a-f]{32}")
_REASON = re.compile(r"[a-z][a-z_]{0,39}")

Entry = TypeVar("Entry")


class MalformedSubmission(ParameterError):
    """A body or entry that is not what it claims; the message says what must hold."""


@dataclass(frozen=True, slots=True)
class Report:
    """One device's randomised answers to one head list.

    `head_list` is the list's id, `contributor` the 128-bit id the device drew for it, both in
    lower-case hexadecimal. Each answer is strictly increasing, so its order carries nothing.
    """

    head_list: str
    contributor: str
    answers: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        """Refuse what no device could have meant."""
        _require(
            isinstance(self.head_list, str) and _HEAD_LIST_ID.fullmatch(self.head_list) is not None,
            "head_list must be a head list's id: 64 lower-case hexadecimal digits",
        )
        _require(
            isinstance(self.contributor, str)
            and _CONTRIBUTOR.fullmatch(self.contributor) is not None,
            "contributor must be 128 random bits: 32 lower-case hexadecimal digits",
        )
        _require(
            isinstance(self.answers, tuple) and 1 <= len(self.answers) <= MAX_ANSWERS,
            f"answers must hold 1 to {MAX_ANSWERS} answers",
        )
        width = len(self.answers[0]) if isinstance(self.answers[0], tuple) else 0
        for answer in self.answers:
            _require(
                isinstance(answer, tuple) and 1 <= len(answer) <= MAX_CELLS_PER_ANSWER,
                f"each answer must be a list of 1 to {MAX_CELLS_PER_ANSWER} cell numbers",
            )
            _require(len(answer) == width, "all answers must hold equally many cell numbers")
            _require(
                all(type(cell) is int and 0 <= cell <= _MAX_CELL for cell in answer),
                f"cell numbers must be whole numbers from 0 to {_MAX_CELL}",
            )
            _require(
                all(a < b for a, b in pairwise(answer)),
                "cell numbers must be strictly increasing within an answer",
            )

    def to_bytes(self) -> bytes:
        """The canonical JSON of this one entry."""
        return _json(asdict(self))

    def padded(self, cells: int) -> bytes:
        """The same, in the one length that every report on a head list of `cells` cells has.

        Encryption hides what a report says and not how long it is, and small cell numbers are
        shorter than large ones. Spaces at the end make up for each digit that K − 1 has more.
        """
        digits = len(str(cells - 1))
        missing = sum(digits - len(str(cell)) for answer in self.answers for cell in answer)
        return self.to_bytes() + b" " * missing


@dataclass(frozen=True, slots=True)
class OptinRecord:
    """One record of an opt-in user, as text, for slot 0 … m_O−1 of an epoch.

    A retry repeats epoch and slot. `query` and `url` may arrive as typed; `record` normalises.
    `epoch` `None` means the one that is open when the gateway reads it.
    """

    user_id: str
    slot: int
    query: str
    url: str
    epoch: int | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be counted, by lengths and never by text."""
        _require(
            self.epoch is None or is_epoch(self.epoch),
            f"epoch must be a whole number from 0 to {MAX_EPOCH}, or be left out for the open one",
        )
        _require(
            type(self.slot) is int and 0 <= self.slot <= _MAX_CELL,
            "slot must be a whole number from 0 to records_per_user - 1",
        )
        _require(
            isinstance(self.user_id, str) and 0 < _utf8_length(self.user_id) <= MAX_USER_ID_BYTES,
            f"user_id must be text of 1 to {MAX_USER_ID_BYTES} bytes of UTF-8",
        )
        _require(
            isinstance(self.query, str) and isinstance(self.url, str),
            "query and url must be text",
        )
        try:
            normalise(self.query, self.url)
        except ParameterError as error:
            raise MalformedSubmission(str(error)) from None

    @property
    def record(self) -> Record:
        """The record this text stands for."""
        return normalise(self.query, self.url)

    def __repr__(self) -> str:
        """Names no person and quotes no text, because representations end up in logs."""
        return f"OptinRecord(epoch={self.epoch}, slot={self.slot}, …)"

    def to_bytes(self) -> bytes:
        """The canonical JSON of this one entry."""
        return _json(asdict(self))


@dataclass(frozen=True, slots=True)
class CollectingEpoch:
    """The epoch whose opt-in records are being collected, as `GET /v1/epochs` tells it.

    Records of the window are accepted until `optin_until_s` (its end and the grace after it), at
    most `records_per_user` (m_O) from each user.
    """

    epoch: int
    window_start_s: int
    window_end_s: int
    optin_until_s: int
    records_per_user: int

    def __post_init__(self) -> None:
        """Times run forward and somebody may send something."""
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


class Status(StrEnum):
    """What became of one entry."""

    ACCEPTED = "accepted"  # durably queued; whether it is a duplicate is found out later
    REFUSED = "refused"  # sending it again cannot help
    RETRY = "retry"  # not queued; send the same entry again later


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one entry and, unless accepted, why: a code, and a sentence on what to do."""

    status: Status
    reason: str | None = None
    detail: str | None = None

    def __post_init__(self) -> None:
        """Reasons are codes, so that they can be counted and never carry what was sent."""
        _require(
            self.reason is None or _REASON.fullmatch(self.reason) is not None,
            "a reason must be a code of lower-case letters and underscores",
        )


def decode_report(entry: object) -> Report:
    """The report that decoded JSON describes, or `MalformedSubmission`."""
    body = _object(entry, frozenset({"head_list", "contributor", "answers"}), frozenset())
    answers = body["answers"]
    _require(
        isinstance(answers, list) and all(isinstance(answer, list) for answer in answers),
        "answers must be a list of lists of cell numbers",
    )
    # Bounded before it is copied: a body of brackets would otherwise cost more than its bytes.
    _require(1 <= len(answers) <= MAX_ANSWERS, f"answers must hold 1 to {MAX_ANSWERS} answers")
    return Report(body["head_list"], body["contributor"], tuple(map(tuple, answers)))


def decode_optin_record(entry: object) -> OptinRecord:
    """The opt-in record that decoded JSON describes, or `MalformedSubmission`."""
    body = _object(entry, frozenset({"user_id", "slot", "query", "url"}), frozenset({"epoch"}))
    return OptinRecord(**body)


def read_reports(data: bytes) -> list[Report | MalformedSubmission]:
    """Every entry of a body of reports, well formed or with what is wrong with it."""
    return _read(data, decode_report)


def read_optin_records(data: bytes) -> list[OptinRecord | MalformedSubmission]:
    """Every entry of a body of opt-in records, well formed or with what is wrong with it."""
    return _read(data, decode_optin_record)


def write_batch(entries: list[Report] | list[OptinRecord]) -> bytes:
    """The body that carries many entries."""
    return _json([asdict(entry) for entry in entries])


def write_verdicts(verdicts: list[Verdict]) -> bytes:
    """The answer that goes with a body, `None` left out."""
    return _json(
        {"verdicts": [{k: v for k, v in asdict(e).items() if v is not None} for e in verdicts]}
    )


def read_verdicts(data: bytes) -> list[Verdict]:
    """The verdicts in an answer; sentences are dropped, since a hostile server may write them."""
    body = _parse(data)
    _require(
        isinstance(body, dict) and isinstance(body.get("verdicts"), list),
        "an answer must have a list of verdicts",
    )
    verdicts = []
    for entry in body["verdicts"]:
        _require(isinstance(entry, dict), "a verdict must be an object")
        status, reason = entry.get("status"), entry.get("reason")
        _require(status in tuple(Status), f"a status must be one of {', '.join(Status)}")
        _require(reason is None or isinstance(reason, str), "a reason must be text")
        verdicts.append(Verdict(Status(status), reason))
    return verdicts


def read_collecting_epoch(data: bytes) -> CollectingEpoch | None:
    """The epoch now collecting, from the body of `GET /v1/epochs`; `None` when there is none."""
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


def _read(data: bytes, decode: Callable[[object], Entry]) -> list[Entry | MalformedSubmission]:
    body = _parse(data)
    entries = body if isinstance(body, list) else [body]
    _require(
        1 <= len(entries) <= MAX_BATCH_ENTRIES,
        f"a batch must hold 1 to {MAX_BATCH_ENTRIES} entries, got {len(entries)}",
    )
    read: list[Entry | MalformedSubmission] = []
    for entry in entries:
        try:
            read.append(decode(entry))
        except MalformedSubmission as problem:
            read.append(problem.with_traceback(None))
    return read


def _parse(data: bytes) -> Any:
    try:
        return json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise MalformedSubmission("a body must be UTF-8 JSON") from None


def _no_constant(_: str) -> None:
    raise ValueError


def _object(entry: object, required: frozenset[str], optional: frozenset[str]) -> dict[str, Any]:
    _require(isinstance(entry, dict), "an entry must be a JSON object")
    assert isinstance(entry, dict)
    _require(
        required <= entry.keys() <= required | optional,
        f"an entry must have the keys {', '.join(sorted(required))}"
        + (f", may have {', '.join(sorted(optional))}," if optional else "")
        + " and no others",
    )
    return entry


def _utf8_length(text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return 0


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise MalformedSubmission(message)
