"""A release log in memory, folded as a gateway folds it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from blendstream.agents.gateway.state.publications import Publications
from blendstream.agents.gateway.state.release_follower import ReleaseFold
from blendstream.streams.epoch_keys import KeyRing
from blendstream.streams.kafka.topics import Topics
from blendstream.streams.releases import entries
from blendstream.streams.releases.documents import StoredDocument, split
from blendstream.streams.releases.entries import EpochOutcome
from blendstream.streams.releases.epoch_state import ReleaseLogState
from blendstream.streams.releases.log_consumer import LogRecord
from blendstream.streams.settings import Settings
from tests.service.settings import MASTER, service_values
from tests.service.written_log import InventedReleases, head_list_document

NOW_MS = int(time.time()) * 1000


class Log(InventedReleases):
    """Hands records to a fold as the reader does."""

    def __init__(self, **options: Any) -> None:
        super().__init__(partitions=4)
        self.publications = Publications()
        self.fold = ReleaseFold(
            self.publications,
            topics=Topics(Settings.from_values(service_values())),
            **{"history_epochs": 5, "keys": KeyRing({"k1": MASTER})} | options,
        )
        self.log_state = ReleaseLogState()
        self.offset = 0

    def commit(self, entry: Mapping[str, Any], *documents: StoredDocument) -> None:
        super().commit(entry, *documents)
        self.fold.publish(self.log_state)

    def _write(self, key: bytes, value: bytes) -> None:
        record = LogRecord(self.offset, NOW_MS, key, value)
        self.log_state.apply(*record)
        self.fold.take(self.log_state, record)
        self.offset += 1

    def open_epoch(self, epoch: int, start_ms: int = NOW_MS - 60_000, **changes: Any) -> None:
        super().open_epoch(epoch, start_ms=start_ms, **changes)

    def release_head_list(
        self,
        epoch: int,
        *,
        cells_per_answer: int = 1,
        reports_until_ms: int = NOW_MS + 1_000_000,
    ) -> StoredDocument:
        """Seal the records and publish an invented list."""
        self.seal_records(epoch)
        return self.publish_head_list(
            head_list_document(epoch),
            cells_per_answer=cells_per_answer,
            reports_until_ms=reports_until_ms,
        )

    def publish_nothing(self, epoch: int) -> None:
        """The epoch has too few people: no head list, and a publication without rows."""
        self.open_epoch(epoch)
        self.seal_records(epoch)
        self.publish_estimates(epoch, b'{"epoch":%d}' % epoch, EpochOutcome.EMPTY)

    def publish_click_graph(self, epoch: int) -> None:
        stored = split("click-graph", b'{"graph":%d}' % epoch)
        self.commit(entries.click_graph_released(epoch, stored, EpochOutcome.COMPLETE, []), stored)
