"""The runner of random schedules, without running any."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.faults.breakable_servers import pick
from tests.faults.chaos import GROUP, Group, groups_of, left_of, totals
from tests.faults.soak_figures import LEVEL, rise
from tests.faults.three_brokers import ThreeBrokers, WithRedisCluster, WithSentinels


def test_every_seed_is_in_one_group_of_each_kind():
    groups = groups_of(["counting", "releasing"], 1, 2 * GROUP + 5)
    for kind in ("counting", "releasing"):
        seeds = [s for g in groups if g.kind == kind for s in range(g.first, g.last + 1)]
        assert seeds == list(range(1, 2 * GROUP + 6))


def test_a_run_goes_on_where_it_stopped_and_begins_anew_with_another_commit():
    groups = [Group("counting", 1, 20), Group("counting", 21, 40), Group("counting", 41, 60)]
    line = {"kind": "counting", "commit": "abc", "schedules": "20"}
    lines = [line | {"seeds": "1-20", "wrong": "0"}, line | {"seeds": "21-40", "wrong": "1"}]
    assert left_of(groups, lines, "abc") == groups[1:], "a wrong one is run again"
    assert left_of(groups, lines, "def") == groups
    assert totals(lines) == "40 counting"


def test_growth_is_told_from_a_level_with_noise():
    minutes = [float(n) for n in range(60)]
    level = [100 + n % 7 for n in range(60)]
    assert abs(rise(minutes, [float(v) for v in level])) < LEVEL
    assert rise(minutes, [10 + n for n in minutes]) > LEVEL


@pytest.mark.parametrize("kind", [WithRedisCluster, WithSentinels])
def test_what_only_one_redis_has_takes_the_place_of_waits(kind: type[ThreeBrokers]):
    """So seeds that were run before resharding was a step still break the same parts."""
    nowhere: Any = None
    servers = kind(nowhere, nowhere)  # type: ignore[call-arg]
    now = servers.steps()
    before = [*now[:-2], (1.0, servers.wait)]
    drawn = [(pick(np.random.default_rng(s), now), pick(np.random.default_rng(s), before))
             for s in range(500)]  # fmt: skip
    changed = [(new, old) for new, old in drawn if new != old]
    assert changed
    assert set(changed) == {(servers.own_step, servers.wait)}
