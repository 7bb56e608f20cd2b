"""Whole epochs on a real broker and Redis: what was accepted is what is published."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from blendstream.agents.jobs.estimates import build_estimates
from blendstream.agents.jobs.job_context import RandomnessSources
from blendstream.blender.noise.exact_noise import laplace_variance
from blendstream.blender.over_time.epoch_memory import EpochMemory
from blendstream.blender.over_time.publication_filter import Publication, RecordFilter
from blendstream.blender.profiles import build_head_list
from blendstream.streams.names import InputStream, OptinSubgroup
from blendstream.streams.releases.entries import EpochOutcome
from blendstream.streams.releases.epoch_state import Stage
from blendstream.streams.releases.filtered_estimates import (
    FilterMemory,
    publication_of,
    rotates,
    with_filtered,
)
from blendstream.streams.releases.optin_release import read_optin_release, write_optin_release
from blendstream.streams.releases.sealed_counts import ReportsRead
from blendstream.streams.wire.estimates_document import EstimatesDocument, Participants
from blendstream.streams.wire.frames import Marker
from blendstream.streams.wire.head_list_document import HeadListDocument
from blendstream.streams.wire.schemas import schema
from blendstream.streams.wire.statements import head_list_quantity
from tests.doubles_jobs import RepeatableNoise
from tests.service.epochs import EpochService, epoch_service, optin_counts, take_part
from tests.service.settings import SHORT
from tests.streams.wire.exact_schemas import exact_schema

SEED = 7


@pytest.mark.timeout(300)
async def test_three_epochs_are_published_as_blender_computes_them_from_what_was_sent(
    kafka, redis_server
):
    """Record by record at sealing, byte by byte when published, with the same dice."""
    async with epoch_service(kafka.url, redis_server.url, **SHORT) as made:
        made.start_worker()
        made.start_jobs("--seed", str(SEED))
        await asyncio.gather(
            *(take_part(made, epoch, np.random.default_rng(epoch)) for epoch in range(3))
        )
        known, before = (), RecordFilter.start()
        for epoch in range(3):
            # The head list is what blender draws from exactly what was sent.
            state = (await made.log_state()).epochs[epoch]
            head_list, _ = await made.head_list(state)
            expected = build_head_list(
                "sharp", optin_counts(made, epoch), state.parameters.plan.privacy,
                RepeatableNoise(SEED), known, EpochMemory(epoch, before, 50_000),
            )  # fmt: skip
            assert head_list == expected.head_list
            assert head_list.listed > 0
            # T's counts are not in the list; they are in the opt-in estimates beside it.
            assert state.head_list is not None
            assert await made.document(state.head_list.optin) == write_optin_release(expected)
            # What it forgot is new again in the next epoch, and not followed any more.
            listed, gone = head_list.records, set(expected.forgotten)
            known = tuple(record for place, record in enumerate(listed) if place not in gone)
            before = before.drop(r for r in before.records if r not in set(listed)).follow(
                Publication(
                    epoch, listed, np.array(head_list.noisy_counts), expected.selection_users,
                    laplace_variance(expected.selection_scale), listed=0,
                    forgotten=tuple(listed[place] for place in sorted(gone)),
                )
            )  # fmt: skip

        memory = FilterMemory()
        for epoch in range(3):
            state = await made.until_stage(epoch, Stage.PUBLISHED, timeout_s=60)
            assert state.estimates is not None
            assert state.estimates.outcome is EpochOutcome.COMPLETE, made.logs()
            data = await made.document(state.estimates.document)
            document = EstimatesDocument.from_bytes(data)
            Draft202012Validator(exact_schema("estimates")).validate(json.loads(data))
            assert document.participants == Participants(
                selection=made.sent[epoch, OptinSubgroup.S].total(),
                estimation=made.sent[epoch, OptinSubgroup.T].total(),
                clients=made.reports[epoch],
            )

            # Computed here from what was sent and released, with the same dice: the same bytes.
            assert state.head_list is not None
            head_list, _ = await made.head_list(state)
            release = read_optin_release(await made.document(state.head_list.optin), head_list)
            cells = np.array(
                [made.reported[epoch][c] for c in range(len(head_list.cells))], dtype=np.int64
            )
            dice = RandomnessSources(RepeatableNoise(SEED), lambda: np.random.default_rng(SEED))
            again = build_estimates(
                state, release, ReportsRead(cells, made.reports[epoch], False), (), dice
            )
            # The filtered estimate beside it, from what was published before and nothing else.
            heads = HeadListDocument.from_bytes(await made.document(state.head_list.head_list))
            assert with_filtered(again, heads, memory).to_bytes() == data
            publication = publication_of(heads, document)
            assert publication is not None
            memory = memory.follow(publication, clients_rotate=rotates(document))

        # The same bytes wherever they are read.
        async def all_published() -> bool:
            return set(range(3)) <= (await made.published(made.topics.estimates.name)).keys()

        await made.until(all_published, 20)
        heads = await made.published(made.topics.head_lists.name)
        estimates = await made.published(made.topics.estimates.name)
        log_state = await made.log_state()
        for epoch in range(3):
            state = log_state.epochs[epoch]
            assert state.head_list is not None
            assert state.estimates is not None
            assert heads[epoch] == await made.document(state.head_list.head_list)
            assert HeadListDocument.from_bytes(heads[epoch]).id == state.head_list.head_list.id
            Draft202012Validator(schema("head-list")).validate(json.loads(heads[epoch]))
            assert HeadListDocument.from_bytes(heads[epoch]).quantity == head_list_quantity(1)
            assert estimates[epoch] == await made.document(state.estimates.document)

        await _raw_data_ends(made)


async def _raw_data_ends(made: EpochService) -> None:
    """No text that was sent is left in Redis, in a log line, or readable from any topic, but for
    what was published."""

    async def nothing_raw_in_redis() -> bool:
        held = b"".join(k + v for k, v in (await made.redis_keys()).items())
        return not any(text.encode() in held for text in made.texts)

    await made.until(nothing_raw_in_redis, 20, "an end of raw counts in Redis")
    written = "".join(part.output() for part in made.parts)
    assert not any(text in written for text in made.texts)

    async def records_removed() -> bool:
        # Markers of later seals may be left: they hold nothing of anybody's.
        left = await asyncio.to_thread(made.frames, InputStream.OPTIN_RECORDS)
        return all(isinstance(f, Marker) for found in left.values() for f in found.values())

    await made.until(records_removed, 30, "an end of raw records in Kafka")

    def readable(held: bytes) -> set[str]:
        return {text for text in made.texts if text.encode() in held}

    results = (made.topics.head_lists, made.topics.estimates, made.topics.click_graphs)
    documents = [doc for topic in results for doc in (await made.published(topic.name)).values()]
    published = readable(b"".join(documents))
    assert published
    assert published != made.texts, "some were too rare to be published, and must be nowhere"
    everything = await asyncio.to_thread(made.everything_in_kafka)
    assert everything.keys() >= {topic.name for topic in made.topics.all()}
    allowed = {topic.name for topic in (*results, made.topics.releases)}
    for topic, held in everything.items():
        assert readable(held) <= (published if topic in allowed else set()), topic
    assert readable(everything[made.topics.releases.name]) == published, "the check can see"
