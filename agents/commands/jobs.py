"""Open, seal and publish epochs, until stopped; any number of processes, one holds each lease.

Needs Kafka, Redis and a budget limit. Creates missing topics and refuses wrong ones. Serves
/metrics, /healthz and /readyz on jobs.metrics_port. Ctrl-C or SIGTERM stops it in order.
"""

from __future__ import annotations

import argparse
from typing import NoReturn

from blendstream.streams.settings import load_settings
from blendstream.streams.telemetry.structured_logs import configure_logging

__all__ = ["run"]


def run(arguments: argparse.Namespace) -> NoReturn:
    settings = load_settings(arguments.settings).settings
    configure_logging(settings.log)
    from blendstream.agents.jobs.jobs_process import run_jobs  # noqa: PLC0415 - settings first

    run_jobs(settings)
