"""Run gateway, worker and jobs on this machine, in one terminal, until Ctrl-C.

For a trial, or a small service on one host. In production each of them is a service of its own,
which is restarted when it ends (deploy/). When one of them ends by itself the others are stopped.
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

#: In the order in which they need each other: the jobs open epochs, the gateway serves them.
_VERBS = ("jobs", "worker", "gateway")
_LOOK_EVERY_S = 0.2


def run(arguments: argparse.Namespace) -> int:
    """Start the three and wait."""
    settings = load_settings(arguments.settings).settings  # Said once, not by each of the three.
    deadlines = (settings.gateway, settings.worker, settings.jobs)
    patience_s = max(section.stop_deadline_s for section in deadlines) + 5
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    environment = dict(os.environ)
    if arguments.settings is not None:
        environment["BLENDSTREAM_SETTINGS"] = str(arguments.settings)
    processes = {}
    status = 0
    try:
        for verb in _VERBS:
            # A session of its own: Ctrl-C reaches this process alone, which then stops them.
            processes[verb] = subprocess.Popen(  # noqa: S603 - this program itself
                [sys.executable, "-m", "blendstream.agents.cli", verb],
                env=environment,
                start_new_session=True,
            )
        ended = _first_to_end(processes)
        status = 1
        print(
            f"blendstream: {ended} ended by itself with status {processes[ended].returncode}; "
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
        for verb, process in processes.items():
            if process.poll() is not None:
                return verb
        time.sleep(_LOOK_EVERY_S)


def _stop(processes: dict[str, subprocess.Popen[bytes]], patience_s: float) -> None:
    """Stop them in order, all at once; kill what does not end by its own deadline."""
    for process in processes.values():
        process.terminate()
    deadline = time.monotonic() + patience_s
    for process in processes.values():
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
