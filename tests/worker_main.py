"""A worker as a process of its own, for tests."""

import sys

from blendstream.agents.worker.counting_process import run_worker
from blendstream.streams.settings import load_settings
from blendstream.streams.telemetry.structured_logs import configure_logging

if __name__ == "__main__":
    settings = load_settings().settings
    configure_logging(settings.log)
    sys.exit(run_worker(settings))
