"""The document of a published head list: canonical JSON bytes, identified by their SHA-256.

Promises: equal documents have equal bytes, so anyone can verify an id; reading accepts exactly what
writing produces, and refuses everything else with one sentence that quotes no record. Times are
integer seconds since 1970, UTC.
Assumes: nothing about the sender of the bytes; a device may read those of a hostile server.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field
from typing import Any

from blendstream.blender.values.cells import HeadList, RandomizerSpec
from blendstream.blender.values.errors import BlenderError, ParameterError
from blendstream.blender.values.record import MAX_QUERY_BYTES, MAX_URL_BYTES, Record
from blendstream.streams.wire.canonical_json import canonical_json
from blendstream.streams.wire.epoch_numbers import MAX_EPOCH, is_epoch

__all__ = ["MAX_HEAD_LIST_BYTES", "SCHEMA", "HeadListDocument", "MalformedDocument"]

SCHEMA = "blendstream/head-list/2"

#: If smaller, lists of some 100 000 records would not fit; if larger, a server could fill a device.
MAX_HEAD_LIST_BYTES = 64 * 1024 * 1024

_KEYS = frozenset(
    [
        "schema",
        "epoch",
        "window_start_s",
        "window_end_s",
        "reports_until_s",
        "cohorts",
        "normalisation",
        "query_wildcards",
        "listed",
        "records",
        "noisy_counts",
        "randomizer",
        "mechanisms",
        "quantity",
    ]
)
_RANDOMIZER_KEYS = frozenset(
    [
        "name",
        "epsilon",
        "delta",
        "answers",
        "query_budget_share",
        "max_cells_per_answer",
        "listed_64ths",
        "cells_per_answer",
    ]
)


class MalformedDocument(BlenderError):
    """Raised for bytes that are not a valid document; the message states what must hold."""


@dataclass(frozen=True, slots=True)
class HeadListDocument:
    """Head list HL_e with everything that a device needs to report on it.

    `mechanisms` names selector, opt-in estimator and profile, for readers; devices ignore it.
    `cohorts` is R: a device of cohort c reports only in epochs e with e mod R = c.
    `quantity` describes the counted quantity, for readers too.
    """

    epoch: int
    window_start_s: int
    window_end_s: int
    reports_until_s: int
    head_list: HeadList
    quantity: str
    cohorts: int = 1
    mechanisms: tuple[tuple[str, str], ...] = ()
    #: Of the bytes that were read: writing a long list again takes longer than all else.
    _id: str = field(default="", init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Check that times increase, and the range of epoch and cohorts."""
        if not (is_epoch(self.epoch) and self.cohorts >= 1):
            raise ParameterError(
                f"epoch must lie in 0..{MAX_EPOCH} and cohorts be at least 1, "
                f"got epoch={self.epoch}, cohorts={self.cohorts}"
            )
        if not 0 <= self.window_start_s < self.window_end_s <= self.reports_until_s:
            raise ParameterError(
                "times must run 0 <= window_start_s < window_end_s <= reports_until_s, got "
                f"{self.window_start_s}, {self.window_end_s}, {self.reports_until_s}"
            )
        if self.head_list.randomizer.cells_per_answer is None:
            raise ParameterError("a head list must state cells_per_answer, got None")

    def to_bytes(self) -> bytes:
        """Encode as canonical bytes: UTF-8 JSON, keys sorted, no white space."""
        heads, spec = self.head_list, self.head_list.randomizer
        counts = heads.noisy_counts
        return canonical_json(
            {
                "schema": SCHEMA,
                "epoch": self.epoch,
                "window_start_s": self.window_start_s,
                "window_end_s": self.window_end_s,
                "reports_until_s": self.reports_until_s,
                "cohorts": self.cohorts,
                "normalisation": heads.normalisation,
                "query_wildcards": heads.query_wildcards,
                "listed": heads.listed,
                "records": [[r.query, r.url] for r in heads.records],
                "noisy_counts": None if counts is None else list(counts),
                "randomizer": {
                    "name": spec.name,
                    "epsilon": float(spec.epsilon),
                    "delta": float(spec.delta),
                    "answers": spec.answers,
                    "query_budget_share": float(spec.query_budget_share),
                    "max_cells_per_answer": spec.max_cells_per_answer,
                    "listed_64ths": spec.listed_64ths,
                    "cells_per_answer": spec.cells_per_answer,
                },
                "mechanisms": dict(self.mechanisms),
                "quantity": self.quantity,
            }
        )

    @property
    def id(self) -> str:
        """SHA-256 of the canonical bytes, in hexadecimal."""
        return self._id or hashlib.sha256(self.to_bytes()).hexdigest()

    @classmethod
    def from_bytes(cls, data: bytes) -> HeadListDocument:
        """Read a document, or raise `MalformedDocument`; canonical bytes only."""
        if len(data) > MAX_HEAD_LIST_BYTES:
            raise MalformedDocument(
                f"a head list must be at most {MAX_HEAD_LIST_BYTES} bytes, got {len(data)}"
            )
        try:
            body = json.loads(data)
        except (ValueError, RecursionError):
            raise MalformedDocument("a head list must be UTF-8 JSON") from None
        try:
            document = _document(body)
            same = document.to_bytes() == data
        except MalformedDocument:
            raise
        except BlenderError as error:
            raise MalformedDocument(str(error)) from None
        except (KeyError, TypeError, ValueError, OverflowError):
            raise MalformedDocument("a head list's fields must have their stated types") from None
        # Two encodings of one document would have two ids, so only the canonical one is valid.
        if not same:
            raise MalformedDocument(
                "a head list must be in canonical form (sorted keys, no spaces)"
            )
        object.__setattr__(document, "_id", hashlib.sha256(data).hexdigest())
        return document


