"""Abandon the epochs whose draw was lost when an operator aborted a hanging transaction.

Kafka had acknowledged the records of the transaction, so their noise counts as drawn and must never
be drawn again. Aborted records remain in Kafka's files: a record is aborted if a `read_uncommitted`
consumer returns it and a `read_committed` consumer does not.

Promises: nothing is drawn. Safe to repeat.
Assumes: no jobs process has run since the abort (docs/runbook.md, ReleaseLogBlocked).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

from blendstream.agents.jobs.job_context import JobContext
from blendstream.agents.output import say
from blendstream.blender.values.errors import ParameterError
from blendstream.streams.kafka.kafka_clients import librdkafka_settings
from blendstream.streams.releases import entries
from blendstream.streams.releases.entries import Entry, Kind
from blendstream.streams.releases.epoch_state import ReleaseLogState
from blendstream.streams.releases.log_consumer import LogConsumer

__all__ = ["abandon_aborted"]

_LOST = "its release was lost with an aborted transaction in Kafka and is not drawn again"


async def abandon_aborted(context: JobContext, offset: int) -> None:
    """Print the entries aborted from an offset on; abandon epochs whose draws are among them."""
    async with context.log.fenced_session(Kind.OPERATOR) as session:
        # The session's own record was read, so no earlier record can still be committed.
        sent = await _entries(context, offset, "read_uncommitted")
        committed = await _entries(context, offset, "read_committed")
        if offset not in sent or offset in committed:
            raise ParameterError(
                f"--offset must be the first offset of the aborted transaction, as `blendstream "
                f"doctor` printed it, but no record at offset {offset} was aborted"
            )
        aborted = [e for at in sorted(sent.keys() - committed.keys()) for e in sent[at]]
        for entry in aborted:
            epoch = f" of epoch {entry['epoch']}" if "epoch" in entry else ""
            say(f"aborted: {entry.get('entry', 'unknown')}{epoch}")
        if not aborted:
            say("aborted: no entry")
        lost = _lost_draws(session.log_state, aborted)
        if lost:
            await session.commit([entries.epoch_abandoned(epoch, _LOST) for epoch in lost])
            say(f"abandoned, because a draw was lost: epochs {', '.join(map(str, lost))}")


def _lost_draws(log_state: ReleaseLogState, aborted: Sequence[Entry]) -> list[int]:
    """Return the unfinished epochs for which an aborted entry contained a draw of noise."""
    drawn = {(entry.get("entry"), entry.get("epoch")) for entry in aborted}
    return [
        state.epoch
        for state in log_state.unfinished()
        if state.head_list is None
        and (
            ("head_list_released", state.epoch) in drawn
            or (("click_graph_released", state.epoch) in drawn and state.graph_due)
        )
    ]


async def _entries(
    context: JobContext, offset: int, isolation: Literal["read_committed", "read_uncommitted"]
) -> dict[int, list[Entry]]:
    """Return the entries of all records from an offset on, by offset, without session records."""

    def read() -> dict[int, list[Entry]]:
        kafka = context.settings.kafka
        reader = LogConsumer(
            librdkafka_settings(kafka), context.topics.releases.name, kafka.request_timeout_s,
            isolation,
        )  # fmt: skip
        try:
            return {
                record.offset: [
                    entry
                    for entry in entries.of_record(record.key, record.value)
                    if entry.get("entry") != "fence"
                ]
                for record in reader.to_end(offset)
            }
        finally:
            reader.close()

    return await asyncio.to_thread(read)
