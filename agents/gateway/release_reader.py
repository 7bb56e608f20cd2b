"""Follows the release log and keeps the gateway's copy of what was published.

    releases (Kafka) ──▶ entries ──▶ epochs, head lists, pause ──▶ targets to judge by
                     └─▶ parts ────▶ documents ────────────────▶ bytes to serve

Promises: committed entries only, in the log's order, documents whole and checked against their
hash. `read_to_end` returns True only after the log was read to the end it had when asked, so that
what is unknown then is unknown to everyone. Kafka away leaves the last copy in place.
Assumes: the log was written by this project's jobs (`streams.releases`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from agents.gateway.frame_writer import OptinFrames
from agents.gateway.optin_records import OptinTarget, OptinTargets
from agents.gateway.publications import Document, EpochView, Paused, Publications
from agents.gateway.reports import ReportTarget
from streams.epochs import EpochBook, Stem
from streams.errors import StoreMismatch, StoreUnavailable
from streams.kafka import KafkaLog
from streams.keys import KeyRing
from streams.releases import entries
from streams.releases.book import EpochState, ReleaseBook, Stage
from streams.releases.documents import DocumentReference, join
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
        from_offset: int = 0,
    ) -> None:
        self.publications = publications
        self._keys = keys
        self._topics = topics
        self._history = history_epochs
        self._book = ReleaseBook(from_offset=from_offset)
        self._shapes = EpochBook()
        self._parts: dict[str, list[bytes]] = {}

    def apply(self, offset: int, time_ms: int, key: bytes | None, value: bytes | None) -> None:
        """Take in one committed record."""
        if key is None or value is None or offset < self._book.read_upto:
            return
        self._book.apply(offset, time_ms, key, value)
        self._shapes.apply_message(key, value)
        if key.startswith(entries.PART_PREFIX):
            self._parts.setdefault(key.split(b" ")[1].decode(), []).append(value)
        elif key == entries.ENTRY_KEY:
            entry = entries.decode(value) or {}
            for described in entry.get("documents", ()):
                self._take_document(entry, described, offset)
            # Parts travel in the transaction of the entry that names them; what is left over
            # belongs to nobody.
            self._parts.clear()

    def _take_document(
        self, entry: Mapping[str, Any], described: Mapping[str, Any], offset: int
    ) -> None:
        name, epoch = entry["entry"], int(entry["epoch"])
        reference = DocumentReference.from_json(described, offset, offset)
        held = self.publications
        if name == "head_list_released" and reference.id == entry["head_list_id"]:
            held.head_lists[reference.id] = self._document(epoch, reference)
            _forget(held.head_lists, self._history)
        elif name == "estimate_released" and epoch not in held.estimates:
            held.estimates[epoch] = self._document(epoch, reference)
            _forget(held.estimates, self._history)
        elif name == "click_graph_released" and epoch not in held.click_graphs:
            held.click_graphs[epoch] = self._document(epoch, reference)
            _forget(held.click_graphs, self._history)

    def _document(self, epoch: int, reference: DocumentReference) -> Document:
        return Document(epoch, reference.id, join(reference, self._parts.get(reference.id, [])))

    def publish(self) -> None:
        """Make what was taken in visible to the handlers, all at once."""
        held, book = self.publications, self._book
        held.epochs = {number: _view(state) for number, state in book.epochs.items()}
        reporting = [s for s in book.epochs.values() if s.stage in _REPORTABLE]
        newest = max(reporting, key=lambda s: s.epoch, default=None)
        if newest is not None and newest.head_list is not None:
            held.current_head_list = newest.head_list.head_list.id
        elif held.head_lists:
            held.current_head_list = max(held.head_lists.values(), key=lambda d: d.epoch).id
        held.report_targets = self._report_targets(reporting)
        held.past_head_lists = frozenset(held.head_lists) - held.report_targets.keys()
        held.optin_targets = self._optin_targets()
        held.last_pause = None
        if (pause := book.paused) is not None:
            held.last_pause = Paused(
                pause.from_ms // 1000, pause.resumes_at_ms // 1000, pause.reason
            )

    def _report_targets(self, reporting: list[EpochState]) -> dict[str, ReportTarget]:
        """Targets are kept as they are: frames being filled are found by them."""
        targets = {}
        for state in reporting:
            assert state.head_list is not None
            head_list_id = state.head_list.head_list.id
            kept = self.publications.report_targets.get(head_list_id)
            shape = self._shapes.head_list(bytes.fromhex(head_list_id))
            plan = state.parameters.plan
            if kept is None and shape is not None:
                kept = ReportTarget(
                    head_list_id=head_list_id,
                    epoch=state.epoch,
                    keys=self._keys.epoch(plan.key_id, state.epoch),
                    topic=self._topics.of(Stem.CLIENT_REPORTS).name,
                    partitions=plan.report_partitions,
                    cells=shape.cells,
                    cells_per_answer=shape.cells_per_answer,
                    answers=shape.answers,
                    late_from_ms=shape.reports_until_ms + plan.grace_ms,
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
            targets.append(
                before.get(state.epoch)
                or OptinTarget(
                    epoch=state.epoch,
                    keys=self._keys.epoch(plan.key_id, state.epoch),
                    frames=OptinFrames(self._topics.of(Stem.OPTIN_RECORDS).name, state.epoch),
                    partitions=plan.optin_partitions,
                    records_per_user=plan.privacy.records_per_optin_user,
                    cohorts=plan.cohorts,
                    window_start_ms=parameters.window_start_ms,
                    window_end_ms=parameters.window_end_ms,
                    late_from_ms=parameters.window_end_ms + plan.grace_ms,
                )
            )
        return OptinTargets(targets)


def _forget(documents: dict[Any, Document], keep: int) -> None:
    while len(documents) > keep:
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
    ) -> None:
        """`make` builds a consumer of committed records that belongs to no group."""
        self._make = make
        self._fold = fold
        self._kafka = kafka
        self._place = TopicPartition(topic, 0)
        self._patience_s = patience_s
        self._position = 0
        self._moved = asyncio.Event()
        self._checking = asyncio.Lock()
        self._next_check: asyncio.Task[bool] | None = None
        self.failure: str | None = None
        self.answered_at = 0.0
        fold.publications.read_to_end = self.read_to_end

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
            await asyncio.sleep(_AGAIN_AFTER_S)

    async def _follow(self) -> None:
        consumer = self._make()
        try:
            await consumer.start()
            consumer.assign([self._place])
            consumer.seek(self._place, self._position)
            while True:
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

    async def read_to_end(self) -> bool:
        """Whether the log was read to the end it has now, within the patience for it.

        Those who ask while a check is waiting for its turn share it: it asks for the end after
        they did. So strangers who invent head-list ids cost one question at a time.
        """
        if self._next_check is None:
            self._next_check = asyncio.create_task(self._check())
        return await asyncio.shield(self._next_check)

    async def _check(self) -> bool:
        async with self._checking:
            self._next_check = None
            try:
                async with asyncio.timeout(self._patience_s):
                    ends = await self._kafka.ends(self._place.topic, [self._place.partition])
                    self.answered_at = time.monotonic()
                    while self._position < ends[self._place.partition]:
                        await self._moved.wait()
            except (StoreUnavailable, TimeoutError):
                return False
            return True
