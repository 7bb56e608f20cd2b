"""Metrics that several processes share. Each process has a registry of its own.

So a process exposes only what it knows: a gateway must not say that no worker is ready. A process's
other metrics are in its folder's `metrics.py`. Label values start at zero, so that a first failure
shows as a rise. No query, URL, user id or contributor key is ever a label or a value.
"""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Gauge,
    GCCollector,
    Info,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

from streams.version import version_of

__all__ = ["SERVER_UP", "process_registry"]

# The `_created` series double what is scraped, and no panel or alert uses them.
disable_created_metrics()  # type: ignore[no-untyped-call]

SERVER_UP = Gauge(
    "blender_server_up",
    "1 if Kafka or Redis answered this process when it last asked, else 0.",
    ["server"],
    registry=None,
)
_BUILD = Info(
    "blender_build", "The version that runs, as a label; the value is always 1.", registry=None
)


_BUILD.info({"version": version_of("blendstream")})


def process_registry() -> CollectorRegistry:
    """A registry with the metrics that every kind of process has."""
    made = CollectorRegistry()
    ProcessCollector(registry=made)
    PlatformCollector(registry=made)
    GCCollector(registry=made)
    made.register(_BUILD)
    made.register(SERVER_UP)
    return made
