"""Serve the HTTP API until SIGTERM or Ctrl-C: accept submissions, serve publications.

Gateways are stateless: run any number behind a load balancer. /docs and /openapi.json describe the
API; /readyz reports whether this gateway accepts submissions, with the reasons if not. /metrics
has its own port, which must not be public. A stop completes requests in flight and flushes their
entries to Kafka.
"""

from __future__ import annotations

import argparse
from typing import NoReturn

from blendstream.agents.gateway.gateway_process import run_gateway
from blendstream.streams.settings import load_settings
from blendstream.streams.telemetry.structured_logs import configure_logging

__all__ = ["run"]


def run(arguments: argparse.Namespace) -> NoReturn:
    """Run the gateway process."""
    settings = load_settings(arguments.settings).settings
    configure_logging(settings.log)
    run_gateway(settings)
