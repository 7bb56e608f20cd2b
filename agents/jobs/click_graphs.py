"""Epoch job: the graph subgroup's counts ──▶ release_data ──▶ releases ──▶ click_graphs.

A query click graph (Korolova et al.) of opt-in users who are in no other release of the epoch.

Promises: candidate URLs come from the last published head list or from a file, never from the data;
without either, the job publishes an empty graph with the reason. The job draws once, as every
release job does. It draws before the epoch's head list, after which the keeper deletes the raw
records.
"""

from __future__ import annotations

import asyncio
import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from blendstream.agents.jobs.epoch_schedule import BuildClickGraph, next_click_graph
from blendstream.agents.jobs.job_context import AbandonedRelease, JobContext, versions
from blendstream.agents.jobs.release_step import CommitContents, PendingRelease, ReleaseSpec
from blendstream.blender.paper.click_graph import (
    ClickGraph,
    ClickGraphParameters,
    PublicUrlTable,
    release_data,
)
from blendstream.blender.values.errors import ParameterError
from blendstream.blender.values.record import Record, normalise
from blendstream.streams.names import InputStream
from blendstream.streams.releases import entries
from blendstream.streams.releases.documents import MAX_DOCUMENT_BYTES, split
from blendstream.streams.releases.entries import EpochOutcome, IncompleteReason, Kind
from blendstream.streams.releases.epoch_state import EpochState, ReleaseLogState
from blendstream.streams.wire.click_graph_document import ClickGraphDocument, GraphQuery
from blendstream.streams.wire.head_list_document import HeadListDocument
from blendstream.streams.wire.statements import click_graph_quantity, click_graph_statement

__all__ = ["CLICK_GRAPHS", "mechanism_parameters", "read_url_table"]


@dataclass(frozen=True, slots=True)
class _Inputs:
    """The inputs of a click graph."""

    clicks: Mapping[Record, int]
    table: PublicUrlTable
    reasons: Sequence[IncompleteReason]


async def _read(
    context: JobContext, pending: PendingRelease[BuildClickGraph]
) -> _Inputs | CommitContents:
    """Read the graph subgroup's counts, and the table of URLs that may be counted."""
    state = pending.state
    read = await pending.counts.read_graph(
        state.epoch, pending.seal.bounds, complete=pending.complete
    )
    pending.participants = read.users
    reasons = [*pending.move.reasons, *([IncompleteReason.RECORDS_LOST] if read.lost else [])]
    table = await _url_table(context, pending.log_state, state)
    if table is None:
        return _empty_graph(state, pending.participants, [*reasons, IncompleteReason.NO_URL_TABLE])
    if pending.participants < state.parameters.plan.min_optin_users:
        why = [*reasons, IncompleteReason.TOO_FEW_OPTIN_USERS]
        return _empty_graph(state, pending.participants, why, table)
    return _Inputs(read.clicks, table, reasons)


async def _draw(
    context: JobContext, pending: PendingRelease[BuildClickGraph], inputs: _Inputs
) -> CommitContents:
    """Draw the click graph in a thread, since that takes seconds."""
    state, noise, reasons = pending.state, context.dice.noise, inputs.reasons
    graph = await asyncio.to_thread(
        release_data,
        _by_query(inputs.clicks),
        inputs.clicks,
        inputs.table,
        mechanism_parameters(state),
        noise,
    )
    outcome = EpochOutcome.INCOMPLETE if reasons else EpochOutcome.COMPLETE
    whole = _document(
        state, graph, pending.participants, outcome, reasons, inputs.table, versions(noise)
    )
    return _commit_contents(_fit_to_limit(whole), outcome, reasons)


def _abandon(state: EpochState, failed: AbandonedRelease) -> CommitContents:
    """Build an empty graph: the epoch continues without one, and the job never redraws it."""
    return _empty_graph(state, failed.participants, [failed.reason])


def mechanism_parameters(state: EpochState) -> ClickGraphParameters:
    """Return the noise and threshold for the budget that the epoch recorded when it opened."""
    plan = state.parameters.plan.click_graph
    if plan is None:
        raise ParameterError("this epoch was opened without a click graph")
    selection = plan.selection_share * plan.epsilon
    queries = plan.query_count_share * plan.epsilon
    found = ClickGraphParameters.for_budget(
        selection_epsilon=selection,
        query_epsilon=queries,
        click_epsilon=plan.epsilon - selection - queries,
        delta=plan.delta,
        queries_per_user=plan.queries_per_user,
        clicks_per_user=plan.clicks_per_user,
    )
    # The mechanism computes its exact cost, which must not exceed the charge.
    if found.epsilon > plan.epsilon * (1 + 1e-9) or found.delta > plan.delta * (1 + 1e-9):
        raise ParameterError(
            f"the click graph must cost no more than was charged ({plan.epsilon:g}, "
            f"{plan.delta:g}), got ({found.epsilon:g}, {found.delta:g})"
        )
    return found


