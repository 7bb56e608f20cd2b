"""From judged records to what a job draws from: who is in S, who in T, and how many people."""

from __future__ import annotations

from collections import Counter

import pytest

from blendstream.blender.values.interfaces import OptinCounts
from blendstream.streams.names import OptinSubgroup
from blendstream.streams.releases.sealed_counts import GraphRead, SealedCounts
from tests.agents.worker.judged_entries import delivered, judged_records, opened, records
from tests.release_entries import log_state_of
from tests.streams.releases.counted_partitions import Counted

PEOPLE, EPOCH, M_O = 200, 1, 3
TEXTS = [(b"query %d" % n, b"https://site-%d.example/" % n) for n in range(7)]


def sent_by(who: int, most: int) -> list[tuple[int, int, bytes, bytes]]:
    """Up to three records, or "none", sent in slots from the last to the first."""
    if who % 10 == 0:
        return [(who, 0, b"", b"")]
    return [(who, slot, *TEXTS[(who + slot) % 7]) for slot in range(1 + who % most)][::-1]


async def read(
    entries: list[tuple[int, int, bytes, bytes]], per_user: int
) -> tuple[OptinCounts, GraphRead]:
    log_state = log_state_of(opened(EPOCH, records_per_user=per_user))
    tally = judged_records(delivered(records(*entries)), log_state=log_state).epochs[EPOCH]
    counts = SealedCounts(Counted(tally), 1, "test")
    optin = await counts.read_optin(EPOCH, [1], complete=True)
    return optin.counts, await counts.read_graph(EPOCH, [1], complete=True)


@pytest.mark.parametrize("per_user", [1, M_O])
async def test_everyone_is_one_participant_of_one_share_and_counts_there_alone(per_user: int):
    """By hand, from each person alone: a count of records as participants would publish, without
    noise, how many records people hold; T in S's counts would be people counted in two releases."""
    share_of = {}
    for who in range(PEOPLE):
        alone, graph = await read([(who, 0, *TEXTS[0])], 1)
        users = alone.selection_users, alone.estimation_users, graph.users
        assert sorted(users) == [0, 0, 1]
        share_of[who] = list(OptinSubgroup)[users.index(1)]
    entries = [entry for who in range(PEOPLE) for entry in sent_by(who, per_user)]

    counts, graph = await read(entries, per_user)

    expected: dict[OptinSubgroup, Counter[str]] = {share: Counter() for share in OptinSubgroup}
    for who, slot, query, _ in entries:
        if query and (share_of[who] is not OptinSubgroup.T or slot == 0):
            expected[share_of[who]][query.decode()] += 1
    for column, share in (
        (counts.selection, OptinSubgroup.S),
        (counts.estimation, OptinSubgroup.T),
    ):
        got = {r.query: int(n) for r, n in zip(counts.table, column, strict=True) if n}
        assert got == expected[share]
    assert {record.query: n for record, n in graph.clicks.items()} == expected[OptinSubgroup.GRAPH]
    people = Counter(share_of.values())
    users = counts.selection_users, counts.estimation_users, graph.users
    assert users == tuple(people[share] for share in OptinSubgroup)
    assert min(users) > 10
    if per_user > 1:
        assert counts.selection.sum() > 1.3 * counts.selection_users
