"""Check that the release log, Redis and the topics agree; print each difference and what to do.

Reads the log from its beginning, recent epochs' documents in the log and in their topics, and the
counts of unreleased epochs. Changes nothing. Exits with 1 if anything differs.

The service may run during the check: the command repeats failed comparisons after some seconds and
reports only differences that it finds both times. While workers count, a count must be between two
bounds; while they are idle or stopped, the comparison is exact.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from collections.abc import Callable

from blendstream.agents.commands.operator_context import connected, read_log
from blendstream.agents.jobs.job_context import JobContext
from blendstream.agents.output import add_json, print_json
from blendstream.agents.plurals import counted
from blendstream.blender.registry import randomizer_for
from blendstream.streams.errors import StoreMismatch
from blendstream.streams.names import InputStream, OptinSubgroup
from blendstream.streams.releases.compacted_topics import read_publications
from blendstream.streams.releases.documents import DocumentReference
from blendstream.streams.releases.epoch_state import EpochState, ReleaseLogState
from blendstream.streams.settings import Settings, load_settings
from blendstream.streams.tables.optin_records import OptinRecordTable
from blendstream.streams.tables.record_rows import row_counts
from blendstream.streams.tables.stale_epochs import stored_epochs
from blendstream.streams.wire.head_list_document import HeadListDocument

__all__ = ["differences", "run"]

#: Differences as sentences, by key. The second check compares keys, because the numbers in a
#: sentence may have changed.
_Differences = dict[tuple[object, ...], str]

#: Pause between the two checks. Shorter than a job's step (commit, then publish; release, then
#: delete counts) would report normal work; longer only makes the operator wait.
_AGAIN_AFTER_S = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --json."""
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Check and print; return 1 if anything differs."""
    settings = load_settings(arguments.settings).settings
    return asyncio.run(_run(settings, as_json=arguments.json))


async def _run(settings: Settings, *, as_json: bool = False) -> int:
    async with connected(settings) as context:
        await read_log(context)  # Warns if a transaction blocks the log.
        progress = _quiet if as_json else print
        lines = await differences(context, again_after_s=_AGAIN_AFTER_S, progress=progress)
    if as_json:
        print_json({"agree": not lines, "differences": lines})
        return 1 if lines else 0
    for line in lines:
        print(line)
    print("log, Redis and topics agree" if not lines else counted(len(lines), "difference"))
    return 1 if lines else 0


def _quiet(_line: str) -> None:
    """Discard a line of progress."""


async def differences(
    context: JobContext,
    *,
    again_after_s: float = 0.0,
    progress: Callable[[str], None] = _quiet,
) -> list[str]:
    """Return a sentence per difference that two checks find."""
    first = await _check(context)
    if not first:
        return []
    progress(f"{counted(len(first), 'difference')} at first; checking again in {again_after_s:g} s")
    await asyncio.sleep(again_after_s)
    second = await _check(context)
    return [sentence for identity, sentence in second.items() if identity in first]


async def _check(context: JobContext) -> _Differences:
    log_state = await context.log.catch_up()
    differences = await _log_against_itself(context, log_state)
    differences |= await _log_against_topics(context, log_state)
    for stem in InputStream:
        differences |= await _log_against_redis(context, log_state, stem)
    return differences


async def _log_against_itself(context: JobContext, log_state: ReleaseLogState) -> _Differences:
    """Compare the ledger read from the checkpoint with the whole log's; find double releases."""
    whole, released = await context.log.read_all()
    differences: _Differences = {}
    if whole.ledger.lifetime != log_state.ledger.lifetime:
        differences["ledger",] = (
            "the ledger from the last checkpoint must equal the one from the whole log, and does "
            "not: do not open another epoch; restore the log from a backup and compare"
        )
    differences |= {
        ("released", name, epoch): (
            f"epoch {epoch} must have one {name}, the log has {times}: readers use the first; "
            "report this to the maintainers"
        )
        for (name, epoch), times in sorted(released.items())
        if times > 1
    }
    return differences


async def _log_against_topics(context: JobContext, log_state: ReleaseLogState) -> _Differences:
    differences: _Differences = {}
    topics = context.topics
    for topic, name in (
        (topics.head_lists.name, "head list"),
        (topics.estimates.name, "publication"),
        (topics.click_graphs.name, "click graph"),
    ):
        published = await read_publications(context.settings.kafka, topic, log_state.epochs.keys())
        for epoch, state in sorted(log_state.epochs.items()):
            reference = _document(state, name)
            if reference is None:
                continue
            try:
                data = await context.log.read_document(reference)
            except StoreMismatch as error:
                differences["document", name, epoch] = f"epoch {epoch}: {error}"
                continue
            if published.get(epoch) != data:
                fault = "is missing" if epoch not in published else "has other bytes"
                differences["published", name, epoch] = (
                    f"the {name} of epoch {epoch} {fault} in {topic}: delete the Redis key that "
                    "ends in :published: and this topic's name, and restart `blendstream jobs`, "
                    "which writes it again from the log"
                )
    return differences