def _document(body: Any) -> HeadListDocument:
    _require(isinstance(body, dict) and body.keys() == _KEYS, "have exactly the stated keys")
    _require(body["schema"] == SCHEMA, f"have the schema {SCHEMA}")
    spec = body["randomizer"]
    _require(
        isinstance(spec, dict) and spec.keys() == _RANDOMIZER_KEYS,
        "describe its randomizer fully",
    )
    records = tuple(map(_record, body["records"]))
    counts = body["noisy_counts"]
    mechanisms = body["mechanisms"]
    _require(
        isinstance(mechanisms, dict) and all(isinstance(v, str) for v in mechanisms.values()),
        "name its mechanisms as text",
    )
    _require(isinstance(body["query_wildcards"], bool), "say true or false for query_wildcards")
    return HeadListDocument(
        epoch=_whole(body["epoch"]),
        window_start_s=_whole(body["window_start_s"]),
        window_end_s=_whole(body["window_end_s"]),
        reports_until_s=_whole(body["reports_until_s"]),
        cohorts=_whole(body["cohorts"]),
        head_list=HeadList(
            records=records,
            listed=_whole(body["listed"]),
            randomizer=RandomizerSpec(
                name=_text(spec["name"]),
                epsilon=_real(spec["epsilon"]),
                delta=_real(spec["delta"]),
                answers=_whole(spec["answers"]),
                query_budget_share=_real(spec["query_budget_share"]),
                max_cells_per_answer=_whole(spec["max_cells_per_answer"]),
                listed_64ths=_whole(spec["listed_64ths"]),
                cells_per_answer=_whole(spec["cells_per_answer"]),
            ),
            query_wildcards=body["query_wildcards"],
            noisy_counts=None if counts is None else tuple(_whole(c) for c in counts),
            normalisation=_whole(body["normalisation"]),
        ),
        mechanisms=tuple(sorted(mechanisms.items())),
        quantity=_text(body["quantity"]),
    )


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise MalformedDocument(f"a head list must {what}")


def _record(pair: Any) -> Record:
    # A hostile list has hundreds of thousands of them: sentences are made only for a refusal.
    if not (type(pair) is list and len(pair) == 2 and type(pair[0]) is type(pair[1]) is str):
        _require(False, "give each record as a pair of texts")
    query, url = pair
    if not (0 < len(query.encode()) <= MAX_QUERY_BYTES and 0 < len(url.encode()) <= MAX_URL_BYTES):
        sizes = f"queries within {MAX_QUERY_BYTES} and URLs within {MAX_URL_BYTES} bytes"
        _require(False, f"keep {sizes}")
    return Record(query, url)


def _whole(value: Any) -> int:
    # Readers in other languages keep them as doubles, as they do epochs.
    if type(value) is not int or abs(value) > MAX_EPOCH:
        _require(False, f"use whole numbers of at most {MAX_EPOCH} where they belong")
    return int(value)


def _real(value: Any) -> float:
    _require(type(value) is float and math.isfinite(value), "use finite real numbers for budgets")
    return float(value)


def _text(value: Any) -> str:
    _require(isinstance(value, str), "name its randomizer and its quantity as text")
    return str(value)
