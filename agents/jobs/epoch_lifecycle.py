"""The keeper: opens and seals epochs, and deletes raw data after its release.

    settings, clock ──▶ epoch_opened · records_sealed · reports_sealed · service_paused ──▶ releases
    releases ──▶ counts unlinked in Redis and rewritten files there, records removed from Kafka

Promises:
- An epoch opens once, with its charge, and never with a log restored from an older copy.
- A seal's bounds are offsets of markers that all in-sync replicas have, and that the brokers
  appended, by their own clocks, when every further entry was late. So neither a stale response nor
  a wrong clock of this process seals too early.
- The keeper deletes the raw counts of released epochs, again if a Redis restore revives them.
- The keeper commits the new log start offsets before it removes records from Kafka, so that workers
  can distinguish a removal from a loss.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Sequence
from typing import Final

from blendstream.agents.jobs.epoch_schedule import (
    Open,
    Pause,
    SealRecords,
    SealReports,
    Wait,
    next_keeper_move,
)
from blendstream.agents.jobs.job_context import JobContext, limit_from
from blendstream.agents.jobs.older_log import OlderLogCheck
from blendstream.streams.budget.epoch_plan import plan_from
from blendstream.streams.names import InputStream
from blendstream.streams.releases import entries
from blendstream.streams.releases.entries import Entry, Kind
from blendstream.streams.releases.epoch_state import ReleaseLogState
from blendstream.streams.releases.retention import LogTrimmer
from blendstream.streams.releases.seal_markers import AppendedMarker
from blendstream.streams.tables.stage_tables import stage_table
from blendstream.streams.tables.stale_epochs import stored_epochs
from blendstream.streams.telemetry.structured_logs import SafeText

__all__ = ["CHECKPOINT_EPOCHS", "Keeper", "too_early_ms"]

log = logging.getLogger(__name__)

#: Epochs per checkpoint: more make opening the log slower, fewer make the log longer.
CHECKPOINT_EPOCHS = 8
_MARK_AGAIN_S = 5.0

_SEALS: Final = {
    SealRecords: (InputStream.OPTIN_RECORDS, entries.records_sealed),
    SealReports: (InputStream.CLIENT_REPORTS, entries.reports_sealed),
}


class Keeper:
    """Opens, seals and cleans up. Its fields only avoid repeated work; log and Redis decide."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._plan = plan_from(context.settings)
        self._limit = limit_from(context.settings)
        self._older_log = OlderLogCheck(context)
        self._trimmer = LogTrimmer(context.settings.kafka)
        self._token = secrets.token_hex(8)
        self._removed: dict[InputStream, tuple[int, ...]] = {}
        self._trimmed_for: dict[InputStream, tuple[int, bool]] = {}
        #: Earliest time for new markers after some were too early, on the monotonic clock.
        self._mark_again_at = 0.0

    async def step(self) -> bool:
        """Run the next due step: a seal, an opening, or a removal. Return True if one was due."""
        move = self._move(await self._context.read_log())
        if isinstance(move, SealRecords | SealReports):
            return await self._seal(move)
        if not isinstance(move, Wait):
            return await self._open()
        log_state = self._context.log.log_state
        for stem in InputStream:
            await self._sweep(log_state, stem)
        for stem in InputStream:
            if await self._trim(stem):
                return True
        return False

    def _move(self, log_state: ReleaseLogState) -> Open | Pause | SealRecords | SealReports | Wait:
        return next_keeper_move(
            log_state, self._plan, self._limit, self._context.now_ms(),
            epochs_ahead=self._context.settings.epoch.epochs_ahead,
            origin_ms=self._context.settings.epoch.origin_unix_s * 1000,
        )  # fmt: skip

    async def _open(self) -> bool:
        async with self._context.log.fenced_session(Kind.KEEPER, self._context.observe) as session:
            now = self._move(session.log_state)
            if isinstance(now, Open):
                await self._older_log.refuse(session.log_state)
                added = [entries.epoch_opened(now.parameters), *_checkpoint(session.log_state)]
            elif isinstance(now, Pause):
                added = [
                    entries.service_paused(now.epoch, now.from_ms, now.resumes_at_ms, now.reason)
                ]
            else:
                return not isinstance(now, Wait)  # Another keeper opened it first.
            await session.commit(added)
        _log_committed(added)
        return True

    async def _seal(self, move: SealRecords | SealReports) -> bool:
        """Write a marker to every partition, then commit their offsets, unless another keeper did.

        Markers of a keeper that dies in between have no effect; the next keeper writes new ones.
        """
        context, (stem, entry) = self._context, _SEALS[type(move)]
        topic = context.topics.of(stem)
        if time.monotonic() < self._mark_again_at:
            return False
        markers = await context.markers.write(stem, topic.name, topic.partitions, move.epoch)
        await context.observe(f"{Kind.KEEPER.value}.marked")
        markers = [m._replace(append_ms=context.brokers_ms(m.append_ms)) for m in markers]
        early_ms = too_early_ms(markers, move.not_before_ms)
        if early_ms > 0:
            # Our clock is ahead of a broker's. Discard these markers and write new ones when that
            # broker's clock has caught up; if the difference is large, try again sooner.
            self._mark_again_at = time.monotonic() + min(early_ms / 1000, _MARK_AGAIN_S)
            log.warning("markers_too_early", extra={"epoch": move.epoch, "early_ms": early_ms})
            return False
        async with context.log.fenced_session(Kind.KEEPER, context.observe) as session:
            now = self._move(session.log_state)
            if now != move:
                return not isinstance(now, Wait)
            added = [entry(move.epoch, [marker.offset for marker in markers])]
            await session.commit(added)
        _log_committed(added)
        return True

    async def _ends(self, stem: InputStream) -> list[int]:
        topic = self._context.topics.of(stem)
        ends = await self._context.kafka.ends(topic.name, range(topic.partitions))
        return [ends[partition] for partition in range(topic.partitions)]

    # --- raw data ends with the release ----------------------------------------------------------

    async def _sweep(self, log_state: ReleaseLogState, stem: InputStream) -> None:
        """Delete released epochs' counts, unless Redis still has the tokens of an earlier sweep.

        Redis lists the epochs that it stores, for all versions of the topic. A restored Redis may
        have epochs that the log state no longer contains, and a change of the topic version leaves
        the counts of the old version.
        """
        through = log_state.released_through(stem)
        if through < 0:
            return
        context, topic = self._context, self._context.topics.of(stem)
        tables, prefix = context.tables(stem), context.settings.topics.prefix
        mark = f"{self._token}:{through}"
        unmarked = [
            partition
            for partition in range(topic.partitions)
            if await tables.token(partition, "swept") != mark
        ]
        if not unmarked:
            return
        # Close the epochs first, so that no worker adds counts after the search.
        for partition in unmarked:
            await tables.close_epochs(partition, through)
        for stored in await stored_epochs(context.redis, prefix, topic.name):
            if stored.epoch <= through:
                table = stage_table(stem, context.redis, stored.topic, prefix=prefix)
                await table.release_epoch(stored.partition, stored.epoch)
        if stem is InputStream.OPTIN_RECORDS:
            # Only opt-in records contain text; reports contain randomised cell numbers.
            context.file_rewriting.request()
        for partition in unmarked:
            await tables.put_token(partition, "swept", mark, None)

    async def _trim(self, stem: InputStream) -> bool:
        """Remove raw records before the first that an unreleased epoch may have.

        Commits the new log start offsets, then removes the records below them. Another keeper may
        finish the removal. Never removes records of an epoch that is unreleased now, even if an
        earlier commit announced their removal.
        """
        context, topic = self._context, self._context.topics.of(stem)
        of = (stem.value, topic.version)
        if self._is_trimmed(context.log.log_state, stem):
            return False
        # Read the positions before the log: an epoch that is not in the log by then has no record
        # below these positions.
        counted = [
            position or 0 for position in await context.counts(stem, Kind.KEEPER).positions()
        ]
        ends = await self._ends(stem)
        at_most = [min(position, end) for position, end in zip(counted, ends, strict=True)]
        log_state = context.log.log_state
        free = await self._free(log_state, stem, at_most)
        # Counting may be behind, for example after Redis was emptied. More records can be removed
        # once it has caught up.
        whole = all(
            bound < most or most == end
            for bound, most, end in zip(free, at_most, ends, strict=True)
        )
        through, announced = log_state.released_through(stem), log_state.trimmed.get(of, ())
        again = self._trimmed_for.get(stem) == (through, False)
        added = (
            _never_back(free, announced) != list(announced) and any(free) and (whole or not again)
        )
        if not added and self._removed.get(stem) == tuple(map(min, free, announced)):
            self._trimmed_for[stem] = (through, whole)
            return False
        # Check again in a fenced session: only there is every epoch known, and records of an
        # unknown epoch would be removed.
        async with context.log.fenced_session(Kind.KEEPER) as session:
            free = await self._free(session.log_state, stem, at_most)
            bounds = _never_back(free, session.log_state.trimmed.get(of, ()))
            if added:
                await session.commit([entries.log_trimmed(*of, bounds)])
            removable = tuple(map(min, free, session.log_state.trimmed.get(of, ())))
            await self._trimmer.remove_below(topic.name, removable)
        self._removed[stem] = removable
        self._trimmed_for[stem] = (through, whole)
        log.info("log_trimmed", extra={"topic": stem, "epoch": through})
        return added

    async def _free(
        self, log_state: ReleaseLogState, stem: InputStream, at_most: Sequence[int]
    ) -> list[int]:
        """Return, per partition, the first offset that an unreleased epoch may have."""
        name = self._context.topics.of(stem).name
        return await self._trimmer.bounds_before(name, _first_append_ms(log_state, stem), at_most)

    def _is_trimmed(self, log_state: ReleaseLogState, stem: InputStream) -> bool:
        """Return True if nothing is left to remove: all announced offsets, all released epochs."""
        through = log_state.released_through(stem)
        announced = log_state.trimmed.get((stem.value, self._context.topics.of(stem).version), ())
        return through < 0 or (
            self._removed.get(stem) == announced and self._trimmed_for.get(stem) == (through, True)
        )


