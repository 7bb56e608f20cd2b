"""Time to start and restart the local stack, compared with a bare start of Java."""

import statistics
import subprocess
import time
from collections.abc import Callable

from bench._page import Table
from blendstream.agents.local import LocalKafka, LocalRedis
from blendstream.agents.local.jars import find_java

TITLE = "The local stack"
TEXT = """
The time that Kafka and Redis need to start, and to start again after a kill, medians of three,
compared with a start of Java that does nothing. `blendstream demo` and the tests wait for these
starts.
"""

RUNS = 3


def main() -> list[Table]:
    """Medians, and their ratio to a start of the Java machine that does nothing."""
    table = Table(["start", "wall clock", "ratio"])

    def show(what: str, seconds: float) -> None:
        table.add(what, f"{seconds:.2f} s", f"{seconds / java:.1f}")

    java = median_s(
        lambda: subprocess.run([find_java(), "-version"], capture_output=True, check=True)
    )
    show("`java -version`", java)
    with LocalKafka() as kafka:
        show("Kafka, killed, ready again", median_s(kafka.restart))
    show("Kafka, new, ready", median_s(lambda: LocalKafka().close()))
    with LocalRedis() as redis:
        show("Redis, killed, ready again", median_s(redis.restart))
    show("Redis, new, ready", median_s(lambda: LocalRedis().close()))
    return [table]


def median_s(action: Callable[[], object]) -> float:
    """The median time of a few runs."""
    times = []
    for _ in range(RUNS):
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
    return statistics.median(times)
