"""Types of one exchange with the server: requests, responses, the outcome of a call.

The client's logic is written once, as generators that yield a `DeviceRequest` and are sent a
`Response` (`None` if the server did not answer). `localclient.http_transport` runs them over HTTP,
with and without asyncio.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from blendstream.blender.values.random_source import RandomSource
from blendstream.localclient.errors import ClockWrong
from blendstream.localclient.limits import Limits
from blendstream.localclient.store import Store

__all__ = [
    "BackOff",
    "Context",
    "DeviceRequest",
    "Exchange",
    "Outcome",
    "RecordResult",
    "Response",
    "ResultCode",
    "check_clock",
]

#: Maximum size of responses other than head lists, which contain a few numbers.
_SMALL_BODY_BYTES = 1 << 20
_HTTP_DATE = re.compile(r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} GMT")


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """An HTTP request to the server, with the maximum size of its response."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    max_bytes: int = _SMALL_BODY_BYTES

    def __repr__(self) -> str:
        """Leave out headers and body, which may contain a token and a person's records."""
        return f"Request({self.method} {self.path})"


@dataclass(frozen=True, slots=True)
class Response:
    """The server's response, with header names in lower case.

    `too_large`: the body was longer than the request's `max_bytes`; `body` is then empty.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    too_large: bool = False

    def __repr__(self) -> str:
        """Leave out everything that the server wrote."""
        return f"Response({self.status}, {len(self.body)} bytes)"


class ResultCode(StrEnum):
    """The result of a call."""

    KEPT = "kept"  # the device stored the search
    TEXT_REFUSED = "text refused"  # the text cannot be a record; the device stored nothing

    SENT = "sent"  # the server accepted this window's report or records
    WAITING = "waiting"  # a time in the reporting window is drawn
    NOTHING_NEW = "nothing new"  # there is no window to answer now
    TRY_LATER = "try later"  # the server did not answer or is busy; the bytes stay stored
    REFUSED_BY_SERVER = "refused by server"  # sent, refused permanently, and still spent
    EXPIRED = "expired"  # not delivered in time, and still spent


@dataclass(frozen=True, slots=True)
class RecordResult:
    """The result of storing a search: KEPT or TEXT_REFUSED. `detail` contains none of its text."""

    code: ResultCode
    detail: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a call, its epoch, and the earliest time at which another call can change it.

    `detail` is a sentence for people. It contains no record, and of the server only the sentence
    with which a gateway refused a token.
    """

    code: ResultCode
    epoch: int | None
    next_call_at_s: int
    detail: str


Exchange = Generator[DeviceRequest, Response | None, Outcome]


class BackOff:
    """Computes the time of the next request: exponential back-off with random jitter.

    The longest pause is an hour, or the shortest window that the device accepts if that is less: a
    longer one would miss windows, a shorter one would flood a server that has just restarted. The
    first pause is a 120th of it.
    """

    def __init__(self, dice: RandomSource, limits: Limits) -> None:
        self._dice = dice
        self._longest_s = min(3_600, limits.min_window_s)
        self._failures = 0

    def after_failure(self, now_s: int, response: Response | None) -> int:
        """Return the time of the retry after a failure: twice the pause, at least Retry-After."""
        first_s = max(1, self._longest_s // 120)
        pause_s = self._about(min(self._longest_s, first_s << min(self._failures, 20)))
        self._failures += 1
        return now_s + max(pause_s, min(_retry_after_s(response), 3_600))

    def after_answer(self, now_s: int) -> int:
        """Return the time of the next request after the server answered."""
        self._failures = 0
        return now_s + self._about(self._longest_s)

    def _about(self, pause_s: int) -> int:
        return max(1, pause_s - self._dice.below(pause_s // 2 + 1))


@dataclass(frozen=True, slots=True)
class Context:
    """The device's storage, limits, clock and random source, for one exchange."""

    store: Store
    limits: Limits
    clock: Callable[[], float]
    dice: RandomSource
    back_off: BackOff

    def now_s(self) -> int:
        """Return the device's time in whole seconds since 1970."""
        return int(self.clock())

    def try_later(self, epoch: int | None, response: Response | None) -> Outcome:
        """Return the outcome for a server that is unavailable or busy, or not the gateway."""
        next_call_at_s = self.back_off.after_failure(self.now_s(), response)
        did = "did not answer" if response is None else f"answered {response.status}"
        return Outcome(
            ResultCode.TRY_LATER, epoch, next_call_at_s, f"the server {did}; trying again later"
        )

    def nothing_new(self, epoch: int | None, detail: str) -> Outcome:
        """Return the outcome for an epoch without a window to answer now."""
        return self.finished(ResultCode.NOTHING_NEW, epoch, detail)

    def finished(self, code: ResultCode, epoch: int | None, detail: str) -> Outcome:
        """Return the outcome for an epoch that needs nothing more from this device."""
        return Outcome(code, epoch, self.back_off.after_answer(self.now_s()), detail)


def check_clock(response: Response, now_s: int, limits: Limits) -> None:
    """Raise `ClockWrong` if the server's `Date` differs too much from the device's clock.

    With a false `Date` a hostile server can only stop a device from reporting. Only HTTP's own
    date format counts, because clients in other languages would parse other formats differently.
    """
    from email.utils import parsedate_to_datetime  # noqa: PLC0415  # a fifth of the import's time

    date = response.headers.get("date", "")
    if not _HTTP_DATE.fullmatch(date):
        return
    try:
        server_s = int(parsedate_to_datetime(date).timestamp())
    except (ValueError, OverflowError):
        return
    if abs(server_s - now_s) > limits.max_clock_skew_s:
        raise ClockWrong(
            f"the device's clock must be within {limits.max_clock_skew_s} s of the server's, but "
            f"it is {now_s} and the server's is {server_s} (seconds since 1970). "
            "Set the device's clock; the client tries again when called."
        )


def _retry_after_s(response: Response | None) -> int:
    text = "" if response is None else response.headers.get("retry-after", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
