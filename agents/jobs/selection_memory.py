"""What earlier head lists said of each record: the filter that ranks and forgets known records.

A filter that fails must cost no epoch: it is logged, and the list goes without it.

Promises: made of committed documents of the release log alone, those from `remembered_from` on, so
that every process makes the same of it after any loss. What it decides (order, forgetting) is
committed with the head list, and never worked out again.
"""

from __future__ import annotations

import asyncio
import logging

import numpy as np

from agents.jobs.job_context import JobContext, Remembered
from blender.publication_filter import Publication, RecordFilter, remembered_from
from streams.releases.epoch_stages import HeadListRelease
from streams.releases.epoch_state import ReleaseBook, Stage
from streams.releases.optin_release import SelectionNumbers
from streams.wire.head_list_document import HeadListDocument

__all__ = ["selection_memory"]

log = logging.getLogger(__name__)


async def selection_memory(
    context: JobContext, book: ReleaseBook, epoch: int
) -> RecordFilter | None:
    """The filter before this epoch, or `None` if it fails; only lists not read yet are read.

    A document that cannot be read is another matter: that is tried again, as all reading is.
    """
    lists = [
        (number, state.head_list)
        for number, state in sorted(book.epochs.items())
        if remembered_from(epoch) <= number < epoch
        and state.head_list is not None
        and state.stage is not Stage.ABANDONED
    ]
    ids = tuple(released.head_list.id for _, released in lists)
    done = context.remembered
    if ids[: len(done.lists)] != done.lists:
        done = Remembered()  # Memory began anew, or an epoch was abandoned after its list.
    current = done.filter
    for number, released in lists[len(done.lists) :]:
        publication = await _publication(context, number, released)
        if publication is None:
            continue
        try:
            current = await asyncio.to_thread(_followed, current, publication)
        except Exception as error:
            log.error("filter_failed", extra={"epoch": epoch}, exc_info=error)
            return None
    context.remembered = Remembered(ids, current)
    return current


async def _publication(
    context: JobContext, epoch: int, released: HeadListRelease
) -> Publication | None:
    """S's counts in one head list; `None` where it has none."""
    data = await context.log.read_document(released.head_list)
    numbers = SelectionNumbers.read(await context.log.read_document(released.optin))
    head_list = HeadListDocument.from_bytes(data).head_list
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


def _followed(memory: RecordFilter, publication: Publication) -> RecordFilter:
    """After one more list. What it lacks was given up, in an epoch with a budget of its own."""
    listed = set(publication.records)
    return memory.without(r for r in memory.records if r not in listed).follow(publication)
