"""Read a search log for `blendstream simulate --log`: its options, and its users' clicks."""

from __future__ import annotations

import argparse
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blendstream.blender.values.errors import BlenderError, ParameterError

if TYPE_CHECKING:
    from blendstream.agents.local.demo.log_replay import LogClicks

__all__ = ["add_log_arguments", "read_log"]


def add_log_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the log, its speed and the file of the comparison."""
    parser.add_argument(
        "--log", type=Path, metavar="FILE",
        help="replay this search log in place of the demo's people: the AOL release's format or a "
        "TSV or CSV with a heading (.gz is read too)",
    )  # fmt: skip
    parser.add_argument(
        "--log-columns", metavar="USER,QUERY,URL,TIME",
        help="the log's columns (default: AOL's names, or user,query,url,time)",
    )  # fmt: skip
    parser.add_argument(
        "--speed", type=float, metavar="X",
        help="seconds of the log per second (default: a day of the log per epoch)",
    )  # fmt: skip
    parser.add_argument(
        "--save", type=Path, default=Path("replay.json"), metavar="FILE",
        help="where the comparison with the truth is written at the end; default: %(default)s",
    )  # fmt: skip


def read_log(arguments: argparse.Namespace) -> LogClicks:
    """Read all clicks of the log's users, at most `--people` of them."""
    import numpy as np  # noqa: PLC0415 - for --help's sake

    from blendstream.agents.local.demo.log_replay import LogClicks  # noqa: PLC0415
    from blendstream.evaluation.search_logs import (  # noqa: PLC0415
        LogTally,
        read_clicks,
        record_of,
    )

    if arguments.speed is not None and not 0 < arguments.speed < float("inf"):
        raise ParameterError(f"--speed must be above 0, got {arguments.speed}")
    if arguments.save.exists():
        raise BlenderError(f"{arguments.save} is there already; name another file with --save")
    tally, users, numbers = LogTally(), dict[str, int](), dict[str, int]()
    times, user_of, number_of = array("d"), array("q"), array("q")
    for click in read_clicks(
        arguments.log, _columns(arguments.log_columns), tally, with_times=True
    ):
        times.append(click.time_s)
        user_of.append(users.setdefault(click.user, len(users)))
        number_of.append(numbers.setdefault(click.text, len(numbers)))
    tally.users = len(users)
    print(f"{arguments.log.name}: {tally.describe()}", flush=True)
    if not users:
        raise ParameterError(f"{arguments.log} must have rows with a click")
    # Some of the users are numbered again, from 0; the others are left out.
    taking_part = min(arguments.people or len(users), len(users))
    chosen = np.random.default_rng([arguments.seed, 0x10C]).permutation(len(users))[:taking_part]
    place = np.full(len(users), -1)
    place[chosen] = np.arange(taking_part)
    time_s, user = np.array(times), place[np.array(user_of)]
    order = np.argsort(time_s, kind="stable")
    order = order[user[order] >= 0]
    return LogClicks(
        time_s=time_s[order],
        user=user[order],
        number=np.array(number_of)[order],
        records=[record_of(text) for text in numbers],
        users=taking_part,
    )


def _columns(text: str | None) -> Any:
    from blendstream.evaluation.search_logs import LogColumns  # noqa: PLC0415

    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if len(names) != 4 or not all(names):
        raise ParameterError(
            f"--log-columns must name four columns, USER,QUERY,URL,TIME, got {text!r}"
        )
    return LogColumns(*names)
