"""The release log as jobs write it, written by a test: epochs, head lists, publications."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Producer

from blendstream.blender.registry import randomizer_for
from blendstream.blender.values.cells import HeadList, RandomizerSpec
from blendstream.blender.values.parameters import PrivacyParameters
from blendstream.blender.values.record import Record
from blendstream.streams.budget.epoch_plan import EpochParameters, EpochPlan
from blendstream.streams.budget.ledger import Cost, EpochCharge
from blendstream.streams.releases import entries
from blendstream.streams.releases.documents import StoredDocument, split
from blendstream.streams.releases.entries import EpochOutcome
from blendstream.streams.wire.head_list_document import HeadListDocument
from tests.head_lists import QUANTITY, stating_width


def plan(*, partitions: int = 4, window_ms: int = 3_600_000, **changes: Any) -> EpochPlan:
    """Return the parameters of an opened epoch."""
    privacy = PrivacyParameters(records_per_optin_user=changes.pop("records_per_user", 1))
    fields: dict[str, Any] = {
        "window_ms": window_ms,
        "grace_ms": 60_000,
        "skew_ms": 5_000,
        "privacy": privacy,
        "profile": "sharp",
        "cohorts": 1,
        "key_id": "k1",
        "optin_partitions": partitions,
        "report_partitions": partitions,
    }
    return EpochPlan(**fields | changes)


def opened(epoch: int, start_ms: int, of: EpochPlan) -> dict[str, Any]:
    """The entry that opens an epoch."""
    cost = Cost(4.0, 1e-5)
    charge = EpochCharge(epoch, start_ms // 1000, of.cohorts, 0, 2**40, cost, cost)
    return entries.epoch_opened(
        EpochParameters(epoch, start_ms, start_ms + of.window_ms, of, charge)
    )


def head_list_document(
    epoch: int,
    *,
    records: int = 50,
    randomizer: RandomizerSpec | None = None,
    wildcards: bool = False,
) -> HeadListDocument:
    """A head list of invented records."""
    now_s = int(time.time())
    return HeadListDocument(
        epoch=epoch,
        window_start_s=now_s - 3600,
        window_end_s=now_s,
        reports_until_s=now_s + 3600,
        head_list=stating_width(
            HeadList(
                tuple(Record(f"query {i}", f"https://r{i}.example/") for i in range(records)),
                listed=records,
                randomizer=randomizer or RandomizerSpec("randomized-response", 4.0),
                query_wildcards=wildcards,
            )
        ),
        quantity=QUANTITY,
    )


class InventedReleases:
    """Entries as jobs commit them, invented by a test; `commit` writes them."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions

    def commit(self, entry: Mapping[str, Any], *documents: StoredDocument) -> None:
        """The documents' parts, then the entry."""
        for document in documents:
            for number, part in enumerate(document.parts):
                self._write(entries.part_key(document.id, number), part)
        self._write(entries.ENTRY_KEY, entries.encode([entry]))

    def _write(self, key: bytes, value: bytes) -> None:
        raise NotImplementedError

    def open_epoch(self, epoch: int, *, start_ms: int | None = None, **changes: Any) -> None:
        """Open an epoch; by default its window began a minute ago."""
        began = int(time.time()) * 1000 - 60_000
        of = plan(**{"partitions": self._partitions} | changes)
        self.commit(opened(epoch, began if start_ms is None else start_ms, of))

    def seal_records(self, epoch: int) -> None:
        """The opt-in side of the epoch is over."""
        self.commit(entries.records_sealed(epoch, [0] * self._partitions))

    def publish_head_list(
        self,
        document: HeadListDocument,
        *,
        cells_per_answer: int = 1,
        reports_until_ms: int | None = None,
    ) -> StoredDocument:
        """Release a head list and an invented opt-in document."""
        stored = split("head_list", document.to_bytes())
        optin = split("optin", b"{}" + secrets.token_hex(8).encode())
        self.commit(
            entries.head_list_released(
                document.epoch,
                [stored, optin],
                cells=len(document.head_list.cells),
                cells_per_answer=cells_per_answer,
                answers=document.head_list.randomizer.answers,
                wildcard_alone=randomizer_for(document.head_list).wildcard_alone,
                reports_until_ms=reports_until_ms or document.reports_until_s * 1000,
                reasons=[],
            ),
            stored,
            optin,
        )
        return stored

    def publish_estimates(
        self, epoch: int, body: bytes, outcome: EpochOutcome = EpochOutcome.COMPLETE
    ) -> StoredDocument:
        """Release an estimates document."""
        stored = split("estimates", body)
        self.commit(entries.estimate_released(epoch, stored, outcome, []), stored)
        return stored


class WrittenLog(InventedReleases):
    """Writes them to Kafka as the jobs do, in one transaction each."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(partitions)
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": f"test-{secrets.token_hex(8)}",
                "max.in.flight.requests.per.connection": 1,
                "log_level": 0,
            }
        )
        self._producer.init_transactions(30)

    def commit(self, entry: Mapping[str, Any], *documents: StoredDocument) -> None:
        self._producer.begin_transaction()
        super().commit(entry, *documents)
        self._producer.commit_transaction(30)

    def _write(self, key: bytes, value: bytes) -> None:
        self._producer.produce(self._topic, key=key, value=value, partition=0)
