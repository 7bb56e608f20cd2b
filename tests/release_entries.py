"""Entries of the release log as the jobs write them, for tests that need only what they say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blendstream.blender.values.parameters import PrivacyParameters
from blendstream.streams.budget.epoch_plan import ClickGraphPlan, EpochParameters, EpochPlan
from blendstream.streams.budget.ledger import Cost, EpochCharge
from blendstream.streams.releases import entries
from blendstream.streams.releases.documents import StoredDocument, split
from blendstream.streams.releases.entries import Entry, EpochOutcome
from blendstream.streams.releases.epoch_state import ReleaseLogState

OPTIN = StoredDocument("optin", "0" * 64, 0, ())


def opened_entry(
    epoch: int,
    *,
    window_start_ms: int,
    window_end_ms: int,
    shares_ppm: tuple[int, int, int],
    records_per_user: int = 1,
    **changes: Any,
) -> Entry:
    """The entry that opens an epoch, with the shares of S, T and the graph in millionths."""
    selection, estimation, graph = shares_ppm
    fields: dict[str, Any] = {
        "window_ms": window_end_ms - window_start_ms,
        "privacy": PrivacyParameters(
            records_per_optin_user=records_per_user,
            selection_share=selection / (selection + estimation),
        ),
        "profile": "sharp",
        "cohorts": 1,
        "key_id": "k1",
        "graph_share_ppm": graph,
        "click_graph": ClickGraphPlan(1.0, 1e-6, records_per_user, records_per_user),
    }
    plan = EpochPlan(**fields | changes)
    cost = Cost(4.0, 1e-5)
    charge = EpochCharge(epoch, window_start_ms // 1000, 1, 0, 2**40, cost, cost)
    return entries.epoch_opened(
        EpochParameters(epoch, window_start_ms, window_end_ms, plan, charge)
    )


def head_list_entries(
    epoch: int,
    head_list_id: bytes,
    *,
    reports_until_ms: int,
    bounds: Sequence[int] = (),
    wildcard_alone: bool = False,
    **shape: int,
) -> list[Entry]:
    """The opt-in records sealed, then a head list whose document nobody reads."""
    document = StoredDocument("head_list", head_list_id.hex(), 0, ())
    return [
        entries.records_sealed(epoch, bounds),
        entries.head_list_released(
            epoch, [document, OPTIN], wildcard_alone=wildcard_alone, reasons=[],
            reports_until_ms=reports_until_ms, **shape,
        ),
    ]  # fmt: skip


def estimates_entry(epoch: int) -> Entry:
    """The epoch is published, with a document that nobody reads."""
    document = split("estimates", b"%d" % epoch)
    return entries.estimate_released(epoch, document, EpochOutcome.COMPLETE, [])


def fold(log_state: ReleaseLogState, *together: Entry | list[Entry]) -> ReleaseLogState:
    """Fold entries, a record each; a list of them makes one record."""
    for entry in together:
        value = entries.encode(entry if isinstance(entry, list) else [entry])
        log_state.apply(log_state.read_upto, 1, entries.ENTRY_KEY, value)
    return log_state


def log_state_of(*together: Entry | list[Entry]) -> ReleaseLogState:
    """What a log of these entries says."""
    return fold(ReleaseLogState(), *together)
