"""What earlier publications said: the filter before an epoch, from committed documents.

Promises: made of the head lists and estimates in the release log, which are the published ones,
from `remembered_from` on. A process that was just started reads up to 31 epochs, one that runs the
last one.
"""

from __future__ import annotations

import asyncio
import logging

from agents.jobs.job_context import Followed, JobContext
from blender.publication_filter import remembered_from
from streams.releases.epoch_state import ReleaseBook, Stage
from streams.releases.filtered_estimates import (
    FilterMemory,
    publication_of,
    rotates,
    with_filtered,
)
from streams.wire.estimates_document import EstimatesDocument
from streams.wire.head_list_document import HeadListDocument

__all__ = ["add_filtered", "filter_memory"]

log = logging.getLogger(__name__)


async def filter_memory(context: JobContext, book: ReleaseBook, epoch: int) -> FilterMemory | None:
    """The filter after every publication before this epoch that it remembers; `None` if it fails.

    A document that cannot be read is another matter: that is tried again, as all reading is.
    """
    published = [
        (state.head_list.head_list, state.estimates.document)
        for number, state in sorted(book.epochs.items())
        if remembered_from(epoch) <= number < epoch
        and state.stage is Stage.PUBLISHED
        and state.head_list is not None
        and state.estimates is not None
    ]
    ids = tuple(estimates.id for _, estimates in published)
    done = context.followed
    if ids[: len(done.documents)] != done.documents:
        done = Followed()  # Memory began anew.
    memory = done.memory
    for head_list, estimates in published[len(done.documents) :]:
        data = [await context.log.read_document(each) for each in (head_list, estimates)]
        try:
            memory = await asyncio.to_thread(_followed, memory, *data)
        except Exception as error:
            log.error("filter_failed", extra={"epoch": epoch}, exc_info=error)
            return None
    context.followed = Followed(ids, memory)
    return memory


def _followed(memory: FilterMemory, head_list: bytes, estimates: bytes) -> FilterMemory:
    document = EstimatesDocument.from_bytes(estimates)
    publication = publication_of(HeadListDocument.from_bytes(head_list), document)
    if publication is None:
        return memory
    return memory.follow(publication, clients_rotate=rotates(document))


def add_filtered(
    document: EstimatesDocument, head_list: HeadListDocument, memory: FilterMemory | None
) -> EstimatesDocument:
    """The publication with the filtered estimate; without it if the filter fails.

    An epoch's own estimate must not be lost for what is only put beside it.
    """
    if memory is None:
        return document
    try:
        return with_filtered(document, head_list, memory)
    except Exception as error:
        log.error("filter_failed", extra={"epoch": document.epoch}, exc_info=error)
        return document
