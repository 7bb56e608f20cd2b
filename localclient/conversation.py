"""One talk with the server, without a network: requests out, responses in, an outcome at the end.

The logic of the client is written once, as generators that yield a `DeviceRequest` and are sent
back a `Response` (or `None` when there was no answer). `localclient.local_client` drives them over
HTTP, with and without asyncio.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from blendstream.blender.values.dice import RandomSource
from blendstream.localclient.errors import ClockWrong
from blendstream.localclient.limits import Limits
from blendstream.localclient.store import Store

__all__ = [
    "BackOff",
    "Context",
    "DeviceRequest",
    "Outcome",
    "Recorded",
    "Response",
    "Talk",
    "What",
    "check_clock",
]

#: Answers that are not head lists are a few numbers.
_SMALL_BODY_BYTES = 1 << 20
_HTTP_DATE = re.compile(r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} GMT")


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """What to ask of the server, and how many bytes of its answer to read."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    max_bytes: int = _SMALL_BODY_BYTES

    def __repr__(self) -> str:
        """Without headers and body, which may hold a token and a person's records."""
        return f"Request({self.method} {self.path})"


@dataclass(frozen=True, slots=True)
class Response:
    """What the server answered; header names in lower case.

    `body` is empty, and `too_large` says so, when there was more of it than the request's
    `max_bytes`.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    too_large: bool = False

    def __repr__(self) -> str:
        """Leaves out what the server wrote."""
        return f"Response({self.status}, {len(self.body)} bytes)"


class What(StrEnum):
    """The result of a call."""

    KEPT = "kept"  # a search is on this device
    TEXT_REFUSED = "text refused"  # what was typed cannot be a record; nothing was kept

    SENT = "sent"  # the server has accepted this window's report or records
    WAITING = "waiting"  # an appointment in the reporting window has been drawn
    NOTHING_NEW = "nothing new"  # no window to answer now
    TRY_LATER = "try later"  # the server did not answer or is busy; the bytes are kept
    REFUSED_BY_SERVER = "refused by server"  # sent, refused for good, and still spent
    EXPIRED = "expired"  # it could not be delivered in time, and is still spent


@dataclass(frozen=True, slots=True)
class Recorded:
    """Whether a search was kept: `what` is KEPT or TEXT_REFUSED. `detail` quotes none of it."""

    what: What
    detail: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a call, for which epoch, and when calling again can change anything.

    `detail` is a sentence for people; it contains nothing from records or from the server.
    """

    what: What
    epoch: int | None
    again_at_s: int
    detail: str


Talk = Generator[DeviceRequest, Response | None, Outcome]


class BackOff:
    """When to ask again: later after each failure, at random so that devices spread out.

    Pauses grow from a 120th of the longest pause, which is an hour, or the shortest window that the
    device accepts if that is less: longer would miss windows, shorter would flood a server that has
    just restarted.
    """

    def __init__(self, dice: RandomSource, limits: Limits) -> None:
        self._dice = dice
        self._longest_s = min(3_600, limits.min_window_s)
        self._failures = 0

    def after_failure(self, now_s: int, response: Response | None) -> int:
        """Not before this second: what Retry-After says, else twice as long as last time."""
        first_s = max(1, self._longest_s // 120)
        pause_s = self._about(min(self._longest_s, first_s << min(self._failures, 20)))
        self._failures += 1
        return now_s + max(pause_s, min(_retry_after_s(response), 3_600))

    def after_answer(self, now_s: int) -> int:
        """When to look for something new, after the server answered."""
        self._failures = 0
        return now_s + self._about(self._longest_s)

    def _about(self, pause_s: int) -> int:
        return max(1, pause_s - self._dice.below(pause_s // 2 + 1))


@dataclass(frozen=True, slots=True)
class Context:
    """What every talk needs: the device's own folder, limits, clock and dice."""

    store: Store
    limits: Limits
    clock: Callable[[], float]
    dice: RandomSource
    back_off: BackOff

    def now_s(self) -> int:
        """The device's clock, in whole seconds since 1970."""
        return int(self.clock())

    def try_later(self, epoch: int | None, response: Response | None) -> Outcome:
        """The outcome when the server was away or busy, or another server answered."""
        again_at_s = self.back_off.after_failure(self.now_s(), response)
        did = "did not answer" if response is None else f"answered {response.status}"
        return Outcome(What.TRY_LATER, epoch, again_at_s, f"the server {did}; trying again later")

    def nothing_new(self, epoch: int | None, detail: str) -> Outcome:
        """The outcome when there is no window to answer now."""
        return self.settled(What.NOTHING_NEW, epoch, detail)

    def settled(self, what: What, epoch: int | None, detail: str) -> Outcome:
        """The outcome when this epoch needs nothing more from this device."""
        return Outcome(what, epoch, self.back_off.after_answer(self.now_s()), detail)


def check_clock(response: Response, now_s: int, limits: Limits) -> None:
    """Raise `ClockWrong` when the server's Date and the device's clock are far apart.

    A hostile server can only make a device refuse with this, never make it report. A date in
    another form than HTTP's own is no date: clients in other languages would read others.
    """
    from email.utils import parsedate_to_datetime  # noqa: PLC0415  # a fifth of the import's time

    told = response.headers.get("date", "")
    if not _HTTP_DATE.fullmatch(told):
        return
    try:
        server_s = int(parsedate_to_datetime(told).timestamp())
    except (ValueError, OverflowError):
        return
    if abs(server_s - now_s) > limits.max_clock_skew_s:
        raise ClockWrong(
            f"the device's clock must be within {limits.max_clock_skew_s} s of the server's, but "
            f"it says {now_s} where the server says {server_s} (seconds since 1970). "
            "Set the device's clock; the client tries again when called."
        )


def _retry_after_s(response: Response | None) -> int:
    text = "" if response is None else response.headers.get("retry-after", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
