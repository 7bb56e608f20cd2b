"""Measure the skew of a process's clock against a broker's, which decides lateness.

A broker appends a frame after the send and before the acknowledgement. An append time outside that
interval, by this process's clock, is a lower bound on the skew of the two clocks.

    sent ────────── acknowledged          by the process's clock
         append time                      by the broker's: inside, unless the clocks differ

Promises: a slow acknowledgement never counts as a wrong clock; it only gives a weaker bound. A
clock that was not compared yet counts as wrong.
"""

from __future__ import annotations

__all__ = ["ClockCheck"]


class ClockCheck:
    """The last measured skew, in seconds; positive when this process's clock is ahead.

    >>> check = ClockCheck(allowed_s=5.0); check.ok
    False
    >>> check.appended(sent_s=100.0, append_s=100.1, acknowledged_s=100.2); check.skew_s, check.ok
    (0.0, True)
    >>> check.appended(sent_s=100.0, append_s=92.0, acknowledged_s=100.2); check.skew_s, check.ok
    (8.0, False)
    """

    __slots__ = ("allowed_s", "broker_of", "measured", "skew_s")

    def __init__(self, *, allowed_s: float) -> None:
        self.allowed_s = allowed_s
        self.skew_s = 0.0
        #: The topic and partition whose leader made the last measurement.
        self.broker_of = ("", 0)
        self.measured = False

    def appended(
        self,
        *,
        sent_s: float,
        append_s: float,
        acknowledged_s: float,
        place: tuple[str, int] = ("", 0),
    ) -> None:
        """Record one frame's three times, and its topic and partition."""
        ahead, behind = sent_s - append_s, append_s - acknowledged_s
        skew = max(0.0, ahead) - max(0.0, behind)
        # A wide interval can prove a large skew but never a small one.
        if acknowledged_s - sent_s <= self.allowed_s or abs(skew) > self.allowed_s:
            self.skew_s = skew
            self.broker_of = place
            self.measured = True

    @property
    def ok(self) -> bool:
        """True if the clocks are as close as the epochs' grace assumes."""
        return self.measured and abs(self.skew_s) <= self.allowed_s

    @property
    def trouble(self) -> str:
        """A sentence with the problem and the remedy, for an operator; empty if there is none."""
        if self.ok:
            return ""
        if not self.measured:
            return "this clock has not been compared with the brokers' yet; wait a few seconds"
        topic, partition = self.broker_of
        return (
            f"this clock is {self.skew_s:+.1f} s off that of the broker which leads "
            f"partition {partition} of {topic}, more than the allowed {self.allowed_s:g} s; set "
            "this one right (NTP), or the broker's if other gateways report the same"
        )
