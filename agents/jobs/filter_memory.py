"""Compute the state of the filters before an epoch, from earlier publications.

    `selection_memory`    over head lists: ranks and forgets known records
    `estimates_memory`    over head lists and estimates: computes the filtered estimate

Promises: uses only committed documents of the release log, from `memory_start` on, so every
process computes the same state after any loss. A new process reads up to 31 epochs, a running one
only the last. The decisions of the first filter (order, forgetting) are committed with the head
list and never computed again.

A filter that fails must not cost an epoch: the job logs and counts the failure, which raises an
alert, and makes the release without the filter. A publication that the filter rejects affects only
its own epoch: the filters of later epochs skip it, like an empty epoch. If a document cannot be
read, the job retries, as after any failed read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from blendstream.agents.jobs.job_context import FilterProgress, JobContext
from blendstream.agents.jobs.metrics import FILTER_FAILURES
from blendstream.blender.over_time.publication_filter import (
    Publication,
    RecordFilter,
    memory_start,
)
from blendstream.blender.values.errors import NotFinite
from blendstream.streams.releases.documents import DocumentReference
from blendstream.streams.releases.entries import Kind
from blendstream.streams.releases.epoch_state import EpochState, ReleaseLogState, Stage
from blendstream.streams.releases.filtered_estimates import (
    FilterMemory,
    publication_of,
    rotates,
    with_filtered,
)
from blendstream.streams.releases.optin_release import SelectionNumbers
from blendstream.streams.wire.estimates_document import EstimatesDocument
from blendstream.streams.wire.head_list_document import HeadListDocument

__all__ = ["add_filtered", "estimates_memory", "report_filter_failure", "selection_memory"]

log = logging.getLogger(__name__)

Documents = tuple[DocumentReference, DocumentReference]
State = TypeVar("State")
Content = TypeVar("Content")


async def selection_memory(
    context: JobContext, log_state: ReleaseLogState, epoch: int
) -> RecordFilter:
    """Return the filter over S's published counts before this epoch."""
    published = [
        (state.epoch, released.head_list.id, (released.head_list, released.optin))
        for state in _remembered_epochs(log_state, epoch)
        if (released := state.head_list) is not None and state.stage is not Stage.ABANDONED
    ]

    async def read(number: int, documents: Documents) -> Publication | None:
        return _read_selection(number, *await _bytes_of(context, documents))

    start = FilterProgress(RecordFilter.start())
    kind = Kind.HEAD_LISTS
    context.selection = await _follow_publications(
        kind, context.selection, start, published, read, _follow_list
    )
    return context.selection.state


async def estimates_memory(
    context: JobContext, log_state: ReleaseLogState, epoch: int
) -> FilterMemory:
    """Return the filter over the publications before this epoch."""
    published = [
        (state.epoch, state.estimates.document.id, documents)
        for state in _remembered_epochs(log_state, epoch)
        if state.stage is Stage.PUBLISHED
        and state.head_list is not None
        and state.estimates is not None
        and (documents := (state.head_list.head_list, state.estimates.document))
    ]

    async def read(_: int, documents: Documents) -> tuple[bytes, bytes]:
        return await _bytes_of(context, documents)

    start = FilterProgress(FilterMemory())
    context.estimates = await _follow_publications(
        Kind.ESTIMATES, context.estimates, start, published, read, _follow_estimates
    )
    return context.estimates.state


def _remembered_epochs(log_state: ReleaseLogState, epoch: int) -> Iterator[EpochState]:
    numbers = (
        number for number in sorted(log_state.epochs) if memory_start(epoch) <= number < epoch
    )
    return (log_state.epochs[number] for number in numbers)


async def _bytes_of(context: JobContext, documents: Documents) -> tuple[bytes, bytes]:
    first, second = documents
    return await context.log.read_document(first), await context.log.read_document(second)


async def _follow_publications(
    kind: Kind,
    done: FilterProgress[State],
    start: FilterProgress[State],
    published: Sequence[tuple[int, str, Documents]],
    read: Callable[[int, Documents], Awaitable[Content]],
    follow: Callable[[State, Content], State],
) -> FilterProgress[State]:
    """Advance the filter over all publications; read only those it has not processed yet."""
    ids = tuple(document for _, document, _ in published)
    if ids[: len(done.ids)] != done.ids:
        done = start  # The memory starts at a later epoch, or an epoch lost its release.
    state = done.state
    for number, _, documents in published[len(done.ids) :]:
        content = await read(number, documents)
        try:
            state = await asyncio.to_thread(follow, state, content)
        except Exception as error:
            report_filter_failure(kind, number, error)
    return FilterProgress(state, ids)


def report_filter_failure(kind: Kind, epoch: int, error: Exception) -> None:
    """Log and count a release without the filter, or a filter that skips one publication.

    The log field `record` is the number of the failing record in that epoch's head list, if any.
    """
    record = error.record if isinstance(error, NotFinite) else None
    FILTER_FAILURES.labels(kind).inc()
    log.error(
        "filter_failed", extra={"kind": kind, "epoch": epoch, "record": record}, exc_info=error
    )


def _read_selection(epoch: int, head_list_bytes: bytes, optin_bytes: bytes) -> Publication | None:
    """Read S's counts in one head list; `None` if it has none."""
    numbers = SelectionNumbers.read(optin_bytes)
    head_list = HeadListDocument.from_bytes(head_list_bytes).head_list
    if head_list.noisy_counts is None or numbers.users == 0:
        return None
    return Publication(
        epoch=epoch,
        records=head_list.records,
        counts=np.array(head_list.noisy_counts, dtype=np.int64),
        users=numbers.users,
        noise=numbers.noise,
        listed=0,
        forgotten=tuple(
            head_list.records[place]
            for place in numbers.forgotten
            if place < len(head_list.records)  # The rest of the list did not fit its document.
        ),
    )


def _follow_list(memory: RecordFilter, publication: Publication | None) -> RecordFilter:
    """Advance the filter by one list, without the records that the list dropped.

    A list drops known records in an epoch with a separate budget.
    """
    if publication is None:
        return memory
    listed = set(publication.records)
    return memory.drop(r for r in memory.records if r not in listed).follow(publication)


def _follow_estimates(memory: FilterMemory, documents: tuple[bytes, bytes]) -> FilterMemory:
    head_list, estimates = documents
    document = EstimatesDocument.from_bytes(estimates)
    publication = publication_of(HeadListDocument.from_bytes(head_list), document)
    if publication is None:
        return memory
    return memory.follow(publication, clients_rotate=rotates(document))


def add_filtered(
    document: EstimatesDocument, head_list: HeadListDocument, memory: FilterMemory
) -> EstimatesDocument:
    """Return the publication with the filtered estimate, or unchanged if the filter fails.

    An epoch's own estimate must not be lost because of an addition to it.
    """
    try:
        return with_filtered(document, head_list, memory)
    except Exception as error:
        report_filter_failure(Kind.ESTIMATES, document.epoch, error)
        return document
