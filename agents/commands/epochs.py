"""Show the recent epochs and what each waits for; or give one up.

    blendstream epochs                           stages, windows, outcomes
    blendstream epochs abandon 41 --reason TEXT  release nothing more for epoch 41

An abandoned epoch's raw data is removed and what it cost stays charged. The reason is kept in the
release log for ever and shown in the API: it must not name a query, a URL or a person.
"""

from __future__ import annotations

import argparse
import asyncio

from agents.commands.reading import connected, told
from agents.epochs import Wait, next_estimates, next_head_list
from blender.errors import ParameterError
from streams.epochs import Stem
from streams.releases import entries
from streams.releases.book import EpochState
from streams.releases.entries import MAX_REASON_CHARACTERS, Kind
from streams.settings import Settings, load_settings

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `abandon`, with its epoch and its reason in either order."""
    actions = parser.add_subparsers(dest="action", metavar="[ACTION]", title="actions (none: list)")
    abandon = actions.add_parser("abandon", help="release nothing more for one epoch")
    abandon.add_argument("epoch", type=int, metavar="E", help="the epoch to give up")
    abandon.add_argument("--reason", required=True, help="why; kept for ever, shown to everyone")


def run(arguments: argparse.Namespace) -> int:
    """List, or abandon."""
    settings = load_settings(arguments.settings).settings
    if arguments.action is None:
        return asyncio.run(_list(settings))
    if not arguments.reason.strip():
        raise ParameterError(
            "abandoning needs a reason that says something: "
            "blendstream epochs abandon 41 --reason TEXT"
        )
    if len(arguments.reason) > MAX_REASON_CHARACTERS:
        raise ParameterError(
            f"a reason must have at most {MAX_REASON_CHARACTERS} characters, "
            f"got {len(arguments.reason)}"
        )
    return asyncio.run(_abandon(settings, arguments.epoch, arguments.reason.strip()))


async def _list(settings: Settings) -> int:
    async with connected(settings) as context:
        book = await context.log.catch_up()
        now_ms = context.now_ms()
        print(f"{'epoch':>6}  {'stage':<15} {'window (UTC)':<42} outcome")
        for _, state in sorted(book.epochs.items()):
            window = (
                f"{told(state.parameters.window_start_ms)} - {told(state.parameters.window_end_ms)}"
            )
            print(f"{state.epoch:>6}  {state.stage.value:<15} {window:<42} {_outcome(state)}")
        if not book.epochs:
            print("no epoch was opened yet; start `blendstream jobs`")
        notice = book.paused_at(now_ms)
        if notice is not None:
            print(f"paused until {told(notice.resumes_at_ms)} UTC: {notice.reason}")
        for stem, decide in (
            (Stem.OPTIN_RECORDS, next_head_list),
            (Stem.CLIENT_REPORTS, next_estimates),
        ):
            positions = await context.counts(stem, Kind.OPERATOR).positions()
            move = decide(book, positions, now_ms)
            if isinstance(move, Wait):
                print(f"{stem.value}: {move.why}")
            else:
                print(f"{stem.value}: epoch {move.epoch} can go on now")
    return 0


def _outcome(state: EpochState) -> str:
    if state.abandoned is not None:
        return f"abandoned: {state.abandoned}"
    if state.estimates is None:
        return "-"
    reasons = ", ".join(reason.value for reason in state.estimates.reasons)
    return state.estimates.outcome.value + (f" ({reasons})" if reasons else "")


async def _abandon(settings: Settings, epoch: int, reason: str) -> int:
    async with (
        connected(settings) as context,
        context.log.turn(Kind.OPERATOR) as turn,
    ):
        state = turn.book.epochs.get(epoch)
        if state is None:
            raise ParameterError(
                f"epoch {epoch} must be one of the recent epochs that `blendstream epochs` lists"
            )
        if state.stage.over:
            raise ParameterError(
                f"epoch {epoch} is {state.stage.value} already; nothing is left to give up"
            )
        await turn.commit([entries.epoch_abandoned(epoch, reason)])
    print(f"epoch {epoch} is abandoned; its raw data goes when the jobs next look")
    return 0
