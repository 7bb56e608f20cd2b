"""Detect a release log that was restored from an older copy, before the keeper opens an epoch.

A log restored from a backup lacks epochs that were opened, charged and drawn. Jobs that continue
with it would draw these epochs again, and use a budget period for more epochs than its noise
covers. Published head lists reveal such a log: they are in a separate topic, and Redis lists them.

Promises: no epoch opens while a head list of a later epoch than the log's last is published.
Assumes: the topic of head lists was not restored to the same older state; then only the operator
knows (`blendstream epochs restored`).
"""

from __future__ import annotations

from dataclasses import dataclass

from blendstream.agents.jobs.job_context import JobContext
from blendstream.streams.errors import StoreMismatch
from blendstream.streams.releases.compacted_topics import read_publications
from blendstream.streams.releases.epoch_state import ReleaseLogState
from blendstream.streams.wire.head_list_document import HeadListDocument, MalformedDocument

__all__ = ["OlderLogCheck", "PublishedSince", "published_since"]


class OlderLogCheck:
    """Compares the log with Redis's list on every call, and with the topic once per process."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._read_topic = False

    async def refuse(self, log_state: ReleaseLogState) -> None:
        """Raise `StoreMismatch` if a head list of an epoch after the log's last is published."""
        last, context = log_state.last, self._context
        if last is None:
            return
        topic = context.topics.head_lists.name
        published = set(await context.published_marks(topic).all())
        if not self._read_topic:
            since_ms = last.parameters.window_start_ms
            published |= set(await read_publications(context.settings.kafka, topic, None, since_ms))
            self._read_topic = True
        beyond = sorted(epoch for epoch in published if epoch > last.epoch)
        if beyond:
            self._read_topic = False
            raise StoreMismatch(
                f"the release log must hold every epoch that was published, and ends with epoch "
                f"{last.epoch} while a head list of epoch {beyond[-1]} is published: an older copy "
                "of the log was restored. Restore the newest one, or run `blendstream epochs "
                "restored --reason TEXT`; nothing is opened until then"
            )


@dataclass(frozen=True, slots=True)
class PublishedSince:
    """Traces that epochs missing in a restored log left in the topics of results."""

    #: The highest epoch that is published anywhere or in the log; -1 when there is none.
    through: int
    #: Window lengths in the head lists of the missing epochs.
    windows_ms: frozenset[int]


async def published_since(context: JobContext, log_state: ReleaseLogState) -> PublishedSince:
    """Search the topics of results, and Redis's lists of them, for epochs after the log's last."""
    last, topics = log_state.last, context.topics
    if last is None:
        return PublishedSince(-1, frozenset())
    since_ms = last.parameters.window_start_ms
    epochs, windows_ms = {last.epoch}, set()
    for topic in (topics.head_lists, topics.estimates, topics.click_graphs):
        read = await read_publications(context.settings.kafka, topic.name, None, since_ms)
        epochs |= read.keys() | (await context.published_marks(topic.name).all()).keys()
        if topic is topics.head_lists:
            lists = [data for epoch, data in read.items() if epoch > last.epoch]
            windows_ms = {length for data in lists if (length := _window_ms(data)) is not None}
    return PublishedSince(max(epochs), frozenset(windows_ms))


def _window_ms(head_list: bytes) -> int | None:
    """Return the length of a head list's window, or `None` if the document is unreadable."""
    try:
        document = HeadListDocument.from_bytes(head_list)
    except MalformedDocument:
        return None
    return (document.window_end_s - document.window_start_s) * 1000