def _document(state: EpochState, name: str) -> DocumentReference | None:
    if name == "head list":
        return None if state.head_list is None else state.head_list.head_list
    publication = state.estimates if name == "publication" else state.click_graph
    return None if publication is None else publication.document


async def _log_against_redis(
    context: JobContext, log_state: ReleaseLogState, stem: InputStream
) -> _Differences:
    differences: _Differences = {}
    topic, tables = context.topics.of(stem), context.tables(stem)
    through = log_state.released_through(stem)
    described = (await context.kafka.describe([topic.name]))[topic.name]
    partitions = range(topic.partitions)
    states = [await tables.stored_state(partition) for partition in partitions]
    # Read after the states: otherwise a state could include entries beyond an older end.
    ends = await context.kafka.ends(topic.name, partitions)
    for partition, state in enumerate(states):
        where = f"{topic.name} partition {partition}"
        if state.applying is not None:
            differences["half", where] = (
                f"{where}: a script failed half-way; run `blendstream rebuild`"
            )
        if state.offset is not None and state.offset > ends[partition]:
            # The end may be a stale one; ask every broker.
            ends[partition] = await context.kafka.max_end_offset(topic.name, partition)
        if state.offset is not None and state.offset > ends[partition]:
            differences["end", where] = (
                f"{where}: counted up to {state.offset}, the log ends at {ends[partition]}: this "
                "Redis belongs to another Kafka, or the topic was recreated"
            )
        if described is not None and state.topic_id not in (None, described.id):
            differences["topic", where] = (
                f"{where}: counted from another topic of this name; see `rebuild`"
            )
        for epoch in sorted(log_state.epochs):
            totals: Counter[str] = Counter(await tables.totals(partition, epoch))
            refused = sum(n for name, n in totals.items() if name.startswith("refused:"))
            if totals["received"] != totals["counted"] + refused:
                differences["totals", where, epoch] = (
                    f"{where}: epoch {epoch} received {totals['received']}, counted "
                    f"{totals['counted']} and refused {refused}: run `blendstream rebuild`"
                )
    for stored in await stored_epochs(context.redis, context.settings.topics.prefix, topic.name):
        if stored.epoch <= through:
            differences["stored", stored] = (
                f"{stored.topic} partition {stored.partition}: epoch {stored.epoch} is released "
                "and still has counts in Redis: the jobs remove them; are they running?"
            )
    for epoch in (n for n in sorted(log_state.epochs) if n > through):
        differences |= await _totals_against_tables(context, log_state.epochs[epoch], stem)
    return differences


async def _totals_against_tables(
    context: JobContext, state: EpochState, stem: InputStream
) -> _Differences:
    """Compare the sum of the counts in Redis with the number of counted entries.

    Workers may count during this check. Both numbers only grow, so the sum must lie between the
    totals read before and after it.
    """
    topic, tables = context.topics.of(stem), context.tables(stem)
    partitions = range(topic.partitions)

    async def counted() -> int:
        totals = [await tables.totals(partition, state.epoch) for partition in partitions]
        # Entries that say "no record" are counted and add to no record.
        return sum(fields.get("counted", 0) - fields.get("none", 0) for fields in totals)

    before = await counted()
    if isinstance(tables, OptinRecordTable):
        kind, width, stored = "records", 1, 0
        for subgroup in OptinSubgroup:
            async for rows in tables.record_rows(state.epoch, subgroup, partitions):
                stored += int(row_counts(rows).sum())
    elif state.head_list is None:
        return {}
    else:
        data = await context.log.read_document(state.head_list.head_list)
        randomizer = randomizer_for(HeadListDocument.from_bytes(data).head_list)
        width = randomizer.cells_per_answer * randomizer.spec.answers
        cells = await tables.cell_counts(state.epoch, partitions, state.head_list.cells)
        kind, stored = f"reports of {width} cells", int(cells.sum())
    after = await counted()
    if before * width <= stored <= after * width:
        return {}
    return {
        ("sum", topic.name, state.epoch): (
            f"{topic.name}: epoch {state.epoch} counted {after} {kind}, the tables hold {stored}: "
            "run `blendstream rebuild`"
        )
    }
