"""A published estimate as it travels: one JSON document an epoch, in canonical bytes.

Promises: everything in it follows from released values: nothing is ordered, left out or rounded
by anything that is not published. Raw estimates and their projection onto the probability simplex
stand apart. Numbers that do not exist (no reports, no opt-in estimate) are `null`, never 0.
The JSON schema is `schemas/estimates.schema.json`; its id is the field `schema`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from streams.wire.canonical_json import canonical_json
from streams.wire.epoch_numbers import MAX_EPOCH, is_epoch
from streams.wire.head_list_document import MalformedDocument

__all__ = [
    "SCHEMA",
    "EstimatedCell",
    "EstimatedQuery",
    "EstimatedShare",
    "EstimatesDocument",
    "Participants",
    "PublishedAgreement",
    "QueryMarginal",
]

SCHEMA = "blendstream/estimates/1"


@dataclass(frozen=True, slots=True)
class EstimatedShare:
    """p̂, σ̂² and the 95 % interval [low, high]; `None` where a number does not exist."""

    probability: float | None
    variance: float | None
    low: float | None
    high: float | None

    @classmethod
    def of(cls, probability: float, variance: float, low: float, high: float) -> EstimatedShare:
        """From computed numbers: what is not finite does not exist."""
        return cls(*(_finite(x) for x in (probability, variance, low, high)))


@dataclass(frozen=True, slots=True)
class EstimatedCell:
    """One cell: ⟨q,u⟩, ⟨q,⋆⟩ or ⟨⋆,⋆⟩ (`None` is ⋆), by each group and blended.

    `optin_weight` is the opt-in group's weight in the blend; `projected` is the blend after
    projection onto the simplex, over all cells.
    """

    query: str | None
    url: str | None
    optin: EstimatedShare | None
    client: EstimatedShare | None
    blend: EstimatedShare | None
    optin_weight: float | None
    projected: float | None


@dataclass(frozen=True, slots=True)
class QueryMarginal:
    """The paper's p̂_q: a query with any URL, ⟨q,⋆⟩ included, by each group and blended."""

    optin: EstimatedShare | None
    client: EstimatedShare | None
    blend: EstimatedShare | None


@dataclass(frozen=True, slots=True)
class EstimatedQuery:
    """A query's total over its listed records, by each group and blended.

    `optin_weight` is the mean of its records' weights, each in proportion to the record's blended
    probability. `marginal` is `None` where the randomizer's cells do not separate ⟨q,⋆⟩ from ⟨⋆,⋆⟩.
    """

    query: str
    optin: EstimatedShare | None
    client: EstimatedShare | None
    blend: EstimatedShare | None
    optin_weight: float | None
    marginal: QueryMarginal | None = None


@dataclass(frozen=True, slots=True)
class PublishedAgreement:
    """Do both groups estimate the same? `prefer` is what to read: `blend` or `client`."""

    statistic: float | None
    p_value: float | None
    agree: bool
    prefer: str


@dataclass(frozen=True, slots=True)
class Participants:
    """People per group: that somebody takes part is not hidden."""

    selection: int
    estimation: int
    clients: int


@dataclass(frozen=True, slots=True)
class EstimatesDocument:
    """One epoch's publication. `quantity` says what is estimated; older documents have none."""

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
    quantity: str | None = None

    def to_bytes(self) -> bytes:
        """Canonical bytes: UTF-8 JSON, keys sorted, no white space, records by published value."""
        records = sorted(self.records, key=_published_order)
        queries = sorted(self.queries, key=lambda q: (-_value(q.blend), q.query))
        absent = {"quantity"} if self.quantity is None else set()
        return canonical_json(
            {
                **{name: getattr(self, name) for name in self.__slots__ if name not in absent},
                "schema": SCHEMA,
                "reasons": sorted(self.reasons),
                "participants": asdict(self.participants),
                "records": [asdict(cell) for cell in records],
                "queries": [asdict(query) for query in queries],
                "agreement": None if self.agreement is None else asdict(self.agreement),
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> EstimatesDocument:
        """Read a publication, or raise `MalformedDocument`."""
        try:
            body = json.loads(data)
            if body["schema"] != SCHEMA:
                raise MalformedDocument(f"a publication must have the schema {SCHEMA}")
            if not is_epoch(body["epoch"]):
                raise MalformedDocument(f"a publication must be of an epoch from 0 to {MAX_EPOCH}")
            agreement = body["agreement"]
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
                participants=Participants(**body["participants"]),
                records=tuple(
                    EstimatedCell(**row | {k: _figure(row[k]) for k in _GROUPS})
                    for row in body["records"]
                ),
                queries=tuple(
                    EstimatedQuery(
                        **row
                        | {k: _figure(row[k]) for k in _GROUPS}
                        | {"marginal": _marginal(row["marginal"])}
                    )
                    for row in body["queries"]
                ),
                agreement=None if agreement is None else PublishedAgreement(**agreement),
                privacy=body["privacy"],
                versions=body["versions"],
                quantity=body.get("quantity"),
            )
        except MalformedDocument:
            raise
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
            raise MalformedDocument(
                "a publication must be a JSON document of the stated schema"
            ) from None


_GROUPS = ("optin", "client", "blend")


def _published_order(cell: EstimatedCell) -> tuple[bool, bool, float, str, str]:
    # Records first, wildcards after; by blended value, ties by text: published values only.
    return (
        cell.query is None, cell.url is None, -_value(cell.blend), cell.query or "", cell.url or "",
    )  # fmt: skip


def _value(figure: EstimatedShare | None) -> float:
    return -math.inf if figure is None or figure.probability is None else figure.probability


def _figure(body: Mapping[str, Any] | None) -> EstimatedShare | None:
    return None if body is None else EstimatedShare(**body)


def _marginal(body: Mapping[str, Any] | None) -> QueryMarginal | None:
    return None if body is None else QueryMarginal(**{k: _figure(body[k]) for k in _GROUPS})


def _finite(x: float) -> float | None:
    return float(x) if math.isfinite(x) else None
