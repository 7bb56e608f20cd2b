"""The size of a click graph's document, whatever was drawn."""

from __future__ import annotations

from blendstream.agents.jobs import click_graphs
from blendstream.streams.wire.click_graph_document import ClickGraphDocument, GraphQuery


def test_a_graph_that_does_not_fit_keeps_its_highest_published_counts(monkeypatch):
    """Refused for its size it would be lost, and drawing again would depend on the draw."""
    queries = tuple(
        GraphQuery(f"query {n}", n % 50, ((f"https://{n}.example/", n),)) for n in range(100)
    )
    whole = ClickGraphDocument(
        epoch=1, window_start_s=0, window_end_s=1, outcome="complete", reasons=(),
        url_table="file", participants=100, parameters={}, mechanisms={}, queries=queries,
        privacy={}, versions={}, quantity="",
    )  # fmt: skip
    assert click_graphs._fit_to_limit(whole) is whole
    most = len(whole.to_bytes()) // 2
    monkeypatch.setattr(click_graphs, "MAX_DOCUMENT_BYTES", most)

    cut = click_graphs._fit_to_limit(whole)

    assert 0.7 * most < len(cut.to_bytes()) <= most
    gone = set(queries) - set(cut.queries)
    assert min(q.count for q in cut.queries) >= max(q.count for q in gone)
