"""The gateway, alone and behind nginx, compared with a bare ASGI "202" in the same run.

One report per request: requests/s, CPU per request and latency of each, in alternation. Behind
nginx the gateway listens on a unix socket, CPU is that of both, and clients connect without TLS.
Reports in batches of 1 000: reports/s. Memory with 10 000 open connections. Kafka is real, with one
node and 64 partitions; it acknowledged every accepted report.

The gateway, the load generator and the broker share two cores, so ratios are more reliable than
absolute figures, and CPU per request more than requests/s.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil

from bench._cores import Spent
from bench._page import Table
from blendstream.agents.local import LocalKafka
from blendstream.agents.local.local_edge import LocalEdge
from blendstream.agents.local.ports import free_port
from tests.service.builder import running_service
from tests.service.waiting import wait_for
from tests.service.written_log import head_list_document

TITLE = "The gateway"
TEXT = """
The processor time of a gateway per report, alone and behind nginx (`deploy/edge/nginx.conf`, unix
socket, no TLS). The baseline is a bare ASGI application that reads the body and responds 202, on
stock uvicorn with the gateway's parser and event loop.

Kafka is real, with 64 partitions, and acknowledged every accepted report. The servers alternate, in
five rounds of 4 s. Processor time is that of the server, or of server and nginx together.

- *Waiting for a timer*: the bare application responds after 60 ms, as a report waits for its frame
  and for Kafka. Waiting alone costs about 10 µs, because the event loop takes a second step, and
  because 512 requests in memory no longer fit the processor's cache.
- The ratio depends on the number of reports per frame. A frame costs about a third of the
  processor time of a report, however many reports it contains. With 64 partitions and
  `gateway.linger_s` = 0.05 a frame has six reports at 8 000 requests/s, three at 4 000; with a
  longer `gateway.linger_s` it has more.
- The gateway's own code takes some 12 µs per report: two keyed hashes, adding the report to a
  frame, JSON, limits, validation and counts. Kafka's client takes the rest.
- A billion devices that report once in 30 daily epochs send 400 reports per second on average.
- TLS comes on top, mostly once per connection, and is not measured here.
"""

ROUNDS = 5
SECONDS = 4.0
CONNECTIONS = 512
BATCH = 1000
#: About as long as a report waits for its frame and for Kafka.
WAIT_S = 0.06
#: A billion devices that report once in 30 daily epochs.
MEAN_REPORTS_PER_S = 400
MANY_CONNECTIONS = 10_000


def main() -> list[Table]:
    """One report per request, batches, and many connections."""
    with ExitStack() as stack:
        kafka = stack.enter_context(LocalKafka())
        service = stack.enter_context(
            running_service(
                kafka.url,
                partitions=64,
                gateway__delivery_deadline_s="20",
                epoch__grace_s="120",
                gateway__batch_entries=str(BATCH),
            )
        )
        service.releases.open_epoch(1)
        service.releases.seal_records(1)
        head_list = service.releases.publish_head_list(head_list_document(1)).id
        gateway = service.start_gateway().wait_ready(timeout_s=120)
        bare = _bare(stack)
        waiting = _bare(stack, str(WAIT_S))
        edge = stack.enter_context(
            # All senders have one address here.
            LocalEdge(plain_port=free_port(), changes=[("limit_conn address 100;", "")])
        )
        behind = service.start_gateway(gateway__unix_socket=str(edge.socket())).wait_ready(
            timeout_s=120
        )
        assert edge.plain_port is not None
        alone = Served(gateway.port, [gateway.pid])
        servers = {
            "bare": bare,
            "bare, waiting for a timer": waiting,
            "gateway": alone,
            "gateway behind nginx": Served(edge.plain_port, [behind.pid, edge.server.pid]),
        }
        more = Table(["what", "measured"])
        rates = single(servers, head_list, more)
        batches(alone, head_list, more)
        many_connections(gateway.pid, gateway.port, head_list, more)
        return [rates, more]


def _bare(stack: ExitStack, *arguments: str) -> Served:
    """Start a bare server, which ends with the stack."""
    port = free_port()
    bare = subprocess.Popen([sys.executable, "-m", "bench._bare_asgi", str(port), *arguments])
    stack.callback(bare.wait)
    stack.callback(bare.kill)
    wait_for(
        lambda: httpx.post(f"http://127.0.0.1:{port}/", content=b"{}"),
        "the bare server",
        20,
        forgive=httpx.TransportError,
    )
    return Served(port, [bare.pid])


@dataclass(frozen=True)
class Served:
    """A port, and the processes whose CPU time serves it; their children count, too."""

    port: int
    pids: list[int]

    @property
    def processes(self) -> list[psutil.Process]:
        found = [psutil.Process(pid) for pid in self.pids]
        return [*found, *(child for one in found for child in one.children(recursive=True))]


@dataclass
class Rounds:
    """One server's results in all rounds; it accepted every request."""

    rates: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    answered_us: list[int] = field(default_factory=list)
    #: Who had the machine's cores meanwhile, round by round; the load generator is among others.
    cores: list[str] = field(default_factory=list)

    def add(self, served: Served, connections: int, batch: int, head_list: str) -> None:
        """One round; an answer that is no 202 spoils the run, since it may be a cheap one."""
        ran, cpu_s = _load(served, connections, SECONDS, batch, head_list)
        assert set(ran["statuses"]) == {"202"}, ran["statuses"]
        requests = ran["statuses"]["202"]
        self.rates.append(requests * batch / ran["seconds"])
        self.cpu_s.append(cpu_s / requests / batch)
        self.answered_us += ran["answered_us"]
        self.cores.append(ran["cores"].replace("workers", "server").replace("redis 0.00, ", ""))

    def percentile_ms(self, percent: float) -> float:
        """Over the requests of all rounds together."""
        return float(np.percentile(self.answered_us, percent)) / 1000


