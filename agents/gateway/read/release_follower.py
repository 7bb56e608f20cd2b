"""Follows the release log and keeps the gateway's copy of what was published.

    releases (Kafka) ──▶ entries ──▶ epochs, head lists, pause ──▶ targets to judge by
                     └─▶ parts ────▶ documents ────────────────▶ bytes to serve

Promises: committed entries only, in the log's order, documents whole and checked against their
hash. `read_to_end` returns True only after the log was read to the furthest end that any broker
told when asked, so that what is unknown then is unknown to everyone: a broker that was cut off from
its peers tells an old end. Kafka away leaves the last copy in place. Entries go to
the topics that their epoch was opened with, which are counted, whatever our own settings name.
Assumes: the log was written by this project's jobs (`streams.releases`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from agents.gateway.read.publications import EpochView, PauseView, Publications, PublishedDocument
from agents.gateway.submit.frame_writer import OptinFrames
from agents.gateway.submit.record_submissions import OptinTarget, OptinTargets
from agents.gateway.submit.report_submissions import ReportTarget
from streams.errors import StoreMismatch, StoreUnavailable
from streams.releases import entries
from streams.releases.counted_epochs import Epoch, EpochBook
from streams.releases.documents import DocumentReference, join
from streams.releases.epoch_state import EpochState, ReleaseBook, Stage
from streams.stems import Stem
from streams.stores.epoch_keys import KeyRing
from streams.stores.kafka import KafkaLog
from streams.topics import Topics

__all__ = ["ReleaseFold", "ReleaseReader"]

log = logging.getLogger(__name__)

_POLL_MS = 200
#: Reports that arrive after the seal are late, which the target says by its times.
_REPORTABLE = (Stage.REPORTING, Stage.REPORTS_SEALED)
_AGAIN_AFTER_S = 1.0


class ReleaseFold:
    """Turns the log's records into `Publications`. Pure: no Kafka, no clock."""

    def __init__(
        self,
        publications: Publications,
        *,
        keys: KeyRing,
        topics: Topics,
        history_epochs: int,
    ) -> None:
        self.publications = publications
        self._keys = keys
        self._topics = topics
        self._history = history_epochs
        self._book = ReleaseBook()
        self._shapes = EpochBook()
        self._parts: dict[str, list[bytes]] = {}
        self._from_offset = 0

    def start_at(self, offset: int) -> None:
        """Begin in the middle of the log; what began before is not known here."""
        self._from_offset = offset
        self._book = ReleaseBook(from_offset=offset)

    def apply(self, offset: int, time_ms: int, key: bytes | None, value: bytes | None) -> None:
        """Take in one committed record."""
        if key is None or value is None or offset < self._book.read_upto:
            return
        self._book.apply(offset, time_ms, key, value)
        self._shapes.apply_message(key, value)
        if key.startswith(entries.PART_PREFIX):
            _, document_id, number = key.decode().split(" ")
            # Jobs write side by side, so parts of several documents may be under way at once. One
            # whose first part lies before our start stays unknown.
            if number == "0":
                self._parts[document_id] = []
            if document_id in self._parts:
                self._parts[document_id].append(value)
        for entry in entries.of_record(key, value):
            for described in entry.get("documents", ()):
                reference = DocumentReference.from_json(described, offset, offset)
                parts = self._parts.pop(reference.id, None)
                if parts is not None or self._from_offset == 0:
                    self._take_document(int(entry["epoch"]), reference, parts or [])

    def _take_document(self, epoch: int, reference: DocumentReference, parts: list[bytes]) -> None:
        """Keep a document if the book holds it as a release of its epoch.

        A job may commit after its epoch was given up, or a click graph after the head list: the
        book passes that over, no job writes it to its topic, and nobody may see it here either.
        """
        state = self._book.epochs.get(epoch)
        if state is None:
            return
        held, kept = self.publications, self._history
        if state.head_list is not None and reference.id == state.head_list.head_list.id:
            _keep(held.head_lists, reference.id, epoch, reference, parts, kept)
        elif state.estimates is not None and reference.id == state.estimates.document.id:
            _keep(held.estimates, epoch, epoch, reference, parts, kept)
        elif state.click_graph is not None and reference.id == state.click_graph.document.id:
            _keep(held.click_graphs, epoch, epoch, reference, parts, kept)

    def publish(self) -> None:
        """Make what was taken in visible to the handlers, all at once."""
        held, book = self.publications, self._book
        held.epochs = {number: _view(state) for number, state in book.epochs.items()}
        reporting = [s for s in book.epochs.values() if s.stage in _REPORTABLE]
        held.current_head_list = self._current_head_list(reporting)
        held.report_targets = self._report_targets(reporting)
        held.past_head_lists = frozenset(held.head_lists) - held.report_targets.keys()
        held.optin_targets = self._optin_targets()
        held.last_pause = None
        if (pause := book.paused) is not None:
            held.last_pause = PauseView(
                pause.from_ms // 1000, pause.resumes_at_ms // 1000, pause.reason
            )

    def _current_head_list(self, reporting: list[EpochState]) -> str | None:
        """The newest list that is reported on; when there is none, the newest whose time is over.

        Not one whose epoch ended before that (given up, or nothing listed): a device would take it
        for open and spend its budget on a report that is refused.
        """
        newest = max(reporting, key=lambda s: s.epoch, default=None)
        if newest is not None and newest.head_list is not None:
            return newest.head_list.head_list.id
        cut_short = {
            state.epoch
            for state in self._book.epochs.values()
            if state.head_list is not None
            and state.over_at_ms is not None
            and state.over_at_ms < state.head_list.reports_until_ms
        }
        past = [d for d in self.publications.head_lists.values() if d.epoch not in cut_short]
        return max(past, key=lambda document: document.epoch).id if past else None

    def _report_targets(self, reporting: list[EpochState]) -> dict[str, ReportTarget]:
        """Targets are kept as they are: frames being filled are found by them."""
        targets = {}
        for state in reporting:
            assert state.head_list is not None
            head_list_id = state.head_list.head_list.id
            kept = self.publications.report_targets.get(head_list_id)
            shape = self._shapes.head_list(bytes.fromhex(head_list_id))
            late_from_ms = self._counted(state.epoch).late_from_ms(Stem.CLIENT_REPORTS)
            plan = state.parameters.plan
            if kept is None and shape is not None and late_from_ms is not None:
                kept = ReportTarget(
                    head_list_id=head_list_id,
                    epoch=state.epoch,
                    keys=self._keys.epoch(plan.key_id, state.epoch),
                    topic=self._topics.name(Stem.CLIENT_REPORTS, plan.topic_version),
                    partitions=plan.report_partitions,
                    cells=shape.cells,
                    cells_per_answer=shape.cells_per_answer,
                    answers=shape.answers,
                    wildcard_alone=shape.wildcard_alone,
                    late_from_ms=late_from_ms,
                    log_position=state.head_list.head_list.entry_offset + 1,
                )
            if kept is not None:
                targets[head_list_id] = kept
        return targets

    def _optin_targets(self) -> OptinTargets:
        before = self.publications.optin_targets
        targets = []
        for state in self._book.epochs.values():
            if state.stage is not Stage.COLLECTING:
                continue
            parameters, plan = state.parameters, state.parameters.plan
            if plan.cohorts > 1 and plan.cohort_id and plan.cohort_id not in self._keys:
                raise LookupError(
                    f"epoch {state.epoch} has its cohorts by master secret {plan.cohort_id!r}, "
                    "which this process does not have; add it to the settings and start again"
                )
            epoch = self._counted(state.epoch)
            late_from_ms = epoch.late_from_ms(Stem.OPTIN_RECORDS)
            assert late_from_ms is not None, "records are late from their window's end on"
            targets.append(
                before.get(state.epoch)
                or OptinTarget(
                    epoch=state.epoch,
                    keys=self._keys.epoch(plan.key_id, state.epoch),
                    frames=OptinFrames(
                        self._topics.name(Stem.OPTIN_RECORDS, plan.topic_version),
                        state.epoch,
                        log_position=state.opened_offset + 1,
                    ),
                    partitions=plan.optin_partitions,
                    records_per_user=plan.privacy.records_per_optin_user,
                    cohorts=plan.cohorts,
                    cohort_id=plan.cohort_id,
                    user_id_spaces=plan.user_id_spaces,
                    window_start_ms=parameters.window_start_ms,
                    window_end_ms=parameters.window_end_ms,
                    early_before_ms=epoch.early_before_ms(Stem.OPTIN_RECORDS),
                    late_from_ms=late_from_ms,
                )
            )
        return OptinTargets(targets)

    def _counted(self, number: int) -> Epoch:
        """The epoch as the counters see it: by its times they judge what was accepted here."""
        epoch = self._shapes.epoch(number)
        assert epoch is not None, "both books hold every epoch that was opened"
        return epoch


