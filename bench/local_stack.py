"""How long the local stack takes to start and to come back, beside a bare start of Java."""

import statistics
import subprocess
import time
from collections.abc import Callable

from blendstream.agents.local import LocalKafka, LocalRedis
from blendstream.agents.local.jars import find_java

RUNS = 3


def main() -> None:
    """Print medians, and their ratio to a start of the Java machine that does nothing."""
    java = median_s(
        lambda: subprocess.run([find_java(), "-version"], capture_output=True, check=True)
    )
    print(f"   java -version            {java:6.2f} s      1")
    with LocalKafka() as kafka:
        show("Kafka, killed, ready again", median_s(kafka.restart), java)
    show("Kafka, new, ready", median_s(lambda: LocalKafka().close()), java)
    with LocalRedis() as redis:
        show("Redis, killed, ready again", median_s(redis.restart), java)
    show("Redis, new, ready", median_s(lambda: LocalRedis().close()), java)


def median_s(action: Callable[[], object]) -> float:
    """The median time of a few runs."""
    times = []
    for _ in range(RUNS):
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def show(what: str, seconds: float, baseline: float) -> None:
    """One line of the table."""
    print(f"   {what:<26}{seconds:6.2f} s  {seconds / baseline:5.1f}")
