"""Count opt-in records and client reports until stopped; any number of workers share the load.

Needs Kafka, Redis and the master secrets. Creates missing topics and does not start if a topic has
wrong settings. Serves /metrics, /healthz and /readyz on worker.metrics_port. Ctrl-C or SIGTERM
stops it gracefully.
"""

from __future__ import annotations

import argparse
from typing import NoReturn

from blendstream.streams.settings import load_settings
from blendstream.streams.telemetry.structured_logs import configure_logging

__all__ = ["run"]


def run(arguments: argparse.Namespace) -> NoReturn:
    """Run the worker process."""
    settings = load_settings(arguments.settings).settings
    configure_logging(settings.log)
    from blendstream.agents.worker.counting_process import run_worker  # noqa: PLC0415 - settings first

    run_worker(settings)