def _keep(
    documents: dict[Any, PublishedDocument],
    name: Any,
    epoch: int,
    reference: DocumentReference,
    parts: list[bytes],
    kept: int,
) -> None:
    """Add a document, unless one of its name was released before: the first counts."""
    if name not in documents:
        documents[name] = PublishedDocument(epoch, reference.id, join(reference, parts))
    while len(documents) > kept:
        oldest = min(documents, key=lambda name: documents[name].epoch)
        del documents[oldest]


def _view(state: EpochState) -> EpochView:
    parameters, plan = state.parameters, state.parameters.plan
    head_list, estimates = state.head_list, state.estimates
    return EpochView(
        epoch=state.epoch,
        state=state.stage.value,
        window_start_s=parameters.window_start_ms // 1000,
        window_end_s=parameters.window_end_ms // 1000,
        optin_until_s=(parameters.window_end_ms + plan.grace_ms) // 1000,
        records_per_user=plan.privacy.records_per_optin_user,
        cohorts=plan.cohorts,
        head_list=None if head_list is None else head_list.head_list.id,
        reports_until_s=None if head_list is None else head_list.reports_until_ms // 1000,
        outcome=None if estimates is None else estimates.outcome.value,
        reasons=() if estimates is None else tuple(reason.value for reason in estimates.reasons),
        abandoned=state.abandoned,
    )


