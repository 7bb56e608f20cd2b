"""End the transactions that block the release log, and report what happened to their entries.

    1. a turn record of every kind of job: a transaction of that kind that hangs is committed by it,
       one that is merely open is aborted by its producer's start;
    2. what still hangs is aborted, by a marker that is written to the partition itself;
    3. entries that were aborted with it are compared with the log: an epoch whose head list or
       click graph was among them is abandoned, since its noise was drawn and is never drawn again.

Promises: nothing is drawn. An entry that Kafka acknowledged is kept wherever Kafka allows it.
Assumes: no jobs process runs (`refuse_while_jobs_run`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Literal

from blendstream.agents.jobs.job_context import JobContext
from blendstream.agents.output import say
from blendstream.streams.errors import StoreUnavailable
from blendstream.streams.kafka.kafka_clients import librdkafka_settings
from blendstream.streams.kafka.kafka_transactions import OpenTransaction, transaction_admin
from blendstream.streams.releases import entries
from blendstream.streams.releases.blocked import BlockedLog, find_blocked
from blendstream.streams.releases.entries import Entry, Kind
from blendstream.streams.releases.log_consumer import LogConsumer

__all__ = ["unblock"]

#: Entries of releases that noise was drawn for.
_DRAWN = ("head_list_released", "click_graph_released")
_VANISHED = "its release vanished with a transaction that hung in Kafka, and is not drawn again"

#: Where an entry lies, and what it says.
Placed = tuple[int, Entry]


async def unblock(context: JobContext) -> bool:
    """Unblock the log, reporting each step; whether it can be read to its end again."""
    blocked = await _look(context)
    if blocked is None:
        say("the release log is not blocked: readers reach its end. Nothing was done.")
        return True
    say(blocked.sentence())
    hidden = await _entries(context, blocked.committed_end, "read_uncommitted")
    await asyncio.gather(*(context.log.end_hanging(kind) for kind in Kind))
    say("a turn record of every kind of job was committed")
    left = await _still_open(context, blocked.end)
    if left is not None and not await _abort(context, left):
        return False
    await _account_for(context, blocked.committed_end, hidden)
    say("the log is read to its end. Next: `blendstream doctor`, `blendstream verify`, then the "
          "jobs")  # fmt: skip
    return True


async def _look(context: JobContext) -> BlockedLog | None:
    return await find_blocked(context.settings.kafka, context.kafka, context.topics.releases.name)


async def _still_open(context: JobContext, end: int) -> BlockedLog | None:
    """What hangs before this offset, or is still open there after waiting for it to end."""
    deadline = time.monotonic() + context.settings.kafka.request_timeout_s
    while True:
        left = await _look(context)
        if left is None or left.committed_end >= end:
            return None
        if left.hanging or time.monotonic() > deadline:
            return left
        await asyncio.sleep(0.5)


async def _abort(context: JobContext, left: BlockedLog) -> bool:
    """Abort what hangs; True if nothing is open any more."""
    topic = left.topic
    for hanging in left.hanging:
        try:
            async with transaction_admin(context.settings.kafka) as admin:
                await admin.abort(topic, 0, hanging)
        except StoreUnavailable as error:
            say(f"{_named(hanging)} still hangs and could not be aborted: {error}. A user who "
                  f"may alter the cluster can, with:\n\n  kafka-transactions.sh --bootstrap-server "
                  f"{context.settings.kafka.bootstrap} abort --topic {topic} --partition 0 "
                  f"--start-offset {hanging.first_offset}\n\nThen run this again.")  # fmt: skip
            return False
        say(f"{_named(hanging)} still hung and was aborted")
    still = await _still_open(context, left.end)
    if still is not None:
        say(f"{still.sentence()}. Wait for that, and run this again.")
    return still is None


def _named(transaction: OpenTransaction) -> str:
    return (
        f"the transaction of producer {transaction.producer_id}, epoch "
        f"{transaction.producer_epoch}, from offset {transaction.first_offset} on"
    )


async def _account_for(context: JobContext, offset: int, hidden: Sequence[Placed]) -> None:
    """Report which hidden entries are in the log now; abandon epochs whose draw is not."""
    async with context.log.turn(Kind.OPERATOR) as turn:
        # After the turn's own record was read: nothing can be committed before it any more.
        committed = {at for at, _ in await _entries(context, offset, "read_committed")}
        for at, entry in hidden:
            became = "in the log" if at in committed else "aborted"
            say(f"  offset {at}: {_described(entry)}: {became}")
        vanished = {
            (entry["entry"], entry["epoch"])
            for at, entry in hidden
            if at not in committed and entry.get("entry") in _DRAWN
        }
        lost = [
            state.epoch
            for state in turn.book.unfinished()
            if state.head_list is None
            and (
                ("head_list_released", state.epoch) in vanished
                or (("click_graph_released", state.epoch) in vanished and state.graph_due)
            )
        ]
        if lost:
            await turn.commit([entries.epoch_abandoned(epoch, _VANISHED) for epoch in lost])
            say(f"abandoned, since a draw of theirs was lost: epochs {', '.join(map(str, lost))}")
        if any(at not in committed and e.get("entry") == "epoch_abandoned" for at, e in hidden):
            say("an abandonment was lost: abandon that epoch again")


def _described(entry: Entry) -> str:
    """The name and epoch of an entry, without its other fields."""
    of = f" of epoch {entry['epoch']}" if "epoch" in entry else ""
    return f"{entry.get('entry', 'unknown')}{of}"


async def _entries(
    context: JobContext, offset: int, isolation: Literal["read_committed", "read_uncommitted"]
) -> list[Placed]:
    """The entries from an offset on, without turn records."""

    def read() -> list[Placed]:
        kafka = context.settings.kafka
        reader = LogConsumer(
            librdkafka_settings(kafka), context.topics.releases.name, kafka.request_timeout_s,
            isolation,
        )  # fmt: skip
        try:
            return [
                (record.offset, entry)
                for record in reader.to_end(offset)
                for entry in entries.of_record(record.key, record.value)
                if entry.get("entry") != "turn"
            ]
        finally:
            reader.close()

    return await asyncio.to_thread(read)
