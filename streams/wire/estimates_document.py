"""The document of an epoch's published estimates: one JSON document in canonical bytes.

Promises: everything in it follows from released values: order, omissions and rounding depend on
nothing unpublished. Raw estimates and their projection onto the probability simplex are separate.
Numbers that do not exist (no reports, no opt-in estimate) are `null`, never 0.
The JSON schema is `schemas/estimates.schema.json`. Readers ignore unknown keys.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeVar

from blendstream.streams.wire.canonical_json import canonical_json
from blendstream.streams.wire.epoch_numbers import MAX_EPOCH, is_epoch
from blendstream.streams.wire.head_list_document import MalformedDocument

__all__ = [
    "SCHEMA",
    "DisputedRecords",
    "EstimatedCell",
    "EstimatedQuery",
    "EstimatedShare",
    "EstimatesDocument",
    "FilteredQuery",
    "FilteredRecord",
    "FilteredStatement",
    "Participants",
    "PublishedAgreement",
    "PublishedDifference",
]

SCHEMA = "blendstream/estimates/2"

_Part = TypeVar("_Part")


@dataclass(frozen=True, slots=True)
class EstimatedShare:
    """p̂, σ̂² and the 95 % interval [low, high]; `None` where a number does not exist."""

    probability: float | None
    variance: float | None
    low: float | None
    high: float | None

    @classmethod
    def of(cls, probability: float, variance: float, low: float, high: float) -> EstimatedShare:
        """Make an estimate of computed numbers; those that are not finite become `None`."""
        return cls(*(_finite(x) for x in (probability, variance, low, high)))


@dataclass(frozen=True, slots=True)
class EstimatedCell:
    """One cell: ⟨q,u⟩, ⟨q,⋆⟩ or ⟨⋆,⋆⟩ (`None` is ⋆), by each group and blended.

    `optin_weight` is the opt-in group's weight in the blend; `projected` is the blend after
    projection onto the simplex, over all cells. A `disputed` cell is not blended: its `blend` has
    one group's value, with an interval that spans both groups', and no weight
    (`DisputedRecords` names the group and the reason). `filtered` is the estimate from all
    publications together (`FilteredStatement`). `estimation_count` is T's noisy count, for the
    filters of later epochs; `None` without T.
    """

    query: str | None
    url: str | None
    optin: EstimatedShare | None
    client: EstimatedShare | None
    blend: EstimatedShare | None
    optin_weight: float | None
    projected: float | None
    disputed: bool = False
    filtered: EstimatedShare | None = None
    estimation_count: int | None = None


@dataclass(frozen=True, slots=True)
class EstimatedQuery:
    """A query's estimates, by each group and blended.

    In `sharp` it is the sum over the query's listed results, and `filtered` the sum over all that
    are known: the listed and the unlisted ones (`FilteredStatement`). Results that are not known
    are not measured (`EstimatesDocument.queries_at_least`). In `paper` it is p̂_q, which includes
    ⟨q,⋆⟩ and so is complete. `optin_weight` of a sum is the mean of its records' weights, each in
    proportion to the record's blended probability. A query is `disputed` if one of its records is;
    it then has no weight.
    """

    query: str
    optin: EstimatedShare | None
    client: EstimatedShare | None
    blend: EstimatedShare | None
    optin_weight: float | None
    disputed: bool = False
    filtered: EstimatedShare | None = None


@dataclass(frozen=True, slots=True)
class PublishedAgreement:
    """Test whether the groups differ: the p-value of "no difference", and the conclusion.

    `prefer` names the estimate to use: `blend`, or `client` where the blend assumes that both
    groups are alike.
    """

    statistic: float | None
    p_value: float | None
    agree: bool
    prefer: str


@dataclass(frozen=True, slots=True)
class PublishedDifference:
    """Difference of the groups' proportions over the listed records.

    `typical` is the typical relative difference, with its 95 % interval [low, high]; `common` is
    the overall factor between clients and opt-in users; `spread` is τ, the deviation of single
    records from it; `statement` explains `typical` in a sentence.
    """

    typical: float
    low: float
    high: float
    common: float
    spread: float
    statement: str


@dataclass(frozen=True, slots=True)
class DisputedRecords:
    """Outliers, whose groups differ far more than those of other records: their number.

    `shown` is the group whose value is published: `client` where devices are admitted, else
    `optin`; `reason` is a sentence for readers.
    """

    records: int
    shown: str
    reason: str


@dataclass(frozen=True, slots=True)
class FilteredRecord:
    """A record that is not listed in this epoch, with the estimate from earlier publications."""

    query: str
    url: str
    filtered: EstimatedShare


@dataclass(frozen=True, slots=True)
class FilteredQuery:
    """A query that has no listed record in this epoch: the sum over its known ones."""

    query: str
    filtered: EstimatedShare


@dataclass(frozen=True, slots=True)
class FilteredStatement:
    """Estimates from all publications together: which were read, and their purpose in a sentence.

    Each listed record and query contains its estimate; `unlisted` are the largest of the other
    records, `unlisted_queries` of the other queries. `between_groups` is the groups' difference τ,
    estimated from all epochs together.
    """

    since_epoch: int
    epochs: int
    between_groups: float
    statement: str
    unlisted: tuple[FilteredRecord, ...]
    unlisted_queries: tuple[FilteredQuery, ...]


@dataclass(frozen=True, slots=True)
class Participants:
    """Number of people per group. Participation is not hidden."""

    selection: int
    estimation: int
    clients: int


@dataclass(frozen=True, slots=True)
class EstimatesDocument:
    """One epoch's publication. `quantity` describes the estimated quantity.

    `difference` is `None` where the groups were not compared, `disputed` where no record is,
    `filtered` where earlier publications do not measure this quantity. `queries_at_least`: a
    query's true proportion is at least its estimate, which omits unknown results.
    """

    epoch: int
    window_start_s: int
    window_end_s: int
    reports_until_s: int | None
    outcome: str
    reasons: tuple[str, ...]
    head_list_id: str | None
    parameters: dict[str, Any]
    mechanisms: dict[str, str]
    participants: Participants
    records: tuple[EstimatedCell, ...]
    queries: tuple[EstimatedQuery, ...]
    agreement: PublishedAgreement | None
    privacy: dict[str, Any]
    versions: dict[str, str]
    quantity: str
    queries_at_least: bool = True
    difference: PublishedDifference | None = None
    disputed: DisputedRecords | None = None
    filtered: FilteredStatement | None = None

    def to_bytes(self) -> bytes:
        """Encode as canonical bytes: UTF-8 JSON, sorted keys, records by published value."""
        records = sorted(self.records, key=_published_order)
        queries = sorted(self.queries, key=lambda q: (-_value(q.blend), q.query))
        return canonical_json(
            {
                **{name: getattr(self, name) for name in self.__slots__},
                "schema": SCHEMA,
                "reasons": sorted(self.reasons),
                "participants": asdict(self.participants),
                "records": [asdict(cell) for cell in records],
                "queries": [asdict(query) for query in queries],
                **{name: _body(getattr(self, name)) for name in _PARTS},
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> EstimatesDocument:
        """Read a publication, or raise `MalformedDocument`."""
        try:
            # Decoded first: `json` would guess the encoding of bytes, and accept lone surrogates.
            body = json.loads(data.decode(), parse_constant=_no_constant)
            if body["schema"] != SCHEMA:
                raise MalformedDocument(f"a publication must have the schema {SCHEMA}")
            if not is_epoch(body["epoch"]):
                raise MalformedDocument(f"a publication must be of an epoch from 0 to {MAX_EPOCH}")
            if not isinstance(body["records"], list) or not isinstance(body["queries"], list):
                raise MalformedDocument("a publication must have lists of records and queries")
            return cls(
                epoch=body["epoch"],
                window_start_s=int(body["window_start_s"]),
                window_end_s=int(body["window_end_s"]),
                reports_until_s=body["reports_until_s"],
                outcome=str(body["outcome"]),
                reasons=tuple(body["reasons"]),
                head_list_id=body["head_list_id"],
                parameters=body["parameters"],
                mechanisms=body["mechanisms"],
                participants=_known(Participants, body["participants"]),
                records=tuple(map(_cell, body["records"])),
                queries=tuple(map(_query, body["queries"])),
                privacy=body["privacy"],
                versions=body["versions"],
                quantity=body["quantity"],
                queries_at_least=body["queries_at_least"] is True,
                agreement=_part(PublishedAgreement, body["agreement"]),
                difference=_part(PublishedDifference, body["difference"]),
                disputed=_part(DisputedRecords, body["disputed"]),
                filtered=_filtered(body["filtered"]),
            )
        except MalformedDocument:
            raise
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
            raise MalformedDocument(
                "a publication must be a JSON document of the stated schema"
            ) from None


_PARTS = ("agreement", "difference", "disputed", "filtered")


def _published_order(cell: EstimatedCell) -> tuple[bool, bool, float, str, str]:
    # Records first, wildcards after; by blended value, ties by text: published values only.
    return (
        cell.query is None, cell.url is None, -_value(cell.blend), cell.query or "", cell.url or "",
    )  # fmt: skip


def _value(figure: EstimatedShare | None) -> float:
    return -math.inf if figure is None or figure.probability is None else figure.probability


def _body(part: Any) -> dict[str, Any] | None:
    return None if part is None else asdict(part)


def _part(kind: type[_Part], body: Mapping[str, Any] | None) -> _Part | None:
    return None if body is None else _known(kind, body)


def _known(kind: type[_Part], body: Mapping[str, Any]) -> _Part:
    """Read the fields that this release knows."""
    return kind(**{field.name: body[field.name] for field in fields(kind)})  # type: ignore[arg-type]


def _cell(row: Any) -> EstimatedCell:
    return EstimatedCell(
        optin=_figure(row["optin"]),
        client=_figure(row["client"]),
        blend=_figure(row["blend"]),
        query=row["query"],
        url=row["url"],
        optin_weight=row["optin_weight"],
        projected=row["projected"],
        disputed=row["disputed"] is True,
        filtered=_figure(row["filtered"]),
        estimation_count=row["estimation_count"],
    )


def _query(row: Any) -> EstimatedQuery:
    return EstimatedQuery(
        optin=_figure(row["optin"]),
        client=_figure(row["client"]),
        blend=_figure(row["blend"]),
        query=row["query"],
        optin_weight=row["optin_weight"],
        disputed=row["disputed"] is True,
        filtered=_figure(row["filtered"]),
    )


def _filtered(body: Mapping[str, Any] | None) -> FilteredStatement | None:
    if body is None:
        return None
    statement = _known(FilteredStatement, body)
    return replace(
        statement,
        unlisted=tuple(
            FilteredRecord(_text(row["query"]), _text(row["url"]), _present(row["filtered"]))
            for row in _rows(body["unlisted"])
        ),
        unlisted_queries=tuple(
            FilteredQuery(_text(row["query"]), _present(row["filtered"]))
            for row in _rows(body["unlisted_queries"])
        ),
    )


def _rows(body: Any) -> list[Any]:
    if not isinstance(body, list):
        raise ValueError("unlisted records and queries are lists")
    return body


def _text(body: Any) -> str:
    if not isinstance(body, str):
        raise ValueError("an unlisted query or URL is text")
    return body


def _present(body: Mapping[str, Any] | None) -> EstimatedShare:
    figure = _figure(body)
    if figure is None:
        raise ValueError("a filtered row has a figure")
    return figure


def _figure(body: Mapping[str, Any] | None) -> EstimatedShare | None:
    if body is None:
        return None
    return EstimatedShare(body["probability"], body["variance"], body["low"], body["high"])


def _finite(x: float) -> float | None:
    return float(x) if math.isfinite(x) else None


def _no_constant(_: str) -> None:
    raise ValueError("Infinity and NaN are not JSON")
