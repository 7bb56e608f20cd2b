"""The jobs' clock against every broker's.

Windows, seals and reporting times are decided by the jobs' clock, and lateness by the brokers'. A
jobs process whose clock is off by more than `epoch.allowed_skew_s` must not decide anything.

    every few seconds: one record to a partition of the clock topic that each broker leads
    its append time lies between sending and acknowledgement, unless the clocks differ

Promises: as in `agents.clocks`, a slow acknowledgement never looks like a wrong
clock, and a clock that was compared with no broker yet is not right. A broker that does not answer
says nothing: what it said before holds as long as it leads a partition of that topic.
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

#: How often every broker's clock is asked for.
_EVERY_S: Final = 2.0
#: The same before the first answer, when nothing is done.
_FIRST_AGAIN_S: Final = 0.1
_PROBE: Final = b"clock"


class BrokerClocks:
    """What is known of this clock beside each broker's. Pure: no Kafka, no clock.

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
        """Take note of the three times of one record that this broker appended."""
        check = self._by_broker.setdefault(broker, ClockCheck(allowed_s=self.allowed_s))
        check.appended(sent_s=sent_s, append_s=append_s, acknowledged_s=acknowledged_s)

    def leading(self, brokers: set[int]) -> None:
        """Forget brokers that no longer lead anything: their clocks decide nothing."""
        self._by_broker = {b: check for b, check in self._by_broker.items() if b in brokers}

    @property
    def skew_s(self) -> float:
        """The largest skew, with its sign: above 0 where this clock is ahead."""
        measured = [check.skew_s for check in self._by_broker.values() if check.measured]
        return max(measured, key=abs, default=0.0)

    @property
    def measured(self) -> bool:
        """Whether any broker was compared with."""
        return any(check.measured for check in self._by_broker.values())

    @property
    def ok(self) -> bool:
        """Whether this clock is close enough to that of every broker that answered."""
        return self.measured and abs(self.skew_s) <= self.allowed_s

    @property
    def trouble(self) -> str:
        """What is wrong and what to do, for an operator; empty while the clock is right."""
        if self.ok:
            return ""
        if not self.measured:
            return "this clock has not been compared with the brokers' yet; this passes by itself"
        off = [b for b, check in self._by_broker.items() if abs(check.skew_s) > self.allowed_s]
        return (
            f"this clock is {self.skew_s:+.1f} s off that of broker {', '.join(map(str, off))}, "
            f"more than the allowed {self.allowed_s:g} s, so this process gives up its leases; set "
            "this clock right (NTP), or the broker's if other jobs processes say the same"
        )


class ClockComparison:
    """Asks every broker for its time, again and again."""

    def __init__(self, context: JobContext, clocks: BrokerClocks) -> None:
        kafka = context.settings.kafka
        # One acknowledgement is enough: a broker's clock is its own, in sync or not.
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
        """For ever; Kafka away leaves what is known as it is."""
        while True:
            was_off = self._clocks.measured and not self._clocks.ok
            try:
                await self.compare()
            except Exception as error:
                # This must continue after any error, or a wrong clock would not be noticed.
                self._producer = None
                log.warning("clocks_not_compared", exc_info=error)
            is_off = self._clocks.measured and not self._clocks.ok
            if is_off and not was_off:
                log.error("clock_skew_exceeded", extra={"skew_s": round(self._clocks.skew_s, 3)})
            elif was_off and not is_off:
                log.info("clock_is_right_again")
            await asyncio.sleep(_EVERY_S if self._clocks.measured else _FIRST_AGAIN_S)

    async def compare(self) -> None:
        """One record to each broker that leads a partition of the topic."""
        leaders = await self._context.kafka.leaders(self._topic)
        self._clocks.leading(set(leaders))
        await asyncio.to_thread(self._send, leaders)

    def _send(self, leaders: dict[int, int]) -> None:
        """`leaders` has one partition for each broker."""
        if self._producer is None:
            # Its own lines would go to standard error.
            self._producer = Producer(self._settings, logger=logging.getLogger(__name__))
        producer = self._producer
        # Twice: the first record finds the way to the broker, the second takes no longer than it
        # must, and says more.
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
