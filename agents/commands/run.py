"""Run gateway, worker and jobs on this machine, in one terminal, until Ctrl-C.

For a trial, or a small service on one host. In production each process is a separate service that
a supervisor restarts (deploy/). Here, when one of them exits, the others are stopped.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time

from blendstream.streams.settings import load_settings

__all__ = ["run"]

#: In order of need: the jobs open the epochs for which the gateway accepts submissions.
_SUBCOMMANDS = ("jobs", "worker", "gateway")
_POLL_EVERY_S = 0.2


def run(arguments: argparse.Namespace) -> int:
    """Start the three processes and wait until one exits or Ctrl-C."""
    settings = load_settings(arguments.settings).settings  # Reports errors once, not three times.
    deadlines = (settings.gateway, settings.worker, settings.jobs)
    patience_s = max(section.stop_deadline_s for section in deadlines) + 5
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    environment = dict(os.environ)
    if arguments.settings is not None:
        environment["BLENDSTREAM_SETTINGS"] = str(arguments.settings)
    processes = {}
    status = 0
    try:
        for subcommand in _SUBCOMMANDS:
            # A separate session: Ctrl-C reaches only this process, which then stops them.
            processes[subcommand] = subprocess.Popen(  # noqa: S603 - this program itself
                [sys.executable, "-m", "blendstream.agents.cli", subcommand],
                env=environment,
                start_new_session=True,
            )
        ended = _first_to_end(processes)
        status = 1
        print(
            f"blendstream: {ended} exited with status {processes[ended].returncode}; "
            "stopping the others",
            file=sys.stderr,
        )
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # A second Ctrl-C would leave them running.
        _stop(processes, patience_s)
    return status


def _first_to_end(processes: dict[str, subprocess.Popen[bytes]]) -> str:
    while True:
        for subcommand, process in processes.items():
            if process.poll() is not None:
                return subcommand
        time.sleep(_POLL_EVERY_S)


def _stop(processes: dict[str, subprocess.Popen[bytes]], patience_s: float) -> None:
    """Stop all processes gracefully and concurrently; kill those that exceed the deadline."""
    for process in processes.values():
        process.terminate()
    deadline = time.monotonic() + patience_s
    for process in processes.values():
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
