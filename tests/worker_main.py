"""A worker as a process of its own, for tests."""

import sys

from agents.worker import run_worker
from streams.logs import configure_logging
from streams.settings import load_settings

if __name__ == "__main__":
    settings = load_settings().settings
    configure_logging(settings.log)
    sys.exit(run_worker(settings))
