"""What the largest head list costs a device: processor time and peak memory, in both clients."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from bench._page import Table
from blendstream.blender.device_registry import device_randomizer_for
from blendstream.blender.values.cells import HeadList, RandomizerSpec
from blendstream.blender.values.record import Record
from blendstream.localclient import Limits
from blendstream.streams.wire.head_list_document import HeadListDocument

TITLE = "The largest head list on a device"
TEXT = """
Lists as long as a device's `max_head_list_bytes` allows. A call that schedules a report and sends
it immediately reads the list twice. The columns are the processor time of one reading and the peak
memory of the process, medians of five processes; about 40 MiB are Python's or Node's own. *Honest*
is a list with queries and addresses of common length. *Many short records* is the list with which a
hostile server costs a device most: as many records as fit. The other hostile responses are not
valid lists.
"""

RUNS = 5
ROOT = Path(__file__).parents[1]
MOST_BYTES = Limits(
    epsilon_per_report=1.0,
    delta_per_report=0.0,
    epsilon_per_period=1.0,
    delta_per_period=0.0,
    period_s=1,
).max_head_list_bytes
DAY = 86_400
PYTHON = """
import resource, sys, tempfile, time
from pathlib import Path
from blendstream.localclient import ClientRefused, Limits
from blendstream.localclient.exchange import DeviceRequest, Response
from blendstream.localclient.local_client import _Core, _Parts
body = Path(sys.argv[1]).read_bytes()
limits = Limits(epsilon_per_report=4.0, delta_per_report=1e-5, epsilon_per_period=4.0,
                delta_per_period=1e-5, period_s=86_400)
parts = _Parts(clock=lambda: 102 * 86_400)
core = _Core("https://gateway.example", tempfile.mkdtemp(), limits, _parts=parts)
read = 0
began = time.process_time()
exchange = core._exchange(at_once=True)
try:
    step = core._advance(exchange, None)
    while isinstance(step, DeviceRequest):
        read += step.method == "GET"
        answer = body if step.method == "GET" else b""
        step = core._advance(exchange, Response(200 if answer else 202, {}, answer))
except ClientRefused:
    pass
seconds = (time.process_time() - began) / read
print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""
NODE = """
import { readFileSync } from 'node:fs'
const { Device, MemoryStore } = await import(process.argv[2] + '/webclient/lib/index.js')
const body = readFileSync(process.argv[1])
let read = 0
const fetch = async (address, { method } = {}) => {
  if (method === 'POST') return new Response('', { status: 202 })
  read++
  return new Response(body)
}
const limits = { epsilonPerReport: 4, deltaPerReport: 1e-5, epsilonPerPeriod: 4,
  deltaPerPeriod: 1e-5, periodS: 86400 }
const options = { server: 'https://gateway.example', store: new MemoryStore(), fetch, limits }
const dice = { below: (bound) => bound / 2n }
const device = new Device(options, { clock: () => 102 * 86400, dice })
const began = process.cpuUsage()
await device.maybeReport({ atOnce: true })
const { user, system } = process.cpuUsage(began)
console.log((user + system) / 1e6 / read, process.resourceUsage().maxRSS / 1024)
"""
CLIENTS: dict[str, Callable[[str], list[str]]] = {
    "Python": lambda path: [sys.executable, "-c", PYTHON, path],
    "Node": lambda path: ["node", "--input-type=module", "--eval", NODE, path, str(ROOT)],
}


def head_list(name: str, record: Callable[[int], Record], bytes_each: int) -> bytes:
    """A list with as many records as fit."""
    number = MOST_BYTES // bytes_each
    while True:
        records = tuple(map(record, range(number)))
        spec = RandomizerSpec(name=name, epsilon=4.0)
        wildcards = name == "two-stage"
        heads = HeadList(records, number, spec, wildcards)
        width = device_randomizer_for(heads).cells_per_answer
        spec = RandomizerSpec(name=name, epsilon=4.0, cells_per_answer=width)
        heads = HeadList(records, number, spec, wildcards)
        times = (101 * DAY - DAY, 101 * DAY, 103 * DAY)
        data = HeadListDocument(7, *times, heads, "what a benchmark ranks").to_bytes()
        if len(data) <= MOST_BYTES:
            return data
        number = number * 99 // 100


def repeated(text: str) -> bytes:
    """An array that is as long as allowed, and no head list."""
    return f"[{','.join([text] * ((MOST_BYTES - 1) // (len(text) + 1)))}]".encode()


LISTS: dict[str, Callable[[], bytes]] = {
    "honest": lambda: head_list(
        "subset-or-none",
        lambda i: Record(
            f"a query of some people {i}", f"https://www.site{i}.example/a/page/of/it/{i}.html"
        ),
        100,
    ),
    "many short records": lambda: head_list("two-stage", lambda i: Record(f"{i:x}", "u"), 12),
    "an array of arrays": lambda: repeated("[0]"),
    "an array of objects": lambda: repeated('{"":0}'),
}


def main() -> list[Table]:
    """Each list in each client."""
    table = Table(["list", "size", "client", "processor, one reading", "peak memory"])
    with TemporaryDirectory(prefix="head-list-") as folder:
        path = Path(folder) / "list.json"
        for name, write in LISTS.items():
            size = path.write_bytes(write())
            for client, command in CLIENTS.items():
                runs = [
                    subprocess.run(
                        command(str(path)), capture_output=True, text=True, check=True
                    ).stdout.split()
                    for _ in range(RUNS)
                ]
                seconds, mib = (statistics.median(float(run[i]) for run in runs) for i in (0, 1))
                shown = (f"{size / 2**20:.2f} MiB", client, f"{seconds:.2f} s", f"{mib:.0f} MiB")
                table.add(name, *shown)
    return [table]
