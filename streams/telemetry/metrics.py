"""Metrics that several processes share, and declaration of metrics. Each process has a registry.

So a process exports only its own metrics: a gateway must not report that no worker is ready. A
process's other metrics are in its folder's `metrics.py`, declared by `Meters`. No query, URL, user
id or contributor key is ever a label or a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

from blendstream.streams.version import version_of

__all__ = ["SERVER_UP", "Meters", "process_registry"]

_Metric = TypeVar("_Metric", Counter, Gauge, Histogram)

# The `_created` series would double the scraped data, and no panel or alert uses them.
disable_created_metrics()  # type: ignore[no-untyped-call]

SERVER_UP = Gauge(
    "blender_server_up",
    "1 if Kafka or Redis answered this process when it last asked, else 0; redis_writes: if Redis "
    "accepted a write.",
    ["server"],
    registry=None,
)
_BUILD = Info(
    "blender_build", "The version that runs, as a label; the value is always 1.", registry=None
)
_BUILD.info({"version": version_of("blendstream")})


def process_registry() -> CollectorRegistry:
    """Make a registry with the metrics that every kind of process has."""
    made = CollectorRegistry()
    ProcessCollector(registry=made)
    PlatformCollector(registry=made)
    GCCollector(registry=made)
    made.register(_BUILD)
    made.register(SERVER_UP)
    return made


class Meters:
    """Declares the metrics of one registry, with the possible values of each label.

    Their series start at zero, so that a first failure appears as an increase. A label without
    known values, such as a partition, starts without series.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def counter(self, name: str, sentence: str, **labels: Iterable[str]) -> Counter:
        """Declare a counter."""
        return _at_zero(Counter(name, sentence, tuple(labels), registry=self._registry), labels)

    def gauge(self, name: str, sentence: str, **labels: Iterable[str]) -> Gauge:
        """Declare a gauge."""
        return _at_zero(Gauge(name, sentence, tuple(labels), registry=self._registry), labels)

    def histogram(
        self, name: str, sentence: str, buckets: Sequence[float], **labels: Iterable[str]
    ) -> Histogram:
        """Declare a histogram."""
        made = Histogram(name, sentence, tuple(labels), registry=self._registry, buckets=buckets)
        return _at_zero(made, labels)


def _at_zero(metric: _Metric, labels: Mapping[str, Iterable[str]]) -> _Metric:
    for values in product(*labels.values()) if labels else ():
        metric.labels(*values)
    return metric
