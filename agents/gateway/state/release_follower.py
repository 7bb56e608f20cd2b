"""Follow the release log and update the gateway's copy of the publications.

    releases (Kafka) ──▶ entries ──▶ epochs, head lists, pause ──▶ targets to validate with
                     └─▶ parts ────▶ documents ────────────────▶ bytes to serve

Promises:
- Only committed entries are used, in the log's order (`streams.releases.reader`), and only complete
  documents that match their hash.
- An isolated broker reports an old end. So `read_to_end` with `furthest` returns True only after
  reading to the highest end that any broker reported. A head list still unknown then does not
  exist.
- While Kafka is unavailable the last copy stays in use.
- Entries go to the topics that their epoch was opened with, because the workers count those, even
  if this gateway's settings name others.
Assumes: the log was written by this project's jobs (`streams.releases`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from confluent_kafka import KafkaException

from blendstream.agents.gateway.state.frame_writer import OptinFrames
from blendstream.agents.gateway.state.publications import (
    Publications,
    PublishedDocument,
    newest_with_rows,
)
from blendstream.agents.gateway.state.submission_targets import (
    OptinTarget,
    OptinTargets,
    ReportTarget,
)
from blendstream.streams.epoch_keys import KeyRing
from blendstream.streams.errors import StoreMismatch, StoreUnavailable
from blendstream.streams.kafka.kafka_clients import KafkaInspector
from blendstream.streams.kafka.topics import Topics
from blendstream.streams.names import InputStream
from blendstream.streams.releases import entries
from blendstream.streams.releases.documents import DocumentReference, join
from blendstream.streams.releases.entries import EpochOutcome
from blendstream.streams.releases.epoch_state import EpochState, ReleaseLogState, Stage
from blendstream.streams.releases.epoch_view import EpochView
from blendstream.streams.releases.log_consumer import LogRecord
from blendstream.streams.releases.reader import LogFollower
from blendstream.streams.settings.sections import KafkaSettings

__all__ = ["ReleaseFold", "ReleaseFollower"]

log = logging.getLogger(__name__)

#: Sealed lists included: reports after the seal get the verdict late, by their target's times.
_REPORTABLE = (Stage.REPORTING, Stage.REPORTS_SEALED)
_AGAIN_AFTER_S = 1.0


@dataclass(eq=False)
class ReleaseFold:
    """Builds `Publications` from the log state and its documents. Pure: no Kafka, no clock."""

    publications: Publications
    keys: KeyRing
    topics: Topics
    history_epochs: int
    #: True if this gateway has a hook that admits reports.
    admission: bool = False
    _parts: dict[str, list[bytes]] = field(default_factory=dict)

    def take(self, log_state: ReleaseLogState, record: LogRecord) -> None:
        """Store the documents of one record, which `log_state` has just folded."""
        key, value = record.key, record.value
        if key is None or value is None:
            return
        if key.startswith(entries.PART_PREFIX):
            _, document_id, number = key.decode().split(" ")
            # Jobs write concurrently, so parts of several documents may interleave. A document is
            # ignored if its first part precedes our start.
            if number == "0":
                self._parts[document_id] = []
            if document_id in self._parts:
                self._parts[document_id].append(value)
        for entry in entries.of_record(key, value):
            for described in entry.get("documents", ()):
                reference = DocumentReference.from_json(described, record.offset, record.offset)
                parts = self._parts.pop(reference.id, None)
                state = log_state.epochs.get(int(entry["epoch"]))
                if state is not None and (parts is not None or log_state.from_offset == 0):
                    self._take_document(state, reference, parts or [])

    def _take_document(
        self, state: EpochState, reference: DocumentReference, parts: list[bytes]
    ) -> None:
        """Store a document if the log state has it as a release of its epoch.

        A job may commit a release after its epoch was abandoned, or a click graph after the head
        list. The log state ignores it and no job publishes it, so the gateway must not serve it.
        """
        published, epoch, kept = self.publications, state.epoch, self.history_epochs
        if state.head_list is not None and reference.id == state.head_list.head_list.id:
            _keep(published.head_lists, reference.id, epoch, reference, parts, kept)
        elif state.estimates is not None and reference.id == state.estimates.document.id:
            empty = state.estimates.outcome is EpochOutcome.EMPTY
            _keep(published.estimates, epoch, epoch, reference, parts, kept, empty=empty)
        elif state.click_graph is not None and reference.id == state.click_graph.document.id:
            _keep(published.click_graphs, epoch, epoch, reference, parts, kept)

    def publish(self, log_state: ReleaseLogState) -> None:
        """Show the handlers all log records folded so far, in one step."""
        published = self.publications
        published.epochs = {
            number: EpochView.of(state) for number, state in log_state.epochs.items()
        }
        reporting = [s for s in log_state.epochs.values() if s.stage in _REPORTABLE]
        published.current_head_list = self._current_head_list(log_state, reporting)
        published.report_targets = self._report_targets(reporting)
        reportable = published.report_targets.keys()
        published.past_head_lists = frozenset(published.head_lists) - reportable
        published.optin_targets = self._optin_targets(log_state)
        published.last_pause = log_state.paused

    def _current_head_list(
        self, log_state: ReleaseLogState, reporting: list[EpochState]
    ) -> str | None:
        """Return the newest list that accepts reports, or else the newest that no longer does.

        A list whose epoch ended early (abandoned, or nothing listed) is skipped: its stated time
        for reports may not have passed, so a device would spend budget on a refused report.
        """
        newest = max(reporting, key=lambda s: s.epoch, default=None)
        if newest is not None and newest.head_list is not None:
            return newest.head_list.head_list.id
        cut_short = {
            state.epoch
            for state in log_state.epochs.values()
            if state.head_list is not None
            and state.over_at_ms is not None
            and state.over_at_ms < state.head_list.reports_until_ms
        }
        past = [d for d in self.publications.head_lists.values() if d.epoch not in cut_short]
        return max(past, key=lambda document: document.epoch).id if past else None

    def _report_targets(self, reporting: list[EpochState]) -> dict[str, ReportTarget]:
        """Return a target per head list; existing targets are reused, as keys of open frames."""
        targets = {}
        for state in reporting:
            released, late_from_ms = state.head_list, state.late_from_ms(InputStream.CLIENT_REPORTS)
            assert released is not None
            assert late_from_ms is not None
            head_list_id, plan = released.head_list.id, state.parameters.plan
            kept = self.publications.report_targets.get(head_list_id)
            targets[head_list_id] = kept or ReportTarget(
                head_list_id=head_list_id,
                epoch=state.epoch,
                keys=self.keys.epoch(plan.key_id, state.epoch),
                topic=self.topics.name(InputStream.CLIENT_REPORTS, plan.topic_version),
                partitions=plan.report_partitions,
                cells=released.cells,
                cells_per_answer=released.cells_per_answer,
                answers=released.answers,
                wildcard_alone=released.wildcard_alone,
                late_from_ms=late_from_ms,
                log_position=released.head_list.entry_offset + 1,
                admitted=self.admission or not plan.devices_admitted,
            )
        return targets

    def _optin_targets(self, log_state: ReleaseLogState) -> OptinTargets:
        before = self.publications.optin_targets
        targets = []
        for state in log_state.epochs.values():
            if state.stage is not Stage.COLLECTING:
                continue
            parameters, plan = state.parameters, state.parameters.plan
            cohorts = parameters.charge.cohorts_of("optin")
            if cohorts > 1 and plan.cohort_id and plan.cohort_id not in self.keys:
                raise LookupError(
                    f"epoch {state.epoch} assigns cohorts by master secret {plan.cohort_id!r}, "
                    "which this process does not have; add it to the settings and start again"
                )
            late_from_ms = state.late_from_ms(InputStream.OPTIN_RECORDS)
            assert late_from_ms is not None, "records are late from their window's end on"
            targets.append(
                before.get(state.epoch)
                or OptinTarget(
                    epoch=state.epoch,
                    keys=self.keys.epoch(plan.key_id, state.epoch),
                    frames=OptinFrames(
                        self.topics.name(InputStream.OPTIN_RECORDS, plan.topic_version),
                        state.epoch,
                        log_position=state.opened_offset + 1,
                    ),
                    partitions=plan.optin_partitions,
                    records_per_user=plan.privacy.records_per_optin_user,
                    cohorts=cohorts,
                    cohort_id=plan.cohort_id,
                    user_id_spaces=plan.user_id_spaces,
                    window_start_ms=parameters.window_start_ms,
                    window_end_ms=parameters.window_end_ms,
                    early_before_ms=state.early_before_ms(InputStream.OPTIN_RECORDS),
                    late_from_ms=late_from_ms,
                    shares=None
                    if parameters.period is None
                    else self.keys.period_subgroups(parameters.period),
                )
            )
        return OptinTargets(targets)


def _keep(
    documents: dict[Any, PublishedDocument],
    name: Any,
    epoch: int,
    reference: DocumentReference,
    parts: list[bytes],
    kept: int,
    *,
    empty: bool = False,
) -> None:
    """Add a document unless one of its name exists: the first release counts.

    Of more than `kept` documents, remove the oldest, but never the newest that has rows.
    """
    if name not in documents:
        body = join(reference, parts)
        documents[name] = PublishedDocument(epoch, reference.id, body, empty=empty)
    while len(documents) > kept:
        newest = newest_with_rows(documents.values())
        removable = [name for name, document in documents.items() if document is not newest]
        del documents[min(removable, key=lambda name: documents[name].epoch)]


class ReleaseFollower:
    """Background task that follows the release log."""

    def __init__(
        self,
        settings: KafkaSettings,
        fold: ReleaseFold,
        kafka: KafkaInspector,
        topic: str,
        *,
        patience_s: float,
        since_s: float = 0.0,
    ) -> None:
        """Start reading at entries appended at `since_s`, so the log's age costs nothing."""
        since_ms = round(since_s * 1000)
        self._log = LogFollower(settings, kafka, topic, since_ms=since_ms, listener=fold)
        self._patience_s = patience_s
        self._checking = asyncio.Lock()
        self._next_check: dict[bool, asyncio.Task[bool]] = {}
        self.failure: str | None = None
        self.answered_at = 0.0
        fold.publications.read_to_end = partial(self.read_to_end, furthest=True)

    async def run(self) -> None:
        """Follow the log until cancelled or `failure` is set; resume after outages of Kafka."""
        try:
            while self.failure is None:
                await self._follow()
        finally:
            await self._log.close()

    async def _follow(self) -> None:
        try:
            await self._log.step()
        except (KafkaException, StoreUnavailable, OSError) as error:
            log.warning("release_log_interrupted", exc_info=error)
            await asyncio.sleep(_AGAIN_AFTER_S)
        except (StoreMismatch, LookupError, ValueError) as error:
            # Continuing would serve some publications without the others.
            self.failure = str(error)
            log.error("release_log_refused", exc_info=error)
        except Exception as error:
            # If this task ended silently, the gateway would stay ready with an old copy.
            self.failure = (
                "the release log is no longer read, because of an error in the gateway "
                f"({type(error).__name__}); see its log, and restart it"
            )
            log.error("release_log_failed", exc_info=error)

    async def read_to_end(self, *, furthest: bool = False) -> bool:
        """Return True if the log was read to its current end in time.

        `furthest`: to the highest end that any broker reports, which costs more requests. Callers
        share a check that has not started yet, so submissions with invented head-list ids cause
        one check at a time.
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
                    end = await self._log.end(furthest=furthest)
                    self.answered_at = time.monotonic()
                    await self._log.reached(end)
            except (StoreUnavailable, TimeoutError):
                if end is not None:
                    # The consumer's broker may lag behind: a new consumer may use another one.
                    await self._log.reopen()
                return False
            return True
