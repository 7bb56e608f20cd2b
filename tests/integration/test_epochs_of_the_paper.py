"""One epoch of the profile `paper` through the real jobs: head list, reports, publication."""

from __future__ import annotations

import json

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from blendstream.agents.jobs.job_context import RandomnessSources
from blendstream.blender.profiles import build_head_list
from blendstream.blender.values.interfaces import OptinCounts
from blendstream.blender.values.record import Record
from blendstream.streams.budget.ledger import Cost
from blendstream.streams.names import OptinSubgroup
from blendstream.streams.releases.entries import EpochOutcome, Kind
from blendstream.streams.releases.epoch_state import Stage
from blendstream.streams.releases.optin_release import write_optin_release
from blendstream.streams.wire.estimates_document import EstimatesDocument, Participants
from tests.doubles_jobs import RepeatableNoise
from tests.service.epochs import epoch_service
from tests.service.jobs import Clock, bench, count_records, count_reports, some_records
from tests.streams.wire.exact_schemas import exact_schema

REPORTS = 500


@pytest.mark.timeout(120)
async def test_an_epoch_of_the_paper_is_charged_drawn_and_published(kafka, redis_server):
    """Its devices spend δ, its cells tell ⟨q,⋆⟩ apart, T orders its list: nothing of that is so in
    the profile that all other tests run."""
    rng, clock = np.random.default_rng(6), Clock()
    dice = RandomnessSources(RepeatableNoise(6), lambda: np.random.default_rng(6))
    sent = some_records(0, rng)
    async with (
        epoch_service(kafka.url, redis_server.url, privacy__profile="paper") as made,
        bench(made, clock, dice=dice) as jobs,
    ):
        await jobs.keep()
        await count_records(made, 0, sent)
        state = (await made.log_state()).epochs[0]
        charge, privacy = state.parameters.charge, state.parameters.plan.privacy
        assert charge.clients == charge.optin == Cost(privacy.epsilon, privacy.delta)
        assert charge.clients.delta > 0
        clock.now_ms = state.parameters.records_sealable_at_ms
        await jobs.keep()
        assert await jobs.run(Kind.HEAD_LISTS)

        state = await made.until_stage(0, Stage.REPORTING)
        expected = build_head_list("paper", _counts(sent), privacy, RepeatableNoise(6))
        head_list, _ = await made.head_list(state)
        assert head_list == expected.head_list
        assert head_list.query_wildcards
        assert head_list.randomizer.delta == charge.clients.delta
        assert await made.document(state.head_list.optin) == write_optin_release(expected)

        await count_reports(made, 0, state.head_list.cells, REPORTS, rng)
        clock.now_ms = state.head_list.reports_until_ms + 3_600_000 // 10
        await jobs.keep()
        assert await jobs.run(Kind.ESTIMATES)
        state = await made.until_stage(0, Stage.PUBLISHED)
        assert state.estimates.outcome is EpochOutcome.COMPLETE
        data = (await made.published(made.topics.estimates.name))[0]

    Draft202012Validator(exact_schema("estimates")).validate(json.loads(data))
    document = EstimatesDocument.from_bytes(data)
    assert document.mechanisms["profile"] == "paper"
    assert document.mechanisms["randomizer"] == "two-stage"
    people = (sent[share].total() for share in (OptinSubgroup.S, OptinSubgroup.T))
    assert document.participants == Participants(*people, clients=REPORTS)
    assert {r.query for r in document.records if r.url} <= {r.query for r in head_list.records}
    assert document.agreement is not None


def _counts(sent: dict) -> OptinCounts:
    texts = sorted(sent[OptinSubgroup.S].keys() | sent[OptinSubgroup.T].keys())
    s, t = (np.array([sent[share][x] for x in texts], dtype=np.int64) for share in OptinSubgroup if
            share is not OptinSubgroup.GRAPH)  # fmt: skip
    records = [Record(*text.decode().split("\t")) for text in texts]
    return OptinCounts(records, s, t, int(s.sum()), int(t.sum()))