def single(servers: dict[str, Served], head_list: str, more: Table) -> Table:
    """One report per request, the servers alternating; the ratios are added to `more`."""
    rounds = {name: Rounds() for name in servers}
    for served in servers.values():
        _load(served, CONNECTIONS, 1.0, 1, head_list)  # warm
    for _ in range(ROUNDS):
        for name, served in servers.items():
            rounds[name].add(served, CONNECTIONS, 1, head_list)
    table = Table(
        ["server", "requests/s", "processor per report", "p50", "p99", "requests, all 202",
         "cores in the last round"],
        f"One report per request, {CONNECTIONS} connections, {ROUNDS} rounds of {SECONDS:g} s",
    )  # fmt: skip
    for name, found in rounds.items():
        table.add(
            name, f"{statistics.median(found.rates):,.0f}",
            f"{1e6 * statistics.median(found.cpu_s):.1f} µs", f"{found.percentile_ms(50):.1f} ms",
            f"{found.percentile_ms(99):.1f} ms", f"{len(found.answered_us):,}", found.cores[-1],
        )  # fmt: skip
    bare, waiting, gateway, edge = (rounds[name] for name in servers)
    by_rate = statistics.median(g / b for g, b in zip(gateway.rates, bare.rates, strict=True))
    by_cpu = statistics.median(b / g for g, b in zip(gateway.cpu_s, bare.cpu_s, strict=True))
    by_wait = statistics.median(w / g for g, w in zip(gateway.cpu_s, waiting.cpu_s, strict=True))
    by_p99 = gateway.percentile_ms(99) / bare.percentile_ms(99)
    more.add("gateway of bare, by processor time per report", f"{by_cpu:.2f}")
    more.add("gateway of bare that waits, by processor time per report", f"{by_wait:.2f}")
    more.add("gateway of bare, by requests/s", f"{by_rate:.2f}")
    more.add("gateway of bare, by p99", f"{by_p99:.2f}")
    added = [e - g for e, g in zip(edge.cpu_s, gateway.cpu_s, strict=True)]
    times = [e / g for e, g in zip(edge.cpu_s, gateway.cpu_s, strict=True)]
    each_s = statistics.median(added)
    more.add("nginx, processor per report", f"{1e6 * each_s:.1f} µs")
    more.add("with nginx, of the gateway alone", f"{statistics.median(times):.2f}")
    for name, seconds in (("gateway", statistics.median(gateway.cpu_s)), ("nginx", each_s)):
        share = f"{100 * MEAN_REPORTS_PER_S * seconds:.1f} % of a core"
        more.add(f"{name}, a billion devices ({MEAN_REPORTS_PER_S} reports/s)", share)
    return table


def batches(served: Served, head_list: str, more: Table) -> None:
    """Many reports per request."""
    found = Rounds()
    for _ in range(ROUNDS):
        found.add(served, 32, BATCH, head_list)
    batch = f"batches of {BATCH:,}"
    more.add(f"{batch}, processor per report", f"{1e6 * statistics.median(found.cpu_s):.2f} µs")
    more.add(f"{batch}, reports/s", f"{statistics.median(found.rates):,.0f}")
    requests = f"{len(found.answered_us):,} requests, all 202"
    more.add(f"{batch}, p99 of {requests}", f"{found.percentile_ms(99):.0f} ms")


def many_connections(pid: int, port: int, head_list: str, more: Table) -> None:
    """Memory before, and with every connection open after it has sent a report."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    process = psutil.Process(pid)
    before = process.memory_info().rss
    peak, after = asyncio.run(_hold_open(process, port, head_list))
    each = (after - before) / MANY_CONNECTIONS
    more.add("memory before", f"{before / 2**20:.0f} MiB")
    many = f"memory with {MANY_CONNECTIONS:,} connections"
    more.add(f"{many}, a report of each in flight", f"{peak / 2**20:.0f} MiB")
    more.add(f"{many}, idle", f"{after / 2**20:.0f} MiB, {each / 1024:.1f} KiB each")


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
    assert accepted == MANY_CONNECTIONS, f"only {accepted} were accepted in time"
    after = process.memory_info().rss
    for _, writer in pairs:
        writer.close()
    return max(peak, after), after


def _load(
    served: Served, connections: int, seconds: float, batch: int, head_list: str
) -> tuple[dict[str, Any], float]:
    servers = served.processes
    before, shared = _cpu_s(servers), Spent.now(servers)
    with tempfile.NamedTemporaryFile() as result:
        words = (served.port, connections, seconds, batch, head_list, result.name)
        arguments = [str(word) for word in words]
        subprocess.run(
            [sys.executable, "-m", "bench._gateway_load", *arguments], check=True, env=os.environ
        )
        ran = json.loads(Path(result.name).read_text())
    ran["cores"] = Spent.now(servers).since(shared)
    return ran, _cpu_s(servers) - before


def _cpu_s(processes: list[psutil.Process]) -> float:
    spent = [process.cpu_times() for process in processes]
    return sum(one.user + one.system for one in spent)


if __name__ == "__main__":
    main()
