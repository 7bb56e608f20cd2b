"""A jobs process decides by its clock only while that agrees with every broker's."""

from __future__ import annotations

import pytest

from blendstream.agents.jobs.broker_clocks import BrokerClocks

ALLOWED_S = 5.0


class ManualClock:
    """This process's clock and the brokers', each with an offset that the test sets."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.broker_off_s: dict[int, float] = {}
        self.clocks = BrokerClocks(allowed_s=ALLOWED_S)

    def ask(self, broker: int, takes_s: float = 0.02) -> None:
        """Send a record to a broker, which appends it half-way."""
        sent = self.now_s
        append = sent + takes_s / 2 + self.broker_off_s.get(broker, 0.0)
        self.now_s += takes_s
        self.clocks.appended(broker, sent_s=sent, append_s=append, acknowledged_s=self.now_s)


def test_a_clock_that_was_compared_with_nobody_is_not_right():
    """A process that has just started must not seal by a clock nobody has looked at."""
    clocks = BrokerClocks(allowed_s=ALLOWED_S)

    assert not clocks.ok
    assert "not been compared" in clocks.trouble


def test_one_broker_of_three_is_enough_to_be_wrong():
    """That broker's clock decides what is late in the partitions that it leads."""
    clock = ManualClock()
    clock.broker_off_s = {3: -12.0}
    for broker in (1, 2, 3, 1, 2):
        clock.ask(broker)

    assert not clock.clocks.ok
    assert clock.clocks.skew_s == pytest.approx(12.0, abs=0.1)
    assert "off that of broker 3, more than the allowed 5 s" in clock.clocks.trouble
    assert "NTP" in clock.clocks.trouble


def test_it_is_right_again_when_every_broker_says_so():
    clock = ManualClock()
    clock.broker_off_s = {1: 12.0, 2: 12.0}
    clock.ask(1)
    clock.ask(2)
    assert clock.clocks.skew_s == pytest.approx(-12.0, abs=0.1), "this clock is behind"
    clock.broker_off_s = {}
    clock.ask(1)
    assert not clock.clocks.ok
    clock.ask(2)
    assert clock.clocks.ok
    assert clock.clocks.trouble == ""


def test_a_broker_that_leads_nothing_any_more_is_forgotten():
    """Else a broker that was taken away because of its clock would stop the jobs for ever."""
    clock = ManualClock()
    clock.broker_off_s = {2: 30.0}
    clock.ask(1)
    clock.ask(2)
    clock.clocks.leading({1, 3})

    assert clock.clocks.ok


def test_a_slow_answer_says_nothing_about_a_small_skew():
    """A broker under load must not cost the jobs their leases, nor make a wrong clock right."""
    clock = ManualClock()
    clock.broker_off_s = {1: -12.0}
    clock.ask(1)
    clock.broker_off_s = {1: 4.0}
    clock.ask(1, takes_s=20.0)
    assert not clock.clocks.ok, "anything between is possible"

    right = ManualClock()
    right.ask(1)
    right.ask(1, takes_s=60.0)
    assert right.clocks.ok
