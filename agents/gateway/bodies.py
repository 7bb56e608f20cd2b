"""The request bodies, as the types that decode them and describe them in the API.

One definition serves three readers: msgspec decodes with it at C speed, the OpenAPI document is
generated from it, and a property test holds it against `streams.records.submissions`, which is
what devices write.

Promises: a bad entry in a batch spoils only itself, and its message quotes nothing of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Generic, TypeVar

import msgspec
from msgspec import Meta

from streams.records import submissions as shared

__all__ = ["MalformedBody", "OptinRecord", "Report", "decode_optin_records", "decode_reports"]

_HEX_64 = Meta(min_length=64, max_length=64, extra_json_schema={"pattern": "^[0-9a-f]{64}$"})
_HEX_32 = Meta(min_length=32, max_length=32, extra_json_schema={"pattern": "^[0-9a-f]{32}$"})

Cell = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]
AnswerCells = Annotated[
    list[Cell],
    Meta(
        min_length=1,
        max_length=shared.MAX_CELLS_PER_ANSWER,
        description="Cell numbers, strictly increasing; their number is fixed by the head list.",
    ),
]


class Report(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """One device's randomised answers to one head list. A retry repeats the same bytes."""

    head_list: Annotated[str, _HEX_64, Meta(description="Id of the head list answered.")]
    contributor: Annotated[
        str, _HEX_32, Meta(description="128 random bits, drawn by the device for this head list.")
    ]
    answers: Annotated[
        list[AnswerCells],
        Meta(
            min_length=1,
            max_length=shared.MAX_ANSWERS,
            description="As many answers as the head list's randomizer asks for.",
        ),
    ]


class OptinRecord(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """One record of an opt-in user. A retry repeats user, epoch and slot, and counts once."""

    user_id: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=shared.MAX_USER_ID_BYTES,
            description="The application's name for this user; hashed at once, kept nowhere.",
        ),
    ]
    slot: Annotated[
        int,
        Meta(ge=0, le=(1 << 32) - 1, description="Which of the user's records: 0 to m_O − 1."),
    ]
    query: Annotated[str, Meta(min_length=1, description="What was searched for.")]
    url: Annotated[str, Meta(min_length=1, description="The result that was clicked.")]
    epoch: (
        Annotated[
            int,
            Meta(ge=0, le=(1 << 53) - 1, description="The epoch of the record; left out: now."),
        ]
        | None
    ) = None

    def __repr__(self) -> str:
        """Names no person and quotes no text, because representations end up in logs."""
        return f"OptinRecord(epoch={self.epoch}, slot={self.slot}, …)"


class MalformedBody(Exception):
    """The whole body is not JSON, or not one entry or a batch of them; says what must hold."""


Entry = TypeVar("Entry")


class _Bodies(Generic[Entry]):
    """Decodes one entry or a batch of them; entry by entry only when something is wrong."""

    def __init__(self, entry: type[Entry]) -> None:
        self._one = msgspec.json.Decoder(entry)
        self._many = msgspec.json.Decoder(list[entry])  # type: ignore[valid-type]

    def decode(self, body: bytes) -> Sequence[Entry | str]:
        """Every entry, or for a bad one the sentence that says what is wrong with it."""
        if body.lstrip()[:1] != b"[":
            try:
                return [self._one.decode(body)]
            except msgspec.ValidationError as error:
                return [_sentence(error)]
            except _NOT_JSON:
                raise MalformedBody(_MUST_BE_JSON) from None
        try:
            entries: Sequence[Entry | str] = self._many.decode(body)
        except _NOT_JSON:
            entries = self._one_by_one(body)
        if not 1 <= len(entries) <= shared.MAX_BATCH_ENTRIES:
            raise MalformedBody(
                f"a batch must hold 1 to {shared.MAX_BATCH_ENTRIES} entries, got {len(entries)}"
            )
        return entries

    def _one_by_one(self, body: bytes) -> Sequence[Entry | str]:
        # The typed decoder stops at the first bad entry; now each gets a verdict of its own.
        try:
            raws = _RAWS.decode(body)
        except _NOT_JSON:
            raise MalformedBody(_MUST_BE_JSON) from None
        decoded: list[Entry | str] = []
        for raw in raws:
            try:
                decoded.append(self._one.decode(raw))
            except msgspec.ValidationError as error:
                decoded.append(_sentence(error))
            except _NOT_JSON:
                decoded.append("the entry must be JSON in UTF-8, without unpaired surrogates")
        return decoded


_MUST_BE_JSON = "the body must be JSON in UTF-8, without unpaired surrogates"
_PLACE = re.compile(r"\[\d+\]")
_NOT_JSON = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
_RAWS = msgspec.json.Decoder(list[msgspec.Raw])
_REPORTS = _Bodies(Report)
_OPTIN_RECORDS = _Bodies(OptinRecord)

decode_reports = _REPORTS.decode
decode_optin_records = _OPTIN_RECORDS.decode


def _sentence(error: msgspec.ValidationError) -> str:
    # msgspec quotes the names of unknown fields, which are text from outside.
    text = str(error)
    if "unknown field" in text:
        return "the entry must have no fields but the stated ones"
    # Without places in lists there are few sentences, and a batch of bad entries shares them.
    text = _PLACE.sub("[…]", text)
    return f"the entry must have the stated fields and types: {text[:1].lower()}{text[1:]}"
