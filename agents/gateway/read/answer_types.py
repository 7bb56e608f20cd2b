"""The bodies of answers that are made here, rather than published: states, and health."""

from __future__ import annotations

import msgspec

from blendstream.streams.releases.epoch_view import EpochView
from blendstream.streams.wire.submissions import CollectingEpoch

__all__ = ["Epochs", "Health", "PausedView"]


class PausedView(msgspec.Struct, frozen=True):
    """The privacy budget of this period is spent."""

    resumes_s: int
    detail: str


class Epochs(msgspec.Struct, frozen=True):
    """States and times of recent epochs, newest first. Times are seconds since 1970."""

    collecting: CollectingEpoch | None
    paused: PausedView | None
    epochs: list[EpochView]


class Health(msgspec.Struct, frozen=True):
    """Whether this process works, and if not, why."""

    ready: bool
    reasons: list[str]
