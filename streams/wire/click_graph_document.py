"""The document of a published query click graph: noisy query counts and noisy clicks.

Promises: every number is a released, noised count; queries and URLs are ordered by published
counts, ties by text. The service only writes it; readers have the JSON schema
`schemas/click-graph.schema.json`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from blendstream.streams.wire.canonical_json import canonical_json

__all__ = ["SCHEMA", "ClickGraphDocument", "GraphQuery"]

SCHEMA = "blendstream/click-graph/1"


@dataclass(frozen=True, slots=True)
class GraphQuery:
    """A query, its noisy count, and the noisy clicks on each of its candidate URLs."""

    query: str
    count: int
    clicks: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class ClickGraphDocument:
    """The document of one epoch's click graph."""

    epoch: int
    window_start_s: int
    window_end_s: int
    outcome: str
    reasons: tuple[str, ...]
    url_table: str
    participants: int
    parameters: dict[str, Any]
    mechanisms: dict[str, str]
    queries: tuple[GraphQuery, ...]
    privacy: dict[str, Any]
    versions: dict[str, str]
    quantity: str

    def to_bytes(self) -> bytes:
        """Encode as canonical bytes."""
        queries = sorted(self.queries, key=lambda q: (-q.count, q.query))
        return canonical_json(
            {
                **{name: getattr(self, name) for name in self.__slots__},
                "schema": SCHEMA,
                "reasons": sorted(self.reasons),
                "queries": [
                    {
                        "query": q.query,
                        "count": q.count,
                        "clicks": [
                            {"url": url, "count": n}
                            for url, n in sorted(q.clicks, key=lambda c: (-c[1], c[0]))
                        ],
                    }
                    for q in queries
                ],
            }
        )
