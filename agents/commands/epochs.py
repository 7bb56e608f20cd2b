"""Show the recent epochs and what each waits for; abandon one; or recover a broken release log.

    blendstream epochs                           stages, windows, outcomes, the budget
    blendstream epochs --watch                   print them again at each change
    blendstream epochs abandon 41 --reason TEXT  release nothing more for epoch 41
    blendstream epochs restored --reason TEXT    after the release log was restored from a copy
    blendstream epochs aborted --offset N        after a hanging transaction was aborted in Kafka

The jobs delete an abandoned epoch's raw data as soon as every earlier epoch has ended too; its cost
stays charged. The release log stores the reason permanently and the API shows it: it must not name
a query, a URL or a person.

`restored` is for a release log restored from an older copy. Run it before any jobs process starts:
- It abandons every open epoch, which may have been released after the copy was made.
- It charges and abandons every epoch that may have been opened since the copy. Their number follows
  from the shortest known window; they extend at least to the highest published epoch.
- It deletes the raw counts of these epochs from Redis.
So no release is drawn twice, no number is used twice, and the period's limit holds. `--until` is
the time at which the lost log's last jobs process ended: epochs after it are not charged.

`aborted` is the last step of ReleaseLogBlocked in the runbook, after an operator has aborted a
hanging transaction of the release log with Kafka's kafka-transactions.sh. It abandons every epoch
whose release was lost with the transaction, because that release's noise was already drawn. Run it
before any jobs process starts.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

from blendstream.agents.commands.epoch_listing import list_epochs, watch_epochs
from blendstream.agents.commands.operator_context import (
    connected,
    refuse_while_jobs_run,
    utc_text,
    waiting_for_log,
)
from blendstream.agents.jobs.job_context import JobContext, limit_from
from blendstream.agents.jobs.older_log import published_since
from blendstream.agents.jobs.restored_log import lost_epochs
from blendstream.agents.operations.aborted_entries import abandon_aborted
from blendstream.agents.output import say
from blendstream.blender.values.errors import ParameterError
from blendstream.streams.budget.epoch_plan import plan_from
from blendstream.streams.names import InputStream
from blendstream.streams.releases import entries
from blendstream.streams.releases.entries import MAX_REASON_CHARACTERS, Kind
from blendstream.streams.releases.epoch_state import EpochState
from blendstream.streams.settings import Settings, load_settings

__all__ = ["add_arguments", "go_on_with_restored", "run"]

#: The jobs that may be about to commit a release.
_RELEASING = (Kind.CLICK_GRAPHS, Kind.HEAD_LISTS, Kind.ESTIMATES)
#: Epochs per transaction: bounds the size of a transaction.
_BATCH_EPOCHS = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of listing, and the actions with their options."""
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="print one JSON object, for programs")
    how.add_argument("--watch", action="store_true", help="list again at each change, until Ctrl-C")
    actions = parser.add_subparsers(dest="action", metavar="[ACTION]", title="actions (none: list)")
    abandon = actions.add_parser("abandon", help="release nothing more for one epoch")
    abandon.add_argument("epoch", type=int, metavar="E", help="the epoch to abandon")
    restored = actions.add_parser(
        "restored", help="continue with a log restored from an older copy"
    )
    aborted = actions.add_parser(
        "aborted", help="abandon epochs whose release was aborted in Kafka"
    )
    aborted.add_argument(
        "--offset", type=int, required=True, metavar="N",
        help="offset at which the aborted transaction began, as `doctor` printed it",
    )  # fmt: skip
    for action in (abandon, restored):
        action.add_argument(
            "--reason", required=True, help="the reason; stored permanently, shown to everyone"
        )
    restored.add_argument(
        "--until",
        type=_utc_ms,
        metavar="TIME",
        help="when jobs last ran on the lost log, in UTC, as 2026-11-16T19:00; default: now",
    )


def run(arguments: argparse.Namespace) -> int:
    """List the epochs, or run one action."""
    settings = load_settings(arguments.settings).settings
    if arguments.action is None:
        if arguments.watch:
            return asyncio.run(watch_epochs(settings))
        return asyncio.run(list_epochs(settings, as_json=arguments.json))
    if arguments.action == "aborted":
        return asyncio.run(_aborted(settings, arguments.offset))
    if not arguments.reason.strip():
        raise ParameterError(
            f"the reason must not be empty: blendstream epochs {arguments.action} ... --reason TEXT"
        )
    if len(arguments.reason) > MAX_REASON_CHARACTERS:
        raise ParameterError(
            f"a reason must have at most {MAX_REASON_CHARACTERS} characters, "
            f"got {len(arguments.reason)}"
        )
    if arguments.action == "restored":
        return asyncio.run(_restored(settings, arguments.reason.strip(), arguments.until))
    return asyncio.run(_abandon(settings, arguments.epoch, arguments.reason.strip()))


