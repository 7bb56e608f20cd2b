"""Serve the HTTP API until SIGTERM or Ctrl-C: submissions in, publications out.

Run any number behind a balancer; each is stateless. The API describes itself at /docs and
/openapi.json; /readyz says whether this one takes submissions, and if not, why. /metrics has a
port of its own, which must not be public. A stop answers what is under way and flushes it.
"""

from __future__ import annotations

import argparse
from typing import NoReturn

from blendstream.agents.gateway.gateway_process import run_gateway
from blendstream.streams.settings import load_settings
from blendstream.streams.telemetry.structured_logs import configure_logging

__all__ = ["run"]


def run(arguments: argparse.Namespace) -> NoReturn:
    settings = load_settings(arguments.settings).settings
    configure_logging(settings.log)
    run_gateway(settings)
