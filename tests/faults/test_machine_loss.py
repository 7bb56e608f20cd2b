"""Machines are lost, and nothing that was accepted: three brokers, replicated Redis, whole service.

Each test is one service that lives through several faults, one after the other, each at a moment
of an epoch; at its end all that was ever published is compared with everyone's fate.

Not a failure: a draw that was thrown away before anyone could see it; an epoch published late; a
gap in the windows while nobody led; a process that exits and is started again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from blendstream.agents.local import LocalRedisCluster, LocalSentinels
from tests.faults.fault_times import write_fault, write_verdict
from tests.faults.peer_links import LinkedCluster
from tests.faults.replicated_service import (
    MOMENTS,
    Replicated,
    ReplicatedService,
    replicated_service,
)

pytestmark = [pytest.mark.timeout(1200), pytest.mark.more]
Faults = Sequence[tuple[str, str]]
WORST = ("sealing", "drawing", "commit")


@pytest.fixture(scope="module")
def redis_cluster() -> Iterator[LocalRedisCluster]:
    with LocalRedisCluster() as nodes:
        yield nodes


@pytest.fixture(scope="module")
def sentinels() -> Iterator[LocalSentinels]:
    with LocalSentinels() as nodes:
        yield nodes


async def _live_through(session: str, faults: Faults, running: ReplicatedService) -> None:
    slow = []
    for fault, moment in faults:
        recovery = await running.disturb(fault, at=MOMENTS[moment])
        write_fault(session, fault, moment, recovery, running)
        if not recovery.whole:
            slow.append(f"{fault}, {moment}: {recovery}")
    try:
        await running.assert_right()
    except AssertionError as error:
        write_verdict(session, running, str(error).splitlines()[-1])
        raise
    write_verdict(session, running, "right")
    assert not slow, slow


async def _session(
    name: str, faults: Faults, cluster: LinkedCluster, redis: Replicated, folder: Path
) -> None:
    async with replicated_service(cluster, redis, folder) as running:
        await _live_through(name, faults, running)


async def test_a_broker_and_a_redis_master_lost_while_noise_is_drawn(
    fault_cluster, redis_cluster, tmp_path: Path
):
    """The short version of all that follows: both machines at once, one of them with counts that
    its replica has not seen."""
    both = ("master killed, tail missing", "leader killed")
    async with replicated_service(
        fault_cluster, redis_cluster, tmp_path, each=1, window_s=12
    ) as running:
        recovery = await running.disturb(*both, at=MOMENTS["drawing"])
        write_fault("short", " and ".join(both), "drawing", recovery, running)
        await running.assert_right()
        assert recovery.whole, recovery


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["killed", "paused", "restarted"])
@pytest.mark.parametrize("role", ["leader", "follower", "controller"])
async def test_one_broker_lost_at_any_moment(
    fault_cluster, redis_cluster, tmp_path: Path, role: str, verb: str
):
    """The service goes on with the other two; the one that returns is a follower."""
    faults = [(f"{role} {verb}", moment) for moment in WORST]
    await _session(f"{role} {verb}", faults, fault_cluster, redis_cluster, tmp_path)


@pytest.mark.slow
async def test_a_broker_cut_off_from_its_peers(fault_cluster, redis_cluster, tmp_path: Path):
    """Clients still reach it; test_broker_cut_off.py does this at every single step."""
    roles = ("leader", "controller", "follower")
    faults = [(f"{role} cut off", moment) for role, moment in zip(roles, WORST, strict=True)]
    await _session("cut off", faults, fault_cluster, redis_cluster, tmp_path)


@pytest.mark.slow
async def test_all_brokers_restarted_in_turn(fault_cluster, redis_cluster, tmp_path: Path):
    """An upgrade, under load and while an epoch is sealed."""
    faults = [("all restarted in turn", moment) for moment in ("under load", "sealing")]
    await _session("rolling restart", faults, fault_cluster, redis_cluster, tmp_path)


@pytest.mark.slow
async def test_two_of_three_brokers_gone(fault_cluster, redis_cluster, tmp_path: Path):
    """Nothing is accepted while nothing can be kept; it resumes when they are back."""
    faults = [("two of three gone", moment) for moment in ("under load", "drawing", "commit")]
    await _session("two gone", faults, fault_cluster, redis_cluster, tmp_path)


@pytest.mark.slow
async def test_a_redis_cluster_that_changes(fault_cluster, redis_cluster, tmp_path: Path):
    """Promoted without the newest writes, failed over by an operator, resharded under load."""
    faults = [
        *(("master killed, tail missing", moment) for moment in MOMENTS),
        ("master paused", "sealing"),
        ("planned fail-over", "under load"),
        ("planned fail-over", "drawing"),
        ("resharded", "under load"),
        ("resharded", "sealing"),
    ]
    await _session("redis cluster", faults, fault_cluster, redis_cluster, tmp_path)


@pytest.mark.slow
async def test_a_primary_replaced_by_sentinel(fault_cluster, sentinels, tmp_path: Path):
    """The same behind Sentinel."""
    faults = [
        *(("master killed, tail missing", moment) for moment in MOMENTS),
        ("master paused", "sealing"),
        ("planned fail-over", "under load"),
        ("planned fail-over", "drawing"),
    ]
    await _session("redis sentinel", faults, fault_cluster, sentinels, tmp_path)


@pytest.mark.slow
async def test_processes_killed_and_paused(fault_cluster, redis_cluster, tmp_path: Path):
    """Workers, jobs and gateways, on the replicated servers."""
    kinds = ("worker", "jobs", "gateway")
    faults = [(f"{kind} {verb}", "under load") for kind in kinds for verb in ("killed", "paused")]
    await _session("processes", faults, fault_cluster, redis_cluster, tmp_path)
