"""Decide whether this device answers a head list, by all checks that need no secret and no record.

Promises: a list that passes is well formed and within the device's own limits in size, budget,
answers, window and time. For any other list, the refusal names the limit and none of the list's
content.
Assumes: the sender may be hostile. `localclient.budget` checks the remaining budget, and that the
epoch was not answered before.
"""

from __future__ import annotations

from blendstream.blender.values.record import NORMALISATION_VERSION
from blendstream.localclient.errors import HeadListRefused
from blendstream.localclient.exchange import Response
from blendstream.localclient.limits import Limits
from blendstream.streams.wire.head_list_document import HeadListDocument, MalformedDocument
from blendstream.streams.wire.submissions import CollectingEpoch

__all__ = ["check_collecting_epoch", "check_head_list", "read_head_list"]

#: Maximum reporting time of a head list, in windows. A service asks for reports until the end of
#: the next window, or of the one after.
_REPORTING_WINDOWS = 4


def read_head_list(response: Response, limits: Limits) -> HeadListDocument:
    """Return the head list in a response, or raise `HeadListRefused`."""
    if response.too_large:
        raise HeadListRefused(
            f"a head list must be at most {limits.max_head_list_bytes} bytes long, which is this "
            "device's max_head_list_bytes, and the server's is longer. Nothing was spent or sent. "
            "Raise the limit where devices have the memory, or have the server list fewer records."
        )
    try:
        return HeadListDocument.from_bytes(response.body)
    except MalformedDocument as error:
        raise HeadListRefused(f"the server's head list is malformed: {error}") from None


def check_head_list(document: HeadListDocument, limits: Limits, now_s: int) -> None:
    """Raise unless this device would answer such a list now."""
    spec = document.head_list.randomizer
    _require(
        document.head_list.normalisation == NORMALISATION_VERSION,
        f"use normalisation {NORMALISATION_VERSION}, which this client knows",
        f"{document.head_list.normalisation}; update the client",
    )
    _within(spec.epsilon, limits, "epsilon_per_report")
    _within(spec.delta, limits, "delta_per_report")
    _within(spec.answers, limits, "max_answers")
    _within(spec.max_cells_per_answer, limits, "max_cells_per_answer")
    _within(document.cohorts, limits, "max_cohorts")
    _check_epoch(document.epoch, limits, now_s)
    _check_window(document.window_start_s, document.window_end_s, limits)
    length_s = document.window_end_s - document.window_start_s
    _require(
        document.reports_until_s - document.window_end_s <= _REPORTING_WINDOWS * length_s,
        f"ask for reports within {_REPORTING_WINDOWS} windows of its own",
        f"{document.reports_until_s - document.window_end_s} s after it",
    )
    _require(
        document.window_end_s <= now_s + limits.max_clock_skew_s,
        f"be about a window that has ended, by clocks within max_clock_skew_s="
        f"{limits.max_clock_skew_s}",
        f"one that ends at {document.window_end_s} when this device's clock says {now_s}; "
        "if the device's clock is wrong, set it",
    )


def check_collecting_epoch(epoch: CollectingEpoch, limits: Limits, now_s: int) -> None:
    """Raise unless this device would send opt-in records for such an epoch now."""
    _check_epoch(epoch.epoch, limits, now_s)
    _check_window(epoch.window_start_s, epoch.window_end_s, limits)
    _within(epoch.records_per_user, limits, "max_optin_records", "an epoch")
    length_s = epoch.window_end_s - epoch.window_start_s
    _require(
        epoch.optin_until_s - epoch.window_end_s <= length_s,
        "take records for at most as long as its window after that has ended",
        f"{epoch.optin_until_s - epoch.window_end_s} s after a window of {length_s} s",
        "an epoch",
    )
    _require(
        epoch.window_start_s <= now_s + limits.max_clock_skew_s and now_s < epoch.optin_until_s,
        f"be collecting now, by clocks within max_clock_skew_s={limits.max_clock_skew_s}",
        f"{epoch.window_start_s} to {epoch.optin_until_s} when this device's clock says {now_s}; "
        "if the device's clock is wrong, set it",
        "an epoch",
    )


def _check_epoch(epoch: int, limits: Limits, now_s: int) -> None:
    # Services count their windows from 0, and no window began before 1970. The number only decides
    # which cohort takes part, but the device refuses an impossible one anyway.
    most = now_s // limits.min_window_s
    _require(
        epoch <= most,
        f"be numbered as one of at most {most} windows of min_window_s={limits.min_window_s} since "
        "1970",
        f"{epoch}; if the device's clock is wrong, set it",
        "an epoch",
    )


def _check_window(start_s: int, end_s: int, limits: Limits) -> None:
    _require(
        limits.min_window_s <= end_s - start_s <= limits.max_window_s,
        f"have a window of min_window_s={limits.min_window_s} to max_window_s="
        f"{limits.max_window_s} seconds",
        f"{end_s - start_s} s",
    )


def _within(asked: float, limits: Limits, name: str, subject: str = "a head list") -> None:
    most = getattr(limits, name)
    _require(asked <= most, f"stay within this device's {name}={most}", asked, subject)


def _require(holds: bool, what: str, actual: object, subject: str = "a head list") -> None:
    if not holds:
        raise HeadListRefused(f"{subject} must {what}, got {actual}. Nothing was spent or sent.")
