"""Compare the clock of the jobs process with every broker's clock.

The jobs' clock decides windows, seals and reporting times, the brokers' clocks decide lateness. A
jobs process whose clock differs by more than `epoch.allowed_skew_s` must not decide anything.

    every few seconds: one record to a partition of the clock topic that each broker leads
    its append time is between sending and acknowledgement, unless the clocks differ

Promises: as in `agents.clocks`, a slow acknowledgement never counts as a wrong clock, and a clock
counts as wrong until it was compared with a broker. While a broker does not respond, its last
measurement stays valid as long as the broker leads a partition of that topic.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from blendstream.agents.clocks import ClockCheck
from blendstream.agents.jobs.job_context import JobContext
from blendstream.streams.kafka.kafka_clients import append_time_ms, librdkafka_settings

__all__ = ["BrokerClocks", "ClockComparison"]

log = logging.getLogger(__name__)

#: Interval between comparisons.
_EVERY_S: Final = 2.0
#: Interval before the first measurement, during which the jobs cannot work.
_FIRST_AGAIN_S: Final = 0.1
_PROBE: Final = b"clock"


class BrokerClocks:
    """Measured skew of this clock against each broker's. Pure: no Kafka, no clock.

    >>> clocks = BrokerClocks(allowed_s=5.0); clocks.ok
    False
    >>> clocks.appended(1, sent_s=100.0, append_s=100.1, acknowledged_s=100.2); clocks.ok
    True
    >>> clocks.appended(2, sent_s=100.0, append_s=92.0, acknowledged_s=100.2)
    >>> clocks.ok, clocks.skew_s
    (False, 8.0)
    >>> clocks.leading({1}); clocks.ok
    True
    """

    def __init__(self, *, allowed_s: float) -> None:
        self.allowed_s = allowed_s
        self._by_broker: dict[int, ClockCheck] = {}

    def appended(
        self, broker: int, *, sent_s: float, append_s: float, acknowledged_s: float
    ) -> None:
        """Record the three times of one record that this broker appended."""
        check = self._by_broker.setdefault(broker, ClockCheck(allowed_s=self.allowed_s))
        check.appended(sent_s=sent_s, append_s=append_s, acknowledged_s=acknowledged_s)

    def leading(self, brokers: set[int]) -> None:
        """Forget brokers that lead no partition any more: their clocks decide nothing."""
        self._by_broker = {b: check for b, check in self._by_broker.items() if b in brokers}

    @property
    def skew_s(self) -> float:
        """The skew with the largest absolute value; positive when this clock is ahead."""
        measured = [check.skew_s for check in self._by_broker.values() if check.measured]
        return max(measured, key=abs, default=0.0)

    @property
    def measured(self) -> bool:
        """True after the first comparison with a broker."""
        return any(check.measured for check in self._by_broker.values())

    @property
    def ok(self) -> bool:
        """True if this clock is close enough to the clock of every broker that responded."""
        return self.measured and abs(self.skew_s) <= self.allowed_s

    @property
    def trouble(self) -> str:
        """A sentence with the problem and the remedy, for an operator; empty if there is none."""
        if self.ok:
            return ""
        if not self.measured:
            return "this clock has not been compared with the brokers' yet; wait a few seconds"
        off = [b for b, check in self._by_broker.items() if abs(check.skew_s) > self.allowed_s]
        return (
            f"this clock is {self.skew_s:+.1f} s off that of broker {', '.join(map(str, off))}, "
            f"more than the allowed {self.allowed_s:g} s, so this process leaves its leases; set "
            "this clock right (NTP), or the broker's if other jobs processes report the same"
        )


class ClockComparison:
    """Measures the skew against every broker, periodically."""

    def __init__(self, context: JobContext, clocks: BrokerClocks) -> None:
        kafka = context.settings.kafka
        # The leader's acknowledgement is enough: only its clock is measured.
        self._settings = librdkafka_settings(kafka) | {
            "acks": 1,
            "linger.ms": 0,
            "message.timeout.ms": round(kafka.request_timeout_s * 1000),
        }
        self._timeout_s = kafka.request_timeout_s
        self._context = context
        self._topic = context.topics.clock.name
        self._clocks = clocks
        self._producer: Producer | None = None

    async def run(self) -> None:
        """Compare forever. While Kafka is unavailable, the last measurements stay."""
        while True:
            was_off = self._clocks.measured and not self._clocks.ok
            try:
                await self.compare()
            except Exception as error:
                # Continue after any error: otherwise nobody would notice a wrong clock.
                self._producer = None
                log.warning("clocks_not_compared", exc_info=error)
            is_off = self._clocks.measured and not self._clocks.ok
            if is_off and not was_off:
                log.error("clock_skew_exceeded", extra={"skew_s": round(self._clocks.skew_s, 3)})
            elif was_off and not is_off:
                log.info("clock_skew_ended")
            await asyncio.sleep(_EVERY_S if self._clocks.measured else _FIRST_AGAIN_S)

    async def compare(self) -> None:
        """Send one record to each broker that leads a partition of the topic."""
        leaders = await self._context.kafka.leaders(self._topic)
        self._clocks.leading(set(leaders))
        await asyncio.to_thread(self._send, leaders)

    def _send(self, leaders: dict[int, int]) -> None:
        """Send and wait; `leaders` maps each broker to one partition that it leads."""
        if self._producer is None:
            # Without a logger librdkafka writes to standard error.
            self._producer = Producer(self._settings, logger=logging.getLogger(__name__))
        producer = self._producer
        # The first record also opens the connection. The second is faster, so it bounds the skew
        # more closely.
        for _ in range(1 if self._clocks.measured else 2):
            for broker, partition in leaders.items():
                self._ask(producer, broker, partition)
            producer.flush(self._timeout_s + 1)

    def _ask(self, producer: Producer, broker: int, partition: int) -> None:
        sent_ms = self._context.now_ms()

        def delivered(error: KafkaError | None, message: Message) -> None:
            append_ms = None if error is not None else append_time_ms(message)
            if append_ms is not None:
                self._clocks.appended(
                    broker,
                    sent_s=sent_ms / 1000,
                    append_s=self._context.brokers_ms(append_ms) / 1000,
                    acknowledged_s=self._context.now_ms() / 1000,
                )

        producer.produce(self._topic, _PROBE, partition=partition, on_delivery=delivered)