def read_url_table(path: Path) -> PublicUrlTable:
    """Read a public TSV of query and URL, one pair per line, that does not come from the data."""
    urls: dict[str, list[str]] = {}
    with path.open(encoding="utf-8", newline="") as lines:
        for number, row in enumerate(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE), 1):
            if len(row) != 2:
                raise ParameterError(
                    f"a URL table must have a query and a URL in each line, with one tab between, "
                    f"got {len(row)} fields in line {number}"
                )
            record = normalise(*row)
            urls.setdefault(record.query, []).append(record.url)
    return PublicUrlTable.from_outside_source("file", urls)


async def _url_table(
    context: JobContext, log_state: ReleaseLogState, state: EpochState
) -> PublicUrlTable | None:
    path = context.settings.click_graph.url_table_file
    graph = state.parameters.plan.click_graph
    if graph is not None and graph.url_table == "file":
        return None if path is None else await asyncio.to_thread(read_url_table, path)
    published = log_state.last_head_list_before(state.epoch)
    if published is None or published.head_list is None:
        return None
    data = await context.log.read_document(published.head_list.head_list)
    return PublicUrlTable.from_head_list(HeadListDocument.from_bytes(data).head_list)


def _fit_to_limit(document: ClickGraphDocument) -> ClickGraphDocument:
    """Drop the queries with the lowest published counts until the document fits.

    This is post-processing of the draw, so the job never refuses a draw because of its size.
    """
    while len(document.to_bytes()) > MAX_DOCUMENT_BYTES:
        ranked = sorted(document.queries, key=lambda q: (-q.count, q.query))
        document = replace(document, queries=tuple(ranked[: len(ranked) * 9 // 10]))
    return document


def _by_query(clicks: Mapping[Record, int]) -> dict[str, int]:
    queries: dict[str, int] = {}
    for record, count in clicks.items():
        queries[record.query] = queries.get(record.query, 0) + count
    return queries


def _empty_graph(
    state: EpochState,
    participants: int,
    reasons: Sequence[IncompleteReason],
    table: PublicUrlTable | None = None,
) -> CommitContents:
    """Build an empty graph with the reasons."""
    outcome = EpochOutcome.EMPTY
    document = _document(state, None, participants, outcome, reasons, table, versions())
    return _commit_contents(document, outcome, reasons)


def _commit_contents(
    document: ClickGraphDocument, outcome: EpochOutcome, reasons: Sequence[IncompleteReason]
) -> CommitContents:
    stored = split("click-graph", document.to_bytes())
    entry = entries.click_graph_released(document.epoch, stored, outcome, reasons)
    return CommitContents([entry], [stored])


def _document(
    state: EpochState,
    graph: ClickGraph | None,
    participants: int,
    outcome: EpochOutcome,
    reasons: Sequence[IncompleteReason],
    table: PublicUrlTable | None,
    made_by: Mapping[str, str],
) -> ClickGraphDocument:
    plan = state.parameters.plan.click_graph
    assert plan is not None
    clicks: dict[str, list[tuple[str, int]]] = {}
    for record, count in (graph.clicks if graph is not None else {}).items():
        clicks.setdefault(record.query, []).append((record.url, count))
    return ClickGraphDocument(
        epoch=state.epoch,
        window_start_s=state.parameters.window_start_ms // 1000,
        window_end_s=state.parameters.window_end_ms // 1000,
        outcome=outcome.value,
        reasons=tuple(reason.value for reason in reasons),
        url_table="none" if table is None else table.source,
        participants=participants,
        parameters=asdict(plan),
        mechanisms={"release": "release-data"},
        queries=tuple(
            GraphQuery(query, count, tuple(clicks.get(query, ())))
            for query, count in (graph.queries if graph is not None else {}).items()
        ),
        privacy={
            "statement": click_graph_statement(
                released=(plan.epsilon, plan.delta),
                charged=(plan.cost.epsilon, plan.cost.delta),
                queries_per_user=plan.queries_per_user,
                clicks_per_user=plan.clicks_per_user,
            ),
            "neighbouring": "add-remove",
            "released": {"epsilon": plan.epsilon, "delta": plan.delta},
            "charged": {
                "epsilon": plan.cost.epsilon,
                "delta": plan.cost.delta,
                "neighbouring": "replace-one",
            },
        },
        versions=dict(made_by),
        quantity=click_graph_quantity(state.parameters.plan.privacy.records_per_optin_user),
    )


#: The click graph of the epoch's graph subgroup, or an empty one with the reasons.
CLICK_GRAPHS = ReleaseSpec(
    kind=Kind.CLICK_GRAPHS,
    stem=InputStream.OPTIN_RECORDS,
    next_move=next_click_graph,
    is_owed=lambda state: state.graph_due,
    read=_read,
    draw=_draw,
    document=lambda state: None if state.click_graph is None else state.click_graph.document,
    topic=lambda topics: topics.click_graphs.name,
    abandon=_abandon,
)
