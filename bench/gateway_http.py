"""The gateway beside a bare ASGI "202" on the same server, in the same run.

One report a request: requests/s, CPU a request and latency of both, taking turns. Reports in
batches of 1 000: reports/s. Memory with 10 000 open connections. Kafka is real, with one node and
64 partitions; every accepted report was acknowledged by it.

The two cores are shared by the gateway, the load generator and the broker, so the ratios say more
than the figures, and CPU a request more than requests/s.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack

import httpx
import psutil

from agents.stack import LocalKafka
from agents.stack.ports import free_port
from tests.gateway_service import GatewayService, head_list_document, running

ROUNDS = 3
SECONDS = 4.0
CONNECTIONS = 2000
BATCH = 1000
MANY_CONNECTIONS = 10_000


def main() -> None:
    """Print every figure with its ratio."""
    with ExitStack() as stack:
        kafka = stack.enter_context(LocalKafka())
        service = stack.enter_context(
            running(
                GatewayService(
                    kafka.url,
                    "bench",
                    partitions=64,
                    gateway__connections="20000",
                    gateway__delivery_deadline_s="20",
                    gateway__read_timeout_s="60",
                    epoch__grace_s="120",
                    gateway__batch_entries=str(BATCH),
                )
            )
        )
        asyncio.run(service.create())
        service.log.open_epoch(1, partitions=64)
        service.log.seal_records(1, 64)
        head_list = service.log.publish_head_list(head_list_document(1))
        gateway = service.start().wait_ready()
        bare_port = free_port()
        bare = subprocess.Popen([sys.executable, "-m", "bench._bare_asgi", str(bare_port)])
        stack.callback(bare.wait)
        stack.callback(bare.kill)
        _wait_for(bare_port)
        single(gateway.process.pid, gateway.port, bare.pid, bare_port, head_list)
        batches(gateway.process.pid, gateway.port, head_list)
        many_connections(gateway.process.pid, gateway.port, head_list)


def single(gateway_pid: int, port: int, bare_pid: int, bare_port: int, head_list: str) -> None:
    """One report a request, bare and gateway by turns."""
    names = {"bare": (bare_pid, bare_port), "gateway": (gateway_pid, port)}
    rates: dict[str, list[float]] = {name: [] for name in names}
    cpus: dict[str, list[float]] = {name: [] for name in names}
    last: dict[str, dict[str, float]] = {}
    for pid, where in names.values():
        _load(pid, where, CONNECTIONS, 1.0, 1, head_list)  # warm
    for _ in range(ROUNDS):
        for name, (pid, where) in names.items():
            result, cpu_s = _load(pid, where, CONNECTIONS, SECONDS, 1, head_list)
            rates[name].append(result["requests"] / result["seconds"])
            cpus[name].append(cpu_s / result["requests"])
            last[name] = result
    print(f"one report a request, {CONNECTIONS} connections, {ROUNDS} rounds of {SECONDS:g} s")
    for name in names:
        print(
            f"  {name:8} {statistics.median(rates[name]):9.0f} requests/s"
            f"  {1e6 * statistics.median(cpus[name]):6.1f} µs CPU a request"
            f"  p50 {last[name]['p50_ms']:6.1f} ms  p99 {last[name]['p99_ms']:6.1f} ms"
            f"  {last[name]['statuses']}"
        )
    by_rate = statistics.median(g / b for g, b in zip(rates["gateway"], rates["bare"], strict=True))
    by_cpu = statistics.median(b / g for g, b in zip(cpus["gateway"], cpus["bare"], strict=True))
    print(f"  gateway / bare: {by_rate:.2f} of the requests/s, {by_cpu:.2f} by CPU a request")


def batches(pid: int, port: int, head_list: str) -> None:
    """Many reports a request."""
    rates, cpus = [], []
    for _ in range(ROUNDS):
        result, cpu_s = _load(pid, port, 32, SECONDS, BATCH, head_list)
        assert set(result["statuses"]) == {"202"}, result["statuses"]
        rates.append(result["requests"] * BATCH / result["seconds"])
        cpus.append(cpu_s / result["requests"] / BATCH)
    print(
        f"batches of {BATCH}: {statistics.median(rates):9.0f} reports/s"
        f"  {1e6 * statistics.median(cpus):6.2f} µs CPU a report"
        f"  p99 {result['p99_ms']:.0f} ms a request"
    )


def many_connections(pid: int, port: int, head_list: str) -> None:
    """Memory before, and with every connection open after it has sent a report."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    process = psutil.Process(pid)
    before = process.memory_info().rss
    peak, after = asyncio.run(_hold_open(process, port, head_list))
    each = (after - before) / MANY_CONNECTIONS
    print(
        f"{MANY_CONNECTIONS} connections: {before / 2**20:.0f} MiB before, {peak / 2**20:.0f} MiB "
        f"with a report of each under way, {after / 2**20:.0f} MiB idle "
        f"({each / 1024:.1f} KiB a connection)"
    )


async def _hold_open(process: psutil.Process, port: int, head_list: str) -> tuple[int, int]:
    from bench._gateway_load import Bodies  # noqa: PLC0415

    bodies = Bodies(1, head_list)
    pairs = []
    for _ in range(MANY_CONNECTIONS):
        pairs.append(await asyncio.open_connection("127.0.0.1", port))
    for _, writer in pairs:
        writer.write(bodies.request())
    peak = process.memory_info().rss
    accepted = 0
    for reader, _ in pairs:
        accepted += b" 202 " in await reader.readline()
        peak = max(peak, process.memory_info().rss) if accepted % 500 == 0 else peak
    if accepted < MANY_CONNECTIONS:
        print(f"only {accepted} of {MANY_CONNECTIONS} were accepted in time")
    after = process.memory_info().rss
    for _, writer in pairs:
        writer.close()
    return max(peak, after), after


def _load(
    pid: int, port: int, connections: int, seconds: float, batch: int, head_list: str
) -> tuple[dict[str, float], float]:
    server = psutil.Process(pid)
    before = server.cpu_times()
    arguments = [str(a) for a in (port, connections, seconds, batch, head_list)]
    run = subprocess.run(
        [sys.executable, "-m", "bench._gateway_load", *arguments],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ,
    )
    after = server.cpu_times()
    used = after.user + after.system - before.user - before.system
    return json.loads(run.stdout), used


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            httpx.post(f"http://127.0.0.1:{port}/", content=b"{}")
        except httpx.TransportError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit("the bare server did not start")


if __name__ == "__main__":
    main()
