"""The jobs as a process of their own, with a clock that may run ahead and a step to die at.

Only this program of the tests can do that: `run_jobs` takes an observer and dice as arguments, and
nothing in the settings leads to either.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time

import numpy as np

from agents.job_context import Dice
from agents.jobs import run_jobs
from streams.logs import configure_logging
from streams.settings import load_settings
from tests.doubles_jobs import RepeatableNoise


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ahead-ms", type=int, default=0)
    parser.add_argument("--at", nargs=2, metavar=("STEP", "ACTION"))
    parser.add_argument("--seed", type=int)
    arguments = parser.parse_args()
    settings = load_settings().settings
    configure_logging(settings.log)
    done = False

    async def observe(step: str) -> None:
        nonlocal done
        print(f"STEP {step}", flush=True)
        if arguments.at and step == arguments.at[0] and not done:
            done = True
            number = {"kill": signal.SIGKILL, "pause": signal.SIGSTOP}[arguments.at[1]]
            os.kill(os.getpid(), number)

    dice = None
    if arguments.seed is not None:
        seed = arguments.seed
        dice = Dice(RepeatableNoise(seed), lambda: np.random.default_rng(seed))

    def now_ms() -> int:
        return time.time_ns() // 1_000_000 + arguments.ahead_ms

    sys.exit(run_jobs(settings, observe=observe, dice=dice, now_ms=now_ms))


if __name__ == "__main__":
    main()
