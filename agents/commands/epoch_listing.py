"""Print the listing of `blendstream epochs`: recent epochs, what each waits for, the budget."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from blendstream.agents.commands.ledger import budget_now
from blendstream.agents.commands.operator_context import connected, read_log, utc_text
from blendstream.agents.jobs.epoch_schedule import Wait, next_estimates, next_head_list
from blendstream.agents.jobs.job_context import JobContext
from blendstream.agents.output import print_json
from blendstream.streams.names import InputStream
from blendstream.streams.releases.entries import Kind
from blendstream.streams.releases.epoch_state import EpochState, ReleasedDocument
from blendstream.streams.releases.epoch_view import EpochView
from blendstream.streams.settings import Settings

__all__ = ["list_epochs", "outcome_text", "watch_epochs"]

_AGAIN_AFTER_S = 2.0
_CLEAR_SCREEN = "\x1b[H\x1b[2J"


async def list_epochs(settings: Settings, *, as_json: bool = False) -> int:
    """Print the epochs once."""
    async with connected(settings) as context:
        found = await _overview(context)
    if as_json:
        print_json(found)
    else:
        print("\n".join(_lines(found)))
    return 0


async def watch_epochs(settings: Settings) -> int:
    """Print the epochs again at each change, until Ctrl-C; in place on a terminal."""
    shown: Sequence[str] = ()
    async with connected(settings) as context:
        while True:
            lines = _lines(await _overview(context))
            if lines != shown:
                start = _CLEAR_SCREEN if sys.stdout.isatty() else "\n" if shown else ""
                print(start + "\n".join(lines), flush=True)
                shown = lines
            await asyncio.sleep(_AGAIN_AFTER_S)


async def _overview(context: JobContext) -> dict[str, Any]:
    log_state = await read_log(context)
    now_ms = context.now_ms()
    notice = log_state.paused_at(now_ms)
    waits = {}
    for stem, decide in (
        (InputStream.OPTIN_RECORDS, next_head_list),
        (InputStream.CLIENT_REPORTS, next_estimates),
    ):
        positions = await context.counts(stem, Kind.OPERATOR).positions()
        move = decide(log_state, positions, now_ms)
        waits[stem.value] = (
            move.why if isinstance(move, Wait) else f"epoch {move.epoch} can continue now"
        )
    return {
        "epochs": [_entry(state) for _, state in sorted(log_state.epochs.items())],
        "waits": waits,
        "paused": None
        if notice is None
        else {"resumes_s": notice.resumes_s, "reason": notice.reason},
        "budget": budget_now(context.settings, log_state, now_ms).sentence,
    }


def _entry(state: EpochState) -> dict[str, Any]:
    view = EpochView.of(state)
    return {
        "epoch": view.epoch,
        "stage": view.state,
        "window_start_s": state.parameters.window_start_ms / 1000,
        "window_end_s": state.parameters.window_end_ms / 1000,
        "outcome": view.outcome,
        "reasons": list(view.reasons),
        "abandoned": view.abandoned,
        "click_graph": _click_graph(state),
    }


def _click_graph(state: EpochState) -> str | None:
    """Return the state of the epoch's click graph, if it has one."""
    if state.click_graph is not None:
        return f"click graph {_outcome_text(state.click_graph)}"
    if state.parameters.plan.click_graph is None or state.abandoned is not None:
        return None
    # The head list waits for the click graph only up to a deadline.
    return "click graph due" if state.graph_due else "no click graph: not ready in time"


def _outcome_text(publication: ReleasedDocument) -> str:
    reasons = ", ".join(reason.value for reason in publication.reasons)
    return publication.outcome.value + (f" ({reasons})" if reasons else "")


def _lines(found: dict[str, Any]) -> list[str]:
    lines = [f"{'epoch':>6}  {'stage':<15} {'window (UTC)':<42} outcome"]
    for entry in found["epochs"]:
        start, end = (utc_text(int(entry[f"window_{edge}_s"] * 1000)) for edge in ("start", "end"))
        lines.append(
            f"{entry['epoch']:>6}  {entry['stage']:<15} {f'{start} - {end}':<42} {_outcome(entry)}"
        )
    if not found["epochs"]:
        lines.append("no epoch has opened yet; start `blendstream jobs`")
    if found["paused"] is not None:
        resumes = utc_text(found["paused"]["resumes_s"] * 1000)
        lines.append(f"paused until {resumes} UTC: {found['paused']['reason']}")
    lines += [f"{stem}: {why}" for stem, why in found["waits"].items()]
    lines.append(f"budget: {found['budget']}")
    return lines


def outcome_text(state: EpochState) -> str:
    """Return an epoch's outcome, with the reasons if it is not complete."""
    return _outcome(_entry(state))


def _outcome(entry: dict[str, Any]) -> str:
    graph = "" if entry["click_graph"] is None else f"; {entry['click_graph']}"
    if entry["abandoned"] is not None:
        return f"abandoned: {entry['abandoned']}{graph}"
    reasons = f" ({', '.join(entry['reasons'])})" if entry["reasons"] else ""
    return f"{entry['outcome'] or '-'}{reasons}{graph}"
