"""Types of response bodies that the gateway builds itself: epoch states and health."""

from __future__ import annotations

import msgspec

from blendstream.streams.releases.epoch_view import EpochNumber, EpochView

__all__ = ["Collecting", "Epochs", "Health", "PausedView"]


class Collecting(msgspec.Struct, frozen=True):
    """The epoch that collects opt-in records now, with its times and limit.

    Devices, which have no msgspec, read it as `streams.wire.submissions.CollectingEpoch`.
    """

    epoch: EpochNumber
    window_start_s: int
    window_end_s: int
    optin_until_s: int
    records_per_user: int


class PausedView(msgspec.Struct, frozen=True):
    """A pause of the service because this period's privacy budget is spent."""

    resumes_s: int
    detail: str


class Epochs(msgspec.Struct, frozen=True):
    """States and times of recent epochs, newest first. Times are seconds since 1970."""

    collecting: Collecting | None
    paused: PausedView | None
    epochs: list[EpochView]


class Health(msgspec.Struct, frozen=True):
    """Readiness of this process, and the reasons if it is not ready."""

    ready: bool
    reasons: list[str]
