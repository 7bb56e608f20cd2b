"""What the service has published, as this gateway last read it, ready to be served.

Promises: documents are served byte for byte as they were released; each is compressed once, not
once for each reader. Nothing here is a function of unpublished data: states, times, documents.
Assumes: the reader (`agents.gateway.state.release_follower`) replaces fields whole, on the event
loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from blendstream.agents.gateway.http.negotiation import packed
from blendstream.agents.gateway.http.request_types import EpochNumber
from blendstream.agents.gateway.state.submission_targets import OptinTargets, ReportTarget

__all__ = ["EpochView", "PauseView", "Publications", "PublishedDocument", "newest_with_rows"]


class PublishedDocument:
    """One published document: its bytes, its compressed bytes and its name.

    `empty` marks the publication of an epoch without results.
    """

    __slots__ = ("body", "empty", "epoch", "id", "packed")

    def __init__(self, epoch: int, document_id: str, body: bytes, *, empty: bool = False) -> None:
        self.epoch = epoch
        self.id = document_id
        self.empty = empty
        self.body = body
        self.packed = packed(body)


def newest_with_rows(documents: Iterable[PublishedDocument]) -> PublishedDocument | None:
    """Return the document of the highest epoch that has results; `None` if no epoch has any."""
    with_rows = (document for document in documents if not document.empty)
    return max(with_rows, key=lambda document: document.epoch, default=None)


class EpochView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One epoch as the world may see it: its state and times, nothing counted."""

    epoch: EpochNumber
    state: str
    window_start_s: int
    window_end_s: int
    #: Opt-in records of the window are taken until then.
    optin_until_s: int
    #: Most records an opt-in user counts with (m_O).
    records_per_user: int
    #: Users and devices take turns in this many cohorts (R); the epoch admits cohort epoch mod R.
    cohorts: int
    head_list: str | None = None
    #: Reports on the head list are taken until then.
    reports_until_s: int | None = None
    outcome: str | None = None
    reasons: tuple[str, ...] = ()
    #: Why the epoch was abandoned, in the operator's or the job's words; no more is released.
    abandoned: str | None = None
    #: R of the opt-in users, where it is not that of the devices.
    optin_cohorts: int | None = None
    #: The first epoch of the budget period that this one belongs to, and how many it has.
    period_first_epoch: EpochNumber | None = None
    period_epochs: int | None = None


@dataclass(frozen=True, slots=True)
class PauseView:
    """The privacy budget of a period is spent; no epoch is open between the two times."""

    from_s: int
    resumes_s: int
    detail: str


async def _nothing_to_read() -> bool:
    return True


@dataclass(slots=True)
class Publications:
    """Everything the public API shows and judges by."""

    epochs: dict[int, EpochView] = field(default_factory=dict)
    head_lists: dict[str, PublishedDocument] = field(default_factory=dict)
    current_head_list: str | None = None
    estimates: dict[int, PublishedDocument] = field(default_factory=dict)
    click_graphs: dict[int, PublishedDocument] = field(default_factory=dict)
    #: Head lists whose time for reports has ended; a report on one of them is late, not unknown.
    past_head_lists: frozenset[str] = frozenset()
    report_targets: dict[str, ReportTarget] = field(default_factory=dict)
    optin_targets: OptinTargets = field(default_factory=OptinTargets)
    last_pause: PauseView | None = None
    #: Reads the release log to the end it has now; False when that did not succeed in time. Only
    #: afterwards is a head list unknown.
    read_to_end: Callable[[], Awaitable[bool]] = _nothing_to_read

    def collecting(self, now_s: float) -> EpochView | None:
        """The epoch whose window holds this moment."""
        for view in self.epochs.values():
            in_window = view.window_start_s <= now_s < view.window_end_s
            if in_window and view.state == "collecting":
                return view
        return None

    def paused(self, now_s: float) -> PauseView | None:
        """The pause that is in force now, if one is."""
        pause = self.last_pause
        return pause if pause is not None and pause.from_s <= now_s < pause.resumes_s else None
