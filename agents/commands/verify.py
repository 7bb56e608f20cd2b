"""Check that the release log, Redis and the topics say the same; says what differs and what to do.

Reads the log from its very beginning, recent epochs' documents in the log and in their topics, and
the counts of unreleased epochs. Changes nothing. Exits with 1 when anything differs.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter

from agents.commands.reading import connected
from agents.job_context import JobContext
from agents.keeper import released_through
from blender.registry import randomizer_for
from streams.epochs import Share, Stem
from streams.errors import StoreMismatch
from streams.leftovers import held_epochs
from streams.publications import read_publications
from streams.records.head_list_document import HeadListDocument
from streams.releases.book import EpochState, ReleaseBook
from streams.releases.documents import DocumentReference
from streams.settings import Settings, load_settings

__all__ = ["add_arguments", "differences", "run"]


def add_arguments(_parser: argparse.ArgumentParser) -> None:
    """Nothing of its own."""


def run(arguments: argparse.Namespace) -> int:
    """Print what differs."""
    settings = load_settings(arguments.settings).settings
    return asyncio.run(_run(settings))


async def _run(settings: Settings) -> int:
    async with connected(settings) as context:
        found = await differences(context)
    for line in found:
        print(line)
    print("log, Redis and topics agree" if not found else f"{len(found)} differences")
    return 1 if found else 0


async def differences(context: JobContext) -> list[str]:
    """One sentence for each difference."""
    book = await context.log.catch_up()
    found = await _log_against_itself(context, book)
    found += await _log_against_topics(context, book)
    for stem in Stem:
        found += await _log_against_redis(context, book, stem)
    return found


async def _log_against_itself(context: JobContext, book: ReleaseBook) -> list[str]:
    """The whole log gives the same ledger as the checkpoint does; nothing was released twice."""
    whole, released = await context.log.read_all()
    found = []
    if whole.ledger.lifetime != book.ledger.lifetime:
        found.append(
            "the ledger from the last checkpoint must equal the one from the whole log, and does "
            "not: do not open another epoch; restore the log from a backup and compare"
        )
    found += [
        f"epoch {epoch} must have one {name}, the log has {times}: readers take the first; tell "
        "the maintainers"
        for (name, epoch), times in sorted(released.items())
        if times > 1
    ]
    return found


async def _log_against_topics(context: JobContext, book: ReleaseBook) -> list[str]:
    found = []
    topics = context.topics
    for topic, name in (
        (topics.head_lists.name, "head list"),
        (topics.estimates.name, "publication"),
        (topics.click_graphs.name, "click graph"),
    ):
        published = await read_publications(context.settings.kafka, topic, book.epochs.keys())
        for epoch, state in sorted(book.epochs.items()):
            reference = _document(state, name)
            if reference is None:
                continue
            try:
                data = await context.log.read_document(reference)
            except StoreMismatch as error:
                found.append(f"epoch {epoch}: {error}")
                continue
            if published.get(epoch) != data:
                what = "is missing" if epoch not in published else "has other bytes"
                found.append(
                    f"the {name} of epoch {epoch} {what} in {topic}: restart `blendstream jobs` "
                    "after deleting the key that ends in :published: and this topic's name in "
                    "Redis, and it is written again from the log"
                )
    return found


def _document(state: EpochState, name: str) -> DocumentReference | None:
    if name == "head list":
        return None if state.head_list is None else state.head_list.head_list
    publication = state.estimates if name == "publication" else state.click_graph
    return None if publication is None else publication.document


async def _log_against_redis(context: JobContext, book: ReleaseBook, stem: Stem) -> list[str]:
    found = []
    topic, tables = context.topics.of(stem), context.tables(stem)
    through = released_through(book, stem)
    described = (await context.kafka.describe([topic.name]))[topic.name]
    ends = await context.kafka.ends(topic.name, range(topic.partitions))
    for partition in range(topic.partitions):
        where = f"{topic.name} partition {partition}"
        state = await tables.stored_state(partition)
        if state.applying is not None:
            found.append(f"{where}: a script failed half-way; run `blendstream rebuild`")
        if state.offset is not None and state.offset > ends[partition]:
            # One broker's answer may be old.
            ends[partition] = await context.kafka.furthest_end(topic.name, partition)
        if state.offset is not None and state.offset > ends[partition]:
            found.append(
                f"{where}: counted up to {state.offset}, the log ends at {ends[partition]}: this "
                "Redis belongs to another Kafka, or the topic was made again"
            )
        if described is not None and state.topic_id not in (None, described.id):
            found.append(f"{where}: counted from another topic of this name; see `rebuild`")
        for epoch in sorted(book.epochs):
            totals: Counter[str] = Counter(await tables.totals(partition, epoch))
            refused = sum(n for name, n in totals.items() if name.startswith("refused:"))
            if totals["received"] != totals["counted"] + refused:
                found.append(
                    f"{where}: epoch {epoch} received {totals['received']}, counted "
                    f"{totals['counted']} and refused {refused}: run `blendstream rebuild`"
                )
    found += [
        f"{held.topic} partition {held.partition}: epoch {held.epoch} is released and still has "
        "counts in Redis: the jobs remove them; are they running?"
        for held in await held_epochs(context.redis, context.settings.topics.prefix, topic.name)
        if held.epoch <= through
    ]
    for epoch in (n for n in sorted(book.epochs) if n > through):
        found += await _totals_against_tables(context, book.epochs[epoch], stem)
    return found


async def _totals_against_tables(context: JobContext, state: EpochState, stem: Stem) -> list[str]:
    """As many records or cells are held as the entries that were counted make."""
    topic, tables = context.topics.of(stem), context.tables(stem)
    partitions = range(topic.partitions)
    counted = 0
    for partition in partitions:
        totals = await tables.totals(partition, state.epoch)
        # Entries that say "no record" are counted and add to no record.
        counted += totals.get("counted", 0) - totals.get("none", 0)
    if stem is Stem.OPTIN_RECORDS:
        kind, wanted, held = "records", counted, 0
        for share in Share:
            held += sum((await tables.record_counts(state.epoch, share, partitions)).values())
    elif state.head_list is None:
        return []
    else:
        data = await context.log.read_document(state.head_list.head_list)
        randomizer = randomizer_for(HeadListDocument.from_bytes(data).head_list)
        width = randomizer.cells_per_answer * randomizer.spec.answers
        cells = await tables.cell_counts(state.epoch, partitions, state.head_list.cells)
        kind, wanted, held = f"reports of {width} cells", counted * width, int(cells.sum())
    if held == wanted:
        return []
    return [
        f"{topic.name}: epoch {state.epoch} counted {counted} {kind}, the tables hold {held}: run "
        "`blendstream rebuild` (or look again if workers are counting)"
    ]
