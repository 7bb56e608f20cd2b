"""Several threads and processes on one folder, and what the client needs to be installed."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from blendstream.localclient import AsyncLocalClient, LocalClient, ResultCode
from blendstream.localclient.local_client import _Parts
from tests.localclient.device_process import Devices
from tests.localclient.support import (
    END,
    HOUR,
    LISTED,
    START,
    UNTIL,
    Gateway,
    ManualClock,
    SeededDice,
    device,
    head_list,
    limits,
    spec,
    state_of,
)
from tests.service.waiting import until


def test_threads_that_report_at_once_spend_once(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    gateway.show(head_list())
    clients = [device(gateway, tmp_path, clock, seed=seed) for seed in range(8)]
    with ThreadPoolExecutor(8) as pool:
        outcomes = {f.result().code for f in [pool.submit(c.report_now) for c in clients]}
    assert ResultCode.SENT in outcomes
    assert outcomes <= {ResultCode.SENT, ResultCode.NOTHING_NEW}
    assert len(set(gateway.bodies)) == 1
    assert len(state_of(tmp_path).budget_entries) == 1


def test_threads_that_search_at_once_lose_nothing(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    clients = [device(gateway, tmp_path, clock, seed=seed) for seed in range(4)]

    def search(client: LocalClient) -> None:
        for record in LISTED * 10:
            client.record(*record)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(search, clients))
    assert clients[0].status().records_held == 120


@pytest.mark.faults
def test_processes_on_one_folder_spend_once(gateway: Gateway, tmp_path: Path) -> None:
    gateway.show(head_list())
    several = [Devices.start() for _ in range(3)]
    life = {"search_at": [START + HOUR], "call_at": [END + HOUR, UNTIL - 1]}
    try:
        for _ in range(3):
            with ThreadPoolExecutor(3) as pool:
                runs = [
                    pool.submit(d.live, server=gateway.url, folder=str(tmp_path), **life)
                    for d in several
                ]
                assert {run.result() for run in runs} == {0}
    finally:
        for running in several:
            running.stop()
    assert len(set(gateway.bodies)) == 1
    assert len(state_of(tmp_path).budget_entries) == 1


def test_a_device_needs_numpy_and_httpx_and_nothing_of_the_server() -> None:
    """A browser should not have to install Kafka."""
    code = (
        "import sys\n"
        "class Barrier:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        banned = ('scipy', 'opendp', 'dp_accounting', 'faust', 'aiokafka', 'redis',\n"
        "                  'msgspec', 'confluent_kafka', 'prometheus_client', 'cryptography',\n"
        "                  'uvicorn')\n"
        "        if name.split('.')[0] in banned: raise ImportError(name)\n"
        "sys.meta_path.insert(0, Barrier())\n"
        "import blendstream.localclient.cli, blendstream.localclient.search\n"
        "ours = {m for m in sys.modules if m.startswith('blendstream.streams.')}\n"
        "assert 'blendstream.agents' not in sys.modules\n"
        "assert all(m.startswith('blendstream.streams.wire') for m in ours), ours\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_dice_cannot_be_chosen_by_an_application(tmp_path: Path) -> None:
    """No public argument, environment variable or file reaches them."""
    public = [p for p in inspect.signature(LocalClient).parameters if not p.startswith("_")]
    assert public == ["server", "folder", "limits", "opt_in", "http"]
    client = LocalClient("https://gateway.example", tmp_path, limits())
    assert type(client._context.dice).__name__ == "SystemRandomSource"


async def test_the_loop_reports_by_itself_and_survives_refusals(
    gateway: Gateway, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`run()` in a task is all that an application on asyncio needs."""
    started = time.monotonic()
    own = limits(min_window_s=1)
    clock = lambda: END + time.monotonic() - started  # noqa: E731
    client = AsyncLocalClient(gateway.url, tmp_path, own, _parts=_Parts(clock, SeededDice(1)))
    gateway.show(head_list(randomizer=spec(epsilon=9.0)))
    running = asyncio.create_task(client.run())
    try:
        await until(lambda: "localclient_refused" in caplog.text, "the refusal")
        gateway.show(head_list(reports_until_s=int(clock()) + 4))
        await until(lambda: len(gateway.posted) == 1, "the report")
    finally:
        running.cancel()
    assert "this device's epsilon_per_report=4.0" in caplog.text
