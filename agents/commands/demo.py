"""Run the whole service on this machine with simulated people, and watch it publish.

Starts a real Kafka and Redis (or takes KAFKA_URL and REDIS_URL), gateway, worker and jobs; lets
people search in short epochs; shows each published epoch beside the truth and beside what the
other profile would have said about the same people. Runs until Ctrl-C, or for --epochs.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from pathlib import Path
from types import FrameType

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the few things worth changing."""
    parser.add_argument("--epochs", type=int, metavar="N", help="end after N epochs with estimates")
    parser.add_argument(
        "--people", type=int, default=40_000, metavar="N",
        help="who search in each epoch; default: 40000",
    )  # fmt: skip
    parser.add_argument(
        "--optin", type=float, default=0.10, metavar="SHARE", help="opt-in share; default: 0.10"
    )
    parser.add_argument(
        "--window", type=int, default=15, metavar="S", help="seconds of an epoch; default: 15"
    )
    parser.add_argument(
        "--profile",
        choices=("sharp", "paper"),
        default="sharp",
        help="mechanisms that the service runs; the other is computed beside it; default: sharp",
    )
    parser.add_argument("--seed", type=int, default=1, help="of the people, never of the noise")


def run(arguments: argparse.Namespace) -> int:
    """Run until the epochs are done or somebody stops it."""
    # Imported here, so that --help does not wait for the service's libraries.
    from agents.demo.run import Demo  # noqa: PLC0415
    from agents.demo.view import View  # noqa: PLC0415

    signal.signal(signal.SIGTERM, _as_ctrl_c)
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
    view.say(_what_next(_this_command()))
    return 0


def _what_next(command: str) -> str:
    steps = {
        f"{command} settings": "what a service of your own needs to be told",
        f"{command} evaluate": "the paper's figures, and ours beside them",
        "docs/localclient.md": "embedding the device's side",
        "docs/operations.md": "running it for real",
    }
    width = max(map(len, steps)) + 2
    return "\n".join(["What next:", *(f"  {do:<{width}}{what}" for do, what in steps.items())])


def _this_command() -> str:
    """How to call this program again: `make demo` runs it from an environment not on the PATH."""
    here = Path(sys.executable).with_name("blendstream")
    found = shutil.which("blendstream")
    if found and Path(found).resolve() == here.resolve():
        return "blendstream"
    if not here.exists():
        return f"{sys.executable} -m agents.cli"
    return str(here.relative_to(Path.cwd()) if here.is_relative_to(Path.cwd()) else here)


def _as_ctrl_c(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