async def _abandon(settings: Settings, epoch: int, reason: str) -> int:
    async with connected(settings) as context, waiting_for_log(context):
        async with context.log.fenced_session(Kind.OPERATOR) as session:
            state = session.log_state.epochs.get(epoch)
            if state is None:
                raise ParameterError(
                    f"epoch {epoch} must be one of the recent epochs that `blendstream epochs` "
                    "lists"
                )
            _must_be_open(state)
            await session.commit([entries.epoch_abandoned(epoch, reason)])
        # A job that read the log before this entry may be about to commit. Fencing makes it start
        # again and read the entry; if it had committed already, the log now contains the release.
        for kind in _RELEASING:
            log_state = await context.log.fence_and_read(kind)
        state = log_state.epochs[epoch]
        if state.abandoned is None:
            _must_be_open(state)
        before = [s.epoch for s in log_state.unfinished() if s.epoch < epoch]
    when = "within one pass of the jobs"
    if before:
        when = f"when the epochs before it ({_listed(before)}) have ended too"
    say(f"epoch {epoch} is abandoned; its raw data is removed {when}")
    return 0


def _must_be_open(state: EpochState) -> None:
    if state.stage.over:
        raise ParameterError(
            f"epoch {state.epoch} is already {state.stage.value} and cannot be abandoned"
        )


def _utc_ms(text: str) -> int:
    """Parse an ISO 8601 time; without an offset it is UTC."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be a time such as 2026-11-16T19:00, got {text!r}"
        ) from None
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


async def _aborted(settings: Settings, offset: int) -> int:
    async with connected(settings) as context, waiting_for_log(context):
        await refuse_while_jobs_run(context)
        await abandon_aborted(context, offset)
    return 0


async def _restored(settings: Settings, reason: str, until_ms: int | None) -> int:
    async with connected(settings) as context, waiting_for_log(context):
        await go_on_with_restored(context, reason, until_ms)
    return 0


async def go_on_with_restored(context: JobContext, reason: str, until_ms: int | None) -> None:
    """Abandon open epochs; charge and abandon those that may have opened after the copy."""
    settings, now_ms = context.settings, context.now_ms()
    if until_ms is not None and until_ms > now_ms:
        raise ParameterError(
            f"--until must be a time that has passed, got {utc_text(until_ms)}, now it is "
            f"{utc_text(now_ms)} UTC"
        )
    await refuse_while_jobs_run(context)
    async with context.log.fenced_session(Kind.OPERATOR) as session:
        still_open = [state.epoch for state in session.log_state.unfinished()]
        if still_open:
            await session.commit([entries.epoch_abandoned(epoch, reason) for epoch in still_open])
        # Complete: read back with the commit, or up to the session's own record.
        log_state = session.log_state
    say(f"abandoned, as they may have been released: epochs {_listed(still_open)}")
    published = await published_since(context, log_state)
    lost = lost_epochs(
        log_state, plan_from(settings), limit_from(settings),
        now_ms if until_ms is None else until_ms, epochs_ahead=settings.epoch.epochs_ahead,
        published_through=published.through, published_windows_ms=published.windows_ms,
    )  # fmt: skip
    for start in range(0, len(lost), _BATCH_EPOCHS):
        some = lost[start : start + _BATCH_EPOCHS]
        async with context.log.fenced_session(Kind.OPERATOR) as session:
            if session.log_state.ledger.last_epoch != some[0].epoch - 1:
                raise ParameterError(
                    "another process opened an epoch; stop all jobs and run this again"
                )
            await session.commit(
                [
                    entry
                    for parameters in some
                    for entry in (
                        entries.epoch_opened(parameters),
                        entries.epoch_abandoned(parameters.epoch, reason),
                    )
                ]
            )
    charged = [parameters.epoch for parameters in lost]
    say(f"charged and abandoned, as they may have been opened: epochs {_listed(charged)}")
    # Deleted here, because the jobs may not start for a long time.
    for stem in InputStream:
        tables = context.tables(stem)
        for partition in range(context.topics.of(stem).partitions):
            for epoch in (*still_open, *charged):
                await tables.release_epoch(partition, epoch)
    say("their raw counts are removed; see `blendstream ledger`, then start the jobs")


def _listed(epochs: Sequence[int]) -> str:
    if len(epochs) <= 8:
        return ", ".join(map(str, epochs)) or "none"
    return f"{epochs[0]} to {epochs[-1]}, {len(epochs)} in total"
