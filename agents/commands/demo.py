"""Run the whole service on this machine with simulated people, and watch it publish.

Starts a real Kafka and Redis (or takes KAFKA_URL and REDIS_URL), gateway, worker and jobs; lets
people search in short epochs; shows each published epoch beside the truth and beside what the
other profile would have said about the same people. Runs until Ctrl-C, or for --epochs.
"""

from __future__ import annotations

import argparse
import signal
from types import FrameType

__all__ = ["add_arguments", "run"]

_NEXT = """\
What next:
  blendstream settings             what a service of your own needs to be told
  blendstream evaluate             the paper's figures, and this project's beside them
  docs/localclient.md              embedding the device's side
  docs/operations.md               running it for real"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the few things worth changing."""
    parser.add_argument("--epochs", type=int, metavar="N", help="end after N epochs with estimates")
    parser.add_argument("--people", type=int, default=40_000, metavar="N", help="default: 40000")
    parser.add_argument(
        "--optin", type=float, default=0.10, metavar="SHARE", help="opt-in share; default: 0.10"
    )
    parser.add_argument(
        "--window", type=int, default=15, metavar="S", help="seconds of an epoch; default: 15"
    )
    parser.add_argument("--profile", choices=("sharp", "paper"), default="sharp")
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
    view.say(_NEXT)
    return 0


def _as_ctrl_c(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