def too_early_ms(markers: Sequence[AppendedMarker], not_before_ms: int) -> int:
    """Return by how much the earliest marker is too early; 0 or less if all are late enough."""
    return not_before_ms - min(marker.append_ms for marker in markers)


def _log_committed(added: Sequence[Entry]) -> None:
    for entry in added:
        log.info(
            "entry_committed",
            extra={"kind": SafeText(entry["entry"]), "epoch": entry.get("epoch", -1)},
        )


def _first_append_ms(log_state: ReleaseLogState, stem: InputStream) -> int | None:
    """Return the earliest append time that an entry of an unreleased epoch may have, if any."""
    times = []
    for state in log_state.epochs.values():
        if state.released(stem):
            continue
        skew_ms = state.parameters.plan.skew_ms
        if stem is InputStream.OPTIN_RECORDS:
            times.append(state.parameters.window_start_ms - skew_ms)
        elif state.head_list is not None:
            times.append(state.head_list.at_ms - skew_ms)
    return min(times, default=None)


def _never_back(bounds: Sequence[int], announced: Sequence[int]) -> list[int]:
    """Return the larger bound per partition: a Redis rollback must not move the bounds back."""
    return [max(b, announced[p] if p < len(announced) else 0) for p, b in enumerate(bounds)]


def _checkpoint(log_state: ReleaseLogState) -> list[Entry]:
    """Return a checkpoint if one is due, and repeat the entries that it would hide."""
    last, at = log_state.ledger.last_epoch, log_state.checkpoint_epoch
    if last is None or last - (-1 if at is None else at) < CHECKPOINT_EPOCHS:
        return []
    repeated = [
        entries.log_trimmed(topic, version, bounds)
        for (topic, version), bounds in log_state.trimmed.items()
    ]
    if log_state.paused is not None:
        notice = log_state.paused
        repeated.append(
            entries.service_paused(
                notice.epoch, notice.from_ms, notice.resumes_at_ms, notice.reason
            )
        )
    return [entries.checkpoint(log_state.ledger, log_state.checkpoint_offset()), *repeated]
