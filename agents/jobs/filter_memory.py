"""What earlier publications said: the filters before an epoch, from committed documents.

    `selection_memory`    over head lists: ranks and forgets known records
    `estimates_memory`    over head lists and estimates: makes the filtered estimate

Promises: made of committed documents of the release log alone, those from `remembered_from` on, so
that every process makes the same of them after any loss. A process that was just started reads up
to 31 epochs, one that runs reads the last one. What the first filter decides (order, forgetting) is
committed with the head list, and never worked out again.

A filter that fails must cost no epoch: the job logs and counts the failure, which raises an alert,
and makes the release without it. A publication that the filter rejects costs its own epoch alone:
the filters of later epochs pass over it, as over an empty epoch. A document that cannot be read is
another matter: that is tried again, as all reading is.
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
    remembered_from,
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
    """The filter over S's published counts before this epoch."""
    published = [
        (state.epoch, released.head_list.id, (released.head_list, released.optin))
        for state in _remembered(log_state, epoch)
        if (released := state.head_list) is not None and state.stage is not Stage.ABANDONED
    ]

    async def read(number: int, documents: Documents) -> Publication | None:
        return _selection(number, *await _bytes_of(context, documents))

    start = FilterProgress(RecordFilter.start())
    kind = Kind.HEAD_LISTS
    context.selection = await _followed(
        kind, context.selection, start, published, read, _after_list
    )
    return context.selection.state


async def estimates_memory(
    context: JobContext, log_state: ReleaseLogState, epoch: int
) -> FilterMemory:
    """The filter over publications before this epoch."""
    published = [
        (state.epoch, state.estimates.document.id, documents)
        for state in _remembered(log_state, epoch)
        if state.stage is Stage.PUBLISHED
        and state.head_list is not None
        and state.estimates is not None
        and (documents := (state.head_list.head_list, state.estimates.document))
    ]

    async def read(_: int, documents: Documents) -> tuple[bytes, bytes]:
        return await _bytes_of(context, documents)

    start = FilterProgress(FilterMemory())
    context.estimates = await _followed(
        Kind.ESTIMATES, context.estimates, start, published, read, _after_estimates
    )
    return context.estimates.state


def _remembered(log_state: ReleaseLogState, epoch: int) -> Iterator[EpochState]:
    numbers = (
        number for number in sorted(log_state.epochs) if remembered_from(epoch) <= number < epoch
    )
    return (log_state.epochs[number] for number in numbers)


async def _bytes_of(context: JobContext, documents: Documents) -> tuple[bytes, bytes]:
    first, second = documents
    return await context.log.read_document(first), await context.log.read_document(second)


async def _followed(
    kind: Kind,
    done: FilterProgress[State],
    start: FilterProgress[State],
    published: Sequence[tuple[int, str, Documents]],
    read: Callable[[int, Documents], Awaitable[Content]],
    follow: Callable[[State, Content], State],
) -> FilterProgress[State]:
    """The filter after all that was published; only what it has not followed yet is read."""
    ids = tuple(document for _, document, _ in published)
    if ids[: len(done.ids)] != done.ids:
        done = start  # Memory began anew, or an epoch was abandoned after its list.
    state = done.state
    for number, _, documents in published[len(done.ids) :]:
        content = await read(number, documents)
        try:
            state = await asyncio.to_thread(follow, state, content)
        except Exception as error:
            report_filter_failure(kind, number, error)
    return FilterProgress(state, ids)


def report_filter_failure(kind: Kind, epoch: int, error: Exception) -> None:
    """Log and count that a release is made without the filter, or without one publication in it.

    `record` is the number of the record in that epoch's head list, where one record is to blame.
    """
    record = error.record if isinstance(error, NotFinite) else None
    FILTER_FAILURES.labels(kind).inc()
    log.error(
        "filter_failed", extra={"kind": kind, "epoch": epoch, "record": record}, exc_info=error
    )


def _selection(epoch: int, head_list_bytes: bytes, optin_bytes: bytes) -> Publication | None:
    """S's counts in one head list; `None` where it has none."""
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


def _after_list(memory: RecordFilter, publication: Publication | None) -> RecordFilter:
    """After one more list. What it lacks was given up, in an epoch with a budget of its own."""
    if publication is None:
        return memory
    listed = set(publication.records)
    return memory.without(r for r in memory.records if r not in listed).follow(publication)


def _after_estimates(memory: FilterMemory, documents: tuple[bytes, bytes]) -> FilterMemory:
    head_list, estimates = documents
    document = EstimatesDocument.from_bytes(estimates)
    publication = publication_of(HeadListDocument.from_bytes(head_list), document)
    if publication is None:
        return memory
    return memory.follow(publication, clients_rotate=rotates(document))


def add_filtered(
    document: EstimatesDocument, head_list: HeadListDocument, memory: FilterMemory
) -> EstimatesDocument:
    """The publication with the filtered estimate; without it if the filter fails.

    An epoch's own estimate must not be lost for what is only put beside it.
    """
    try:
        return with_filtered(document, head_list, memory)
    except Exception as error:
        report_filter_failure(Kind.ESTIMATES, document.epoch, error)
        return document
