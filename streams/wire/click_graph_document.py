"""A published query click graph as it travels: noisy query counts and noisy clicks, once.

Promises: every number is a released, noised count; queries and URLs are ordered by published
counts, ties by text. The service only writes it; readers have the JSON schema
`schemas/click-graph.schema.json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streams.wire.canonical_json import canonical_json

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
    """One epoch's click graph."""

    epoch: int
    window_start_s: int
    window_end_s: int
    outcome: str
    reasons: tuple[str, ...]
    url_table: str
    participants: int
    parameters: Mapping[str, Any]
    mechanisms: Mapping[str, str]
    queries: tuple[GraphQuery, ...]
    privacy: Mapping[str, Any]
    versions: Mapping[str, str]

    def to_bytes(self) -> bytes:
        """Canonical bytes."""
        queries = sorted(self.queries, key=lambda q: (-q.count, q.query))
        return canonical_json(
            {
                "schema": SCHEMA,
                "epoch": self.epoch,
                "window_start_s": self.window_start_s,
                "window_end_s": self.window_end_s,
                "outcome": self.outcome,
                "reasons": sorted(self.reasons),
                "url_table": self.url_table,
                "participants": self.participants,
                "parameters": dict(self.parameters),
                "mechanisms": dict(self.mechanisms),
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
                "privacy": dict(self.privacy),
                "versions": dict(self.versions),
            }
        )
