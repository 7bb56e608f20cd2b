"""A release log in memory, for decisions that follow from it: real entries, a list as the topic.

What the real topic does is tested on a real broker (tests/integration, tests/faults).
"""

from __future__ import annotations

from collections.abc import Sequence

from blendstream.blender.values.parameters import PrivacyParameters
from blendstream.streams.budget.epoch_plan import EpochPlan
from blendstream.streams.budget.ledger import Cost, Limit
from blendstream.streams.releases import entries
from blendstream.streams.releases.documents import StoredDocument, split
from blendstream.streams.releases.entries import Entry, EpochOutcome, IncompleteReason
from blendstream.streams.releases.epoch_state import ReleaseLogState

WINDOW_MS = 60_000
PLENTY = Limit(86_400, optin=Cost(1e6, 0.5), clients=Cost(1e6, 0.5))


def plan(**changes: object) -> EpochPlan:
    """A plan of one-minute windows over two partitions each."""
    fields: dict[str, object] = {
        "window_ms": WINDOW_MS,
        "grace_ms": 5_000,
        "skew_ms": 1_000,
        "privacy": PrivacyParameters(),
        "profile": "sharp",
        "cohorts": 1,
        "key_id": "k1",
        "optin_partitions": 2,
        "report_partitions": 2,
    }
    return EpochPlan(**(fields | changes))  # type: ignore[arg-type]


class ModelLog:
    """Appends entries as one committed transaction each, and folds them."""

    def __init__(self) -> None:
        self.records: list[tuple[int, int, bytes, bytes]] = []
        self.log_state = ReleaseLogState()

    def commit(self, now_ms: int, *added: Entry, documents: Sequence[StoredDocument] = ()) -> None:
        for document in documents:
            for number, part in enumerate(document.parts):
                self._append(now_ms, entries.part_key(document.id, number), part)
        self._append(now_ms, entries.ENTRY_KEY, entries.encode(added))
        # The marker that ends a transaction takes an offset of its own.
        self.records.append((len(self.records), now_ms, b"", b""))

    def _append(self, now_ms: int, key: bytes, value: bytes) -> None:
        record = (len(self.records), now_ms, key, value)
        self.records.append(record)
        self.log_state.apply(*record)

    def reread(self) -> ReleaseLogState:
        """Fold the whole log as a new reader does."""
        log_state = ReleaseLogState()
        for record in self.records:
            log_state.apply(*record)
        return log_state

    def head_list(self, epoch: int, now_ms: int, reports_until_ms: int) -> None:
        documents = [split("head-list", b"list %d" % epoch), split("optin", b"optin %d" % epoch)]
        entry = entries.head_list_released(
            epoch, documents, cells=3, cells_per_answer=1, answers=1, wildcard_alone=False,
            reports_until_ms=reports_until_ms, reasons=[],
        )  # fmt: skip
        self.commit(now_ms, entry, documents=documents)

    def estimates(
        self, epoch: int, now_ms: int, reasons: Sequence[IncompleteReason] = (), empty: bool = False
    ) -> None:
        outcome = EpochOutcome.INCOMPLETE if reasons else EpochOutcome.COMPLETE
        document = split("estimates", b"estimates %d" % epoch)
        entry = entries.estimate_released(
            epoch, document, EpochOutcome.EMPTY if empty else outcome, reasons
        )
        self.commit(now_ms, entry, documents=[document])