class ReleaseReader:
    """The background task that follows the log."""

    def __init__(
        self,
        make: Callable[[], AIOKafkaConsumer],
        fold: ReleaseFold,
        kafka: KafkaLog,
        topic: str,
        *,
        patience_s: float,
        since_s: float = 0.0,
    ) -> None:
        """`make` builds a consumer of committed records that belongs to no group.

        Reading begins with what was appended at `since_s`, so that the log's age costs nothing.
        """
        self._make = make
        self._fold = fold
        self._kafka = kafka
        self._place = TopicPartition(topic, 0)
        self._patience_s = patience_s
        self._since_ms = round(since_s * 1000)
        self._position: int | None = None
        self._moved = asyncio.Event()
        #: The end could not be reached: its broker may have been cut off.
        self._reopen = False
        self._checking = asyncio.Lock()
        self._next_check: dict[bool, asyncio.Task[bool]] = {}
        self.failure: str | None = None
        self.answered_at = 0.0
        fold.publications.read_to_end = partial(self.read_to_end, furthest=True)

    async def run(self) -> None:
        """For ever: follow the log, and begin again where it stopped when Kafka was away."""
        while True:
            try:
                await self._follow()
            except (KafkaError, StoreUnavailable, OSError) as error:
                log.warning("release_log_interrupted", exc_info=error)
            except (StoreMismatch, LookupError, ValueError) as error:
                # Going on would serve half of what was published.
                self.failure = str(error)
                log.error("release_log_refused", exc_info=error)
                return
            except Exception as error:
                # A task that ends unseen would leave the gateway ready, with what it last read.
                self.failure = (
                    "the release log is no longer read, because of an error in the gateway "
                    f"({type(error).__name__}); see its log, and restart it"
                )
                log.error("release_log_failed", exc_info=error)
                return
            await asyncio.sleep(_AGAIN_AFTER_S)

    async def _follow(self) -> None:
        consumer = self._make()
        try:
            await consumer.start()
            consumer.assign([self._place])
            if self._position is None:
                self._position = await self._first_offset(consumer)
                self._fold.start_at(self._position)
            consumer.seek(self._place, self._position)
            self._reopen = False
            while not self._reopen:
                batches = await consumer.getmany(timeout_ms=_POLL_MS)
                for record in batches.get(self._place, ()):
                    self._fold.apply(record.offset, record.timestamp, record.key, record.value)
                if batches:
                    self._fold.publish()
                # Also moves over the marks that transactions leave, which are no records.
                position = await consumer.position(self._place)
                if position != self._position:
                    self._position = position
                    self._moved.set()
                    self._moved.clear()
        finally:
            with contextlib.suppress(Exception):
                await consumer.stop()

    async def _first_offset(self, consumer: AIOKafkaConsumer) -> int:
        if self._since_ms <= 0:
            return 0
        found = await consumer.offsets_for_times({self._place: self._since_ms})
        first = found[self._place]
        return 0 if first is None else int(first.offset)

    async def read_to_end(self, *, furthest: bool = False) -> bool:
        """Whether the log was read to the end it has now, within the patience for it.

        `furthest`: the end that the best informed broker tells, not just any; that costs more.
        Those who ask while a check is waiting for its turn share it: it asks for the end after
        they did. So strangers who invent head-list ids cost one question at a time.
        """
        check = self._next_check.get(furthest)
        if check is None:
            check = self._next_check[furthest] = asyncio.create_task(self._check(furthest))
        return await asyncio.shield(check)

    async def _check(self, furthest: bool) -> bool:
        async with self._checking:
            del self._next_check[furthest]
            end = None
            try:
                async with asyncio.timeout(self._patience_s):
                    end = await self._end(furthest)
                    self.answered_at = time.monotonic()
                    while (self._position or 0) < end:
                        await self._moved.wait()
            except (StoreUnavailable, TimeoutError):
                # There is more than its broker gives it: another consumer may find another broker.
                self._reopen = end is not None
                return False
            return True

    async def _end(self, furthest: bool) -> int:
        topic, partition = self._place
        if furthest:
            return await self._kafka.furthest_end(topic, partition)
        return (await self._kafka.ends(topic, [partition]))[partition]
