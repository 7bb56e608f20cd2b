"""Open, seal and publish epochs until stopped.

Any number of these processes may run; a lease per kind of job selects the process that does it.
Needs Kafka, Redis and a budget limit. Creates missing topics and does not start if a topic has
wrong settings. Serves /metrics, /healthz and /readyz on jobs.metrics_port. Ctrl-C or SIGTERM stops
it gracefully.
"""

from __future__ import annotations

import argparse
from typing import NoReturn

from blendstream.streams.settings import load_settings
from blendstream.streams.telemetry.structured_logs import configure_logging

__all__ = ["run"]


def run(arguments: argparse.Namespace) -> NoReturn:
    """Run the jobs process."""
    settings = load_settings(arguments.settings).settings
    configure_logging(settings.log)
    from blendstream.agents.jobs.jobs_process import run_jobs  # noqa: PLC0415 - settings first

    run_jobs(settings)
