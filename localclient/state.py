"""What a device remembers about its reports: one small value, and its form on disk.

    line 1   SHA-256 of line 2, in hexadecimal
    line 2   JSON of the state

Promises: `State.from_bytes(s.to_bytes()) == s`; bytes that were damaged anywhere are not read.
Assumes: the bytes are this device's own. The hash finds accidents; someone who can write to the
person's files could read them as well, and nothing here is meant to stop them.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from blendstream.localclient.errors import StateUnreadable

__all__ = ["Appointment", "Claim", "Mode", "Outgoing", "State"]

_VERSION = 1


class Mode(StrEnum):
    """How a device takes part in a window: never both ways."""

    REPORT = "report"  # randomised on the device
    OPT_IN = "opt-in"  # as they are, to a curator the person chose to trust


@dataclass(frozen=True, slots=True)
class Claim:
    """A window that this device has answered, how, when, and what that spent.

    `subject` is the id of the head list answered, or empty in opt-in mode.
    ε and δ of an opt-in window are 0 here: its privacy is the curator's promise, not the device's.
    """

    mode: Mode
    epoch: int
    subject: str
    window_start_s: int
    window_end_s: int
    at_s: int
    epsilon: float
    delta: float


@dataclass(frozen=True, slots=True)
class Appointment:
    """When this device will act for an epoch: drawn once, before its records are looked at.

    `subject` is the head list's id, or empty in opt-in mode; `records` is m_C or m_O.
    """

    mode: Mode
    epoch: int
    subject: str
    window_start_s: int
    window_end_s: int
    records: int
    act_at_s: int
    until_s: int


@dataclass(frozen=True, slots=True)
class Outgoing:
    """The exact bytes to be sent, and sent again unchanged, until the server has them."""

    mode: Mode
    epoch: int
    body: str
    until_s: int

    def __repr__(self) -> str:
        """Opt-in bytes hold what a person searched for; representations end up in logs."""
        return f"Outgoing({self.mode}, epoch={self.epoch}, {len(self.body)} characters)"


@dataclass(frozen=True, slots=True)
class State:
    """Everything that must survive a crash. Claims are in the order of their times."""

    #: R and this device's place in it: it reports in epochs e with e mod R = `cohort`.
    cohorts: int = 1
    cohort: int = 0
    claims: tuple[Claim, ...] = ()
    appointment: Appointment | None = None
    outgoing: Outgoing | None = None
    #: Raw records from before this time were used or passed over: they are never looked at again.
    forget_before_s: int = 0

    def to_bytes(self) -> bytes:
        """The state as it is kept."""
        body = json.dumps({"version": _VERSION, **asdict(self)}, sort_keys=True).encode()
        return hashlib.sha256(body).hexdigest().encode() + b"\n" + body

    @classmethod
    def from_bytes(cls, data: bytes) -> State:
        """Read what `to_bytes` wrote, or raise `StateUnreadable`."""
        seal, _, body = data.partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != seal:
            raise StateUnreadable(_unreadable("damaged"))
        try:
            fields = json.loads(body)
            if fields.pop("version") != _VERSION:
                raise StateUnreadable(_unreadable("of another version of the client"))
            return _state(fields)
        except (KeyError, TypeError, ValueError):
            raise StateUnreadable(_unreadable("damaged")) from None


def _state(fields: dict[str, Any]) -> State:
    appointment, outgoing = fields["appointment"], fields["outgoing"]
    return State(
        cohorts=fields["cohorts"],
        cohort=fields["cohort"],
        claims=tuple(Claim(**{**c, "mode": Mode(c["mode"])}) for c in fields["claims"]),
        appointment=appointment
        and Appointment(**{**appointment, "mode": Mode(appointment["mode"])}),
        outgoing=outgoing and Outgoing(**{**outgoing, "mode": Mode(outgoing["mode"])}),
        forget_before_s=fields["forget_before_s"],
    )


def _unreadable(what: str) -> str:
    return (
        f"the file that remembers what this device has spent must be whole, but it is {what}; "
        "nothing is reported without it. Restore the file, or delete the whole folder once a full "
        "budget period has passed since the last report: a new folder starts with nothing spent."
    )
