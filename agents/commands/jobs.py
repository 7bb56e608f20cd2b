"""Open, seal and publish epochs until SIGTERM or Ctrl-C.

Any number may run; each kind of job has one lease, and whoever holds it does the work. What is in
the release log is never drawn again. /metrics, /healthz and /readyz have a port of their own.
"""

from __future__ import annotations

import argparse

from agents.jobs import run_jobs
from streams.logs import configure_logging
from streams.settings import load_settings

__all__ = ["add_arguments", "run"]


def add_arguments(_parser: argparse.ArgumentParser) -> None:
    """Nothing of its own; everything is a setting."""


def run(arguments: argparse.Namespace) -> int:
    """Work until told to stop."""
    settings = load_settings(arguments.settings).settings
    configure_logging(settings.log)
    return run_jobs(settings)
