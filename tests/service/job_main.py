"""The jobs as a process of their own, with a clock that a test moves and steps to die or sleep at.

Only this program of the tests can do that: `run_jobs` takes an observer, dice and a clock as
arguments, and nothing in the settings leads to any of them.

Processes are forked from one that has every library loaded (`multiprocessing`'s fork server), which
saves each of them some three seconds of processor time. They are processes like any other: killed,
paused and ended by signals.

A test gives orders by files in a folder: `clock` holds how many milliseconds this clock and the
brokers' run ahead, `skew` how many this one alone, `at` a step and what to do there. Whichever
process reaches the step first takes the order, alone.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

# Loaded by the first epoch that needs them; here once, before any process is forked.
import dp_accounting.pld.privacy_loss_distribution
import numpy as np
import scipy.optimize
import scipy.stats

from blendstream.agents.jobs.job_context import RandomnessSources
from blendstream.agents.jobs.jobs_process import run_jobs
from blendstream.streams.settings import load_settings
from blendstream.streams.telemetry.structured_logs import configure_logging
from tests.doubles_jobs import RepeatableNoise

__all__ = ["begin"]

SIGNALS = {"kill": signal.SIGKILL, "pause": signal.SIGSTOP}
LOADED = (dp_accounting, scipy)


def begin(words: Sequence[str], environment: dict[str, str], output: Path) -> None:
    """Set up a forked process and run the program in it."""
    written = os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(written, 1)
    os.dup2(written, 2)
    os.environ.clear()
    os.environ.update(environment)
    main(words)


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--orders", type=Path, required=True)
    parser.add_argument("--at", nargs=2, metavar=("STEP", "ACTION"))
    parser.add_argument("--seed", type=int)
    arguments = parser.parse_args(words)
    settings = load_settings().settings
    configure_logging(settings.log)
    done = False

    async def observe(step: str) -> None:
        nonlocal done
        print(f"STEP {step}", flush=True)
        if arguments.at and step == arguments.at[0] and not done:
            done = True
            os.kill(os.getpid(), SIGNALS[arguments.at[1]])
        elif (action := _ordered(arguments.orders, step)) is not None:
            os.kill(os.getpid(), SIGNALS[action])
            # The signal may come a moment later; the step must not end before.
            await asyncio.sleep(0.2)

    dice = RandomnessSources()
    if arguments.seed is not None:
        seed = arguments.seed
        dice = RandomnessSources(RepeatableNoise(seed), lambda: np.random.default_rng(seed))

    def ordered_ms(name: str) -> int:
        return int((arguments.orders / name).read_text())

    def now_ms() -> int:
        return time.time_ns() // 1_000_000 + ordered_ms("clock") + ordered_ms("skew")

    def brokers_ms(append_ms: int) -> int:
        return append_ms + ordered_ms("clock")

    sys.exit(run_jobs(settings, observe=observe, dice=dice, now_ms=now_ms, brokers_ms=brokers_ms))


def _ordered(folder: Path, step: str) -> str | None:
    """Return the order for this process at this step; renaming its file claims it."""
    try:
        wanted, action = (folder / "at").read_text().split()
        if wanted != step:
            return None
        (folder / "at").rename(folder / f"taken.{os.getpid()}")
    except FileNotFoundError:
        return None
    return action
