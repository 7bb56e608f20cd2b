"""The types of request bodies: they decode requests and describe them in the API.

msgspec decodes with these definitions at C speed, and `openapi` generates the description from
them. Devices, which have no msgspec, encode with `streams.wire.submissions`.

    body ──▶ `split` ──▶ the entries' own bytes ──▶ `slices` ──▶ `EntryDecoder.decode` ──▶ entries

Promises: a bad entry affects no other entry of its batch, and its message quotes nothing of it.
For any body of at most `MAX_BODY_BYTES`, splitting it, or decoding and validating one slice, takes
well below 50 ms, so that the gateway can serve other requests in between.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Final, Generic, TypeVar

import msgspec
from msgspec import Meta

from blendstream.blender.values.record import MAX_RAW_QUERY_BYTES, MAX_RAW_URL_BYTES
from blendstream.streams.releases.epoch_view import EpochNumber
from blendstream.streams.wire import submissions as shared

__all__ = [
    "OPTIN_RECORDS",
    "REPORTS",
    "EncodedEntry",
    "EntryDecoder",
    "EpochNumber",
    "MalformedBody",
    "OptinRecord",
    "Report",
    "split",
]

_HEX_64 = Meta(min_length=64, max_length=64, extra_json_schema={"pattern": "^[0-9a-f]{64}$"})
_HEX_32 = Meta(min_length=32, max_length=32, extra_json_schema={"pattern": "^[0-9a-f]{32}$"})

Cell = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]
AnswerCells = Annotated[
    list[Cell],
    Meta(
        min_length=1,
        max_length=shared.MAX_CELLS_PER_ANSWER,
        description="Cell numbers, strictly increasing; the head list fixes how many.",
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
            description="As many answers as the head list's randomizer requires.",
        ),
    ]


class OptinRecord(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """One record of an opt-in user; in slot 0 with null query and URL: the user has no record.

    A retry repeats user, epoch and slot, and counts once.
    """

    user_id: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=shared.MAX_USER_ID_BYTES,
            description="The application's id of this user; hashed on arrival, never stored.",
        ),
    ]
    slot: Annotated[
        int,
        Meta(ge=0, le=(1 << 32) - 1, description="Number of this record of the user: 0 to m_O − 1"),
    ]
    # Lengths count characters here, and bytes where text is normalised (at least as many).
    # Null must be explicit: an omitted field must not pass for "no record".
    query: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=MAX_RAW_QUERY_BYTES,
                description="The text of the search. Null, with a null URL: no record.",
            ),
        ]
        | None
    )
    url: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=MAX_RAW_URL_BYTES,
                description="The result that the user clicked. Null, with a null query: no record.",
            ),
        ]
        | None
    )
    epoch: (
        Annotated[EpochNumber, Meta(description="The record's epoch; default: the current one.")]
        | None
    ) = None

    def __repr__(self) -> str:
        """Return a text without user id, query or URL: representations end up in logs."""
        return f"OptinRecord(epoch={self.epoch}, slot={self.slot}, …)"


class MalformedBody(Exception):
    """The whole body is not JSON, or not one entry or a batch; the message states the rule."""


Entry = TypeVar("Entry", bound=msgspec.Struct)

#: One encoded entry: `Raw` in a batch, `bytes` if it is the whole body.
EncodedEntry = bytes | msgspec.Raw

_MUST_BE_JSON = "the body must be JSON in UTF-8, without unpaired surrogates"
_PLACE = re.compile(r"\[\d+\]")
_JSON_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
_PYTHON_TYPE = re.compile(rf"\b({'|'.join(_JSON_TYPES)})\b")
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_NOT_JSON = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
_RAWS = msgspec.json.Decoder(list[msgspec.Raw])

#: Refusing an entry of any length takes up to 12 µs.
_SLICE_ENTRIES: Final = 1000


def split(body: bytes) -> Sequence[EncodedEntry]:
    """Return the encoded entries of a body, one or a batch, or raise `MalformedBody`."""
    if body.lstrip()[:1] != b"[":
        return [body]
    try:
        return _RAWS.decode(body)
    except _NOT_JSON:
        raise MalformedBody(_MUST_BE_JSON) from None


class EntryDecoder(Generic[Entry]):
    """Decodes entries of one kind."""

    def __init__(self, entry: type[Entry], *, slice_bytes: int) -> None:
        self._one = msgspec.json.Decoder(entry)
        self._fields = ", ".join(entry.__struct_fields__)
        self._slice_bytes = slice_bytes

    def slices(self, entries: Sequence[EncodedEntry]) -> Iterator[Sequence[EncodedEntry]]:
        """Yield the entries in order, in slices that are validated without interruption."""
        if len(entries) <= _SLICE_ENTRIES and sum(map(len, entries)) <= self._slice_bytes:
            yield entries
            return
        begin = size = 0
        for i, entry in enumerate(entries):
            size += len(entry)
            if i > begin and (size > self._slice_bytes or i - begin == _SLICE_ENTRIES):
                yield entries[begin:i]
                begin, size = i, len(entry)
        yield entries[begin:]

    def well_formed(self, body: bytes) -> Entry | None:
        """Return the entry of a body that is one valid entry, else None."""
        try:
            return self._one.decode(body)
        except _NOT_JSON:
            return None

    def decode(self, entries: Sequence[EncodedEntry]) -> Sequence[Entry | str]:
        """Return each entry decoded, or for a bad one a sentence that states its fault.

        Raises `MalformedBody` if an entry is a whole body and not JSON.
        """
        decoded: list[Entry | str] = []
        for entry in entries:
            try:
                decoded.append(self._one.decode(entry))
            except msgspec.ValidationError as error:
                decoded.append(_sentence(error, self._fields))
            except _NOT_JSON:
                if isinstance(entry, bytes):
                    raise MalformedBody(_MUST_BE_JSON) from None
                decoded.append("the entry must be JSON in UTF-8, without unpaired surrogates")
        return decoded


#: Reports are validated in columns, which is fastest for hundreds at a time.
REPORTS = EntryDecoder(Report, slice_bytes=256 * 1024)
#: Records are normalised (NFC) one by one: the slowest legal text takes 0.5 ms per KiB.
OPTIN_RECORDS = EntryDecoder(OptinRecord, slice_bytes=16 * 1024)


def _sentence(error: msgspec.ValidationError, fields: str) -> str:
    """Return msgspec's message as a sentence that begins with the field's name.

    msgspec appends the field as a path, and writes Python's names of types; this uses JSON's.
    """
    text = str(error)
    # msgspec quotes the names of unknown fields, which are text from outside.
    if "unknown field" in text:
        return f"the entry must have no fields but {fields}"
    if missing := _MISSING.fullmatch(text):
        return f"{missing[1]} must be given; the fields are {fields}"
    # Without list indexes there are few distinct sentences, which a batch of bad entries shares.
    rule, _, path = _PLACE.sub("[…]", text).partition(" - at `$")
    rule = _PYTHON_TYPE.sub(lambda found: _JSON_TYPES[found[0]], rule).replace("`", "")
    name = path.strip(".`") or "the entry"
    return f"{name} must be {rule.removeprefix('Expected ').replace(' | ', ' or ')}"
