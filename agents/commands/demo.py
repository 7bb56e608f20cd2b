"""Run the whole service on this machine with simulated people, and print what it publishes.

Starts a real Kafka and Redis (or uses KAFKA_URL and REDIS_URL), gateway, worker and jobs, and
simulates searches in short epochs. Compares each published epoch with the truth, and with the
estimates of the other profile for the same people. Runs until Ctrl-C, or for --epochs.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TypeVar

__all__ = ["LEAST_WINDOW_S", "add_arguments", "add_people", "run", "within"]

T = TypeVar("T", int, float)

#: Grace and skew must fit into half a window; a busy machine needs at least these.
LEAST_WINDOW_S = 9


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--epochs", type=within(int, 1), metavar="N", help="end after N epochs with estimates"
    )
    add_people(parser, people=40_000)
    parser.add_argument(
        "--window", type=within(int, LEAST_WINDOW_S, 3600), default=15, metavar="S",
        help="seconds of an epoch; default: 15",
    )  # fmt: skip
    parser.add_argument(
        "--profile",
        choices=("sharp", "paper"),
        default="sharp",
        help="mechanisms that the service runs; the demo computes the other for comparison; "
        "default: sharp",
    )


def add_people(
    parser: argparse.ArgumentParser, *, people: int | None, usually: str = "%(default)s"
) -> None:
    """Add the options of the population: size, opt-in proportion and seed."""
    parser.add_argument(
        "--people", type=within(int, 1), default=people, metavar="N",
        help=f"number of people who search in each epoch; default: {usually}",
    )  # fmt: skip
    parser.add_argument(
        "--optin", type=within(float, 0, 1), default=0.10, metavar="SHARE",
        help="proportion of people who opt in; default: 0.10",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of the people (never of the noise); default: 1"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run until the epochs are published or the user stops it."""
    # Imported here, so that --help does not wait for the service's libraries.
    from blendstream.agents.local.demo.run import Demo  # noqa: PLC0415
    from blendstream.agents.local.demo.view import View  # noqa: PLC0415

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as it is under nohup
        signal.signal(signal.SIGHUP, _hung_up)
    view = View()
    demo = Demo(
        people=arguments.people,
        optin_share=arguments.optin,
        window_s=arguments.window,
        profile=arguments.profile,
        seed=arguments.seed,
        view=view,
    )
    try:
        demo.run(arguments.epochs)
    except KeyboardInterrupt:
        view.say("stopped; nothing is left running or on disk.")
    view.say(_next_steps(_this_command()))
    return 0


def _next_steps(command: str) -> str:
    steps = {
        "docs/first-service.md": "a service of your own, in ten commands",
        f"{command} settings": "what a service of your own needs",
        f"{command} evaluate": "the paper's figures, and ours beside them",
        "docs/localclient.md": "embedding the device's side",
        "docs/install.md": "running it for real",
    }
    width = max(map(len, steps)) + 2
    return "\n".join(["What next:", *(f"  {do:<{width}}{text}" for do, text in steps.items())])


def _this_command() -> str:
    """Return the command that runs this program: `make demo` uses one that is not on the PATH."""
    here = Path(sys.executable).with_name("blendstream")
    on_path = shutil.which("blendstream")
    if on_path and Path(on_path).resolve() == here.resolve():
        return "blendstream"
    if not here.exists():
        return f"{sys.executable} -m blendstream.agents.cli"
    return str(here.relative_to(Path.cwd()) if here.is_relative_to(Path.cwd()) else here)


def within(kind: type[T], low: T, high: T | None = None) -> Callable[[str], T]:
    """Return a type for argparse that accepts numbers in these bounds."""

    def read(text: str) -> T:
        number = kind(text)
        if not (low <= number and (high is None or number <= high)):  # nor nan
            most = "" if high is None else f" and at most {high}"
            raise argparse.ArgumentTypeError(f"must be at least {low}{most}, got {number}")
        return number

    read.__name__ = kind.__name__  # argparse prints "invalid int value"
    return read


def _hung_up(_signal: int, _frame: FrameType | None) -> None:
    """Handle a closed terminal: end once, as after Ctrl-C, and print nothing more."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    raise KeyboardInterrupt
