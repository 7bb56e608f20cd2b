"""This gateway's clock against the brokers', which decide what is late.

A frame was appended after it was sent and before it was acknowledged. An append time outside that
interval, by this process's clock, shows how far the two clocks are apart at least.

    sent ────────── acknowledged          by the gateway's clock
         append time                      by the broker's: inside, unless the clocks differ

Promises: a slow acknowledgement never looks like a wrong clock; it only says less. A clock
that was not compared yet counts as wrong.
"""

from __future__ import annotations

__all__ = ["ClockCheck"]


class ClockCheck:
    """The last known skew, in seconds: above 0 when this gateway's clock is ahead.

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
        #: The topic and partition whose leader was compared with last.
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
        """Take note of one frame's three times, and of the partition that it went to."""
        ahead, behind = sent_s - append_s, append_s - acknowledged_s
        skew = max(0.0, ahead) - max(0.0, behind)
        # A wide interval proves a large skew but never a small one.
        if acknowledged_s - sent_s <= self.allowed_s or abs(skew) > self.allowed_s:
            self.skew_s = skew
            self.broker_of = place
            self.measured = True

    @property
    def ok(self) -> bool:
        """Whether the clocks are as close as the epochs' grace assumes."""
        return self.measured and abs(self.skew_s) <= self.allowed_s

    @property
    def trouble(self) -> str:
        """What is wrong and what to do, for an operator; empty while the clock is right."""
        if self.ok:
            return ""
        if not self.measured:
            return "this clock has not been compared with the brokers' yet; this passes by itself"
        topic, partition = self.broker_of
        return (
            f"this clock is {self.skew_s:+.1f} s off that of the broker which leads "
            f"partition {partition} of {topic}, more than the allowed {self.allowed_s:g} s; set "
            "this one right (NTP), or the broker's if other gateways say the same"
        )
