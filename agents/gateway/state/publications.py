"""The gateway's copy of the publications, ready to be served.

Promises: documents are served byte for byte as they were released; each is compressed once, not
once per reader. States, times and documents: nothing here is a function of unpublished data.
Assumes: the reader (`agents.gateway.state.release_follower`) replaces whole fields, on the event
loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from blendstream.agents.gateway.http.negotiation import packed
from blendstream.agents.gateway.state.submission_targets import OptinTargets, ReportTarget
from blendstream.streams.releases.epoch_state import PauseNotice
from blendstream.streams.releases.epoch_view import EpochView

__all__ = ["Publications", "PublishedDocument", "newest_with_rows"]


class PublishedDocument:
    """One published document: its id, its bytes, and these as gzip.

    `empty` is true for the publication of an epoch without results.
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


async def _nothing_to_read() -> bool:
    return True


@dataclass(slots=True)
class Publications:
    """Everything from the release log that the API serves or validates submissions with."""

    epochs: dict[int, EpochView] = field(default_factory=dict)
    head_lists: dict[str, PublishedDocument] = field(default_factory=dict)
    current_head_list: str | None = None
    estimates: dict[int, PublishedDocument] = field(default_factory=dict)
    click_graphs: dict[int, PublishedDocument] = field(default_factory=dict)
    #: Head lists that accept no more reports; a report on one of them is late, not unknown.
    past_head_lists: frozenset[str] = frozenset()
    report_targets: dict[str, ReportTarget] = field(default_factory=dict)
    optin_targets: OptinTargets = field(default_factory=OptinTargets)
    last_pause: PauseNotice | None = None
    #: Reads the release log to its current end; False if that did not succeed in time. A head list
    #: is unknown only after a success.
    read_to_end: Callable[[], Awaitable[bool]] = _nothing_to_read

    def collecting(self, now_s: float) -> EpochView | None:
        """Return the epoch that collects records at this time, if one does."""
        for view in self.epochs.values():
            in_window = view.window_start_s <= now_s < view.window_end_s
            if in_window and view.state == "collecting":
                return view
        return None

    def paused(self, now_s: float) -> PauseNotice | None:
        """Return the pause in force at this time, if one is."""
        pause = self.last_pause
        return pause if pause is not None and pause.holds_at(now_s * 1000) else None
