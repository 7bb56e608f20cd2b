"""Several records a user (m_O > 1): judged, stored and drawn by the service's own parts."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from blendstream.agents.jobs.job_context import RandomnessSources
from blendstream.blender.profiles import build_head_list
from blendstream.blender.values.interfaces import OptinCounts
from blendstream.blender.values.record import Record
from blendstream.streams.names import OptinSubgroup
from blendstream.streams.releases.entries import Kind
from blendstream.streams.releases.optin_release import write_optin_release
from blendstream.streams.tables.batch_verdict import Refusal
from tests.agents.worker.judged_entries import delivered, judged_records, opened, records
from tests.doubles_jobs import RepeatableNoise
from tests.release_entries import log_state_of
from tests.service.epochs import epoch_service
from tests.service.jobs import Clock, bench, count_tally

pytestmark = pytest.mark.more

TEXTS = [(b"query %d" % n, b"https://site-%d.example/" % n) for n in range(4)]
PEOPLE, EPOCH = 600, 1


def sent_by(who: int) -> list[tuple[int, int, bytes, bytes]]:
    """Two records in three slots: the one in slot 0 is sent again."""
    first, second = TEXTS[who % 4], TEXTS[(who + 1) % 4]
    return [(who, 0, *first), (who, 1, *second), (who, 2, *first)]


def share_of(who: int) -> OptinSubgroup:
    """Which share somebody falls into, from what becomes of their first record alone."""
    (share,) = judged_records(delivered(records(sent_by(who)[0]))).epochs[EPOCH].records
    return share


@pytest.mark.timeout(120)
async def test_a_user_counts_once_for_each_of_m_distinct_records_and_t_by_one(kafka, redis_server):
    """Noise for m_O = 3 is made for counts that one user moves by one, three of them at most."""
    log_state = log_state_of(opened(EPOCH, records_per_user=3))
    entries = [entry for who in range(PEOPLE) for entry in sent_by(who)]
    tally = judged_records(delivered(records(*entries)), log_state=log_state).epochs[EPOCH]
    shares = {who: share_of(who) for who in range(PEOPLE)}
    people = Counter(shares.values())
    assert tally.refused == {
        Refusal.REPEATED: people[OptinSubgroup.S] + people[OptinSubgroup.GRAPH],
        Refusal.SPARE: 2 * people[OptinSubgroup.T],
    }

    s, t = Counter[Record](), Counter[Record]()
    for who, share in shares.items():
        held = [Record(q.decode(), u.decode()) for _, _, q, u in sent_by(who)]
        s.update(set(held) if share is OptinSubgroup.S else ())
        t.update(held[:1] if share is OptinSubgroup.T else ())
    listed = sorted(s)
    expected = OptinCounts(
        records=listed,
        selection=np.array([s[r] for r in listed]),
        estimation=np.array([t[r] for r in listed]),
        selection_users=people[OptinSubgroup.S],
        estimation_users=people[OptinSubgroup.T],
    )

    dice = RandomnessSources(RepeatableNoise(5), lambda: np.random.default_rng(5))
    clock = Clock()
    async with (
        epoch_service(kafka.url, redis_server.url, privacy__records_per_optin_user="3") as made,
        bench(made, clock, dice=dice) as jobs,
    ):
        await jobs.keep()
        await count_tally(made, 0, tally)
        state = (await made.log_state()).epochs[0]
        clock.now_ms = state.parameters.records_sealable_at_ms
        await jobs.keep()
        assert await jobs.run(Kind.HEAD_LISTS)
        state = (await made.log_state()).epochs[0]

        drawn = build_head_list(
            "sharp", expected, state.parameters.plan.privacy, RepeatableNoise(5)
        )
        assert drawn.mechanisms.selector == "gaussian-histogram"
        assert drawn.mechanisms.optin_estimator == "noisy-counts"
        assert len(drawn.head_list.records) == 4
        assert state.head_list is not None
        head_list, _ = await made.head_list(state)
        assert head_list == drawn.head_list
        assert await made.document(state.head_list.optin) == write_optin_release(drawn)
