"""Processor time and memory of importing `localclient`, compared with Python alone."""

from __future__ import annotations

import statistics
import subprocess
import sys

from bench._page import Table

TITLE = "Import of LocalClient"
TEXT = """
Processor time and peak memory of importing `localclient`, medians of nine processes, compared with
Python alone. The import loads no NumPy, which a device does not need.
"""

RUNS = 9
SCRIPT = """
import sys, time
began = time.process_time()
{imports}
seconds = time.process_time() - began
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(seconds, int(peak) / 1000, "numpy" in sys.modules)
"""


def measured(imports: str) -> tuple[float, float, bool]:
    """The median of a few processes; and whether NumPy was loaded."""
    runs = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT.format(imports=imports)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for _ in range(RUNS)
    ]
    seconds, megabytes = (statistics.median(float(run[i]) for run in runs) for i in (0, 1))
    return seconds, megabytes, any(run[2] == "True" for run in runs)


def main() -> list[Table]:
    """Python alone, the client, and the client with what its first request loads."""
    table = Table(["process", "processor", "peak memory", "NumPy"])
    for name, imports in (
        ("Python alone", "pass"),
        ("import of localclient", "import blendstream.localclient"),
        (
            "with its first request",
            "import blendstream.localclient, blendstream.localclient.http_transport",
        ),
    ):
        seconds, megabytes, numpy = measured(imports)
        table.add(name, f"{seconds:.3f} s", f"{megabytes:.1f} MB", "loaded" if numpy else "no")
    return [table]
