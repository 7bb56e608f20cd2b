"""Targets of submissions: the epochs that accept records and the head lists that accept reports.

Each target has its times, its epoch's keys and the kind of frame for its entries. They come from
the release log (`agents.gateway.state.release_follower`); `submit/` validates entries with them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from blendstream.agents.gateway.state.frame_writer import (
    OptinFrames,
    ReportFrames,
)
from blendstream.agents.gateway.state.verdicts import (
    ACCEPTED,
    NOT_ACKNOWLEDGED,
    Reason,
    Verdict,
    refusal,
    retry,
)
from blendstream.blender.values.answer_shape import AnswerShape
from blendstream.streams.epoch_keys import EpochKeys, PeriodSubgroups, account
from blendstream.streams.wire.frames import cell_width

__all__ = ["OptinTarget", "OptinTargets", "ReportTarget"]


@dataclass(frozen=True, slots=True, eq=False)
class OptinTarget:
    """An epoch that accepts opt-in records."""

    epoch: int
    keys: EpochKeys
    frames: OptinFrames
    partitions: int
    records_per_user: int
    cohorts: int
    cohort_id: str
    user_id_spaces: bool
    window_start_ms: int
    window_end_ms: int
    early_before_ms: int
    late_from_ms: int
    #: Assigns subgroups in a budget period; None: the workers assign them per epoch.
    shares: PeriodSubgroups | None = None

    def contributor(self, space: str, user_id: bytes) -> bytes:
        """Return the contributor key of a user, by the rule that the epoch was opened with."""
        identity = account(space, user_id) if self.user_id_spaces else user_id
        if self.shares is not None:
            return self.keys.contributor_in(identity, self.shares.of(user_id))
        return self.keys.contributor_of(identity)

    def verdict(self, append_ms: int | None) -> Verdict:
        """Return the verdict on a record with this append time; the workers decide likewise."""
        if append_ms is None:
            return NOT_ACKNOWLEDGED
        if append_ms < self.early_before_ms:
            return _early(self)
        return _late(self) if append_ms >= self.late_from_ms else ACCEPTED


class OptinTargets:
    """The epochs that accept records, by number."""

    def __init__(self, targets: Sequence[OptinTarget] = ()) -> None:
        self._targets = {target.epoch: target for target in targets}

    def get(self, epoch: int) -> OptinTarget | None:
        """Return the target of this epoch, if it has one."""
        return self._targets.get(epoch)

    def now(self, now_ms: float) -> OptinTarget | None:
        """Return the target of the epoch whose window contains this time, if there is one."""
        for target in self._targets.values():
            if target.window_start_ms <= now_ms < target.window_end_ms:
                return target
        return None

    def stated(self, epoch: int, now_ms: float) -> OptinTarget | None:
        """Return the target of the epoch that an entry states, if it accepts records at this time.

        A device whose clock is slightly ahead may state an epoch just before its window begins.
        This check uses the gateway's clock; the broker's append time decides later.
        """
        target = self._targets.get(epoch)
        if target is None or not (target.early_before_ms <= now_ms < target.late_from_ms):
            return None
        return target


def _early(target: OptinTarget) -> Verdict:
    return retry(
        Reason.EARLY,
        f"the record reached the log before epoch {target.epoch} began, by the brokers' clock, and "
        "is not counted; send the same entry again",
    )


def _late(target: OptinTarget) -> Verdict:
    return refusal(
        Reason.LATE,
        f"the record reached the log after the grace of epoch {target.epoch}; it is not counted",
    )


_STRUCT_CODES: Final = {1: "B", 2: "H", 4: "I"}


class ReportTarget:
    """A head list that accepts reports: its shape, its times and its epoch's keys."""

    def __init__(
        self,
        *,
        head_list_id: str,
        epoch: int,
        keys: EpochKeys,
        topic: str,
        partitions: int,
        cells: int,
        cells_per_answer: int,
        answers: int,
        wildcard_alone: bool,
        late_from_ms: int,
        log_position: int,
        admitted: bool = True,
    ) -> None:
        """Take the list's fields; `admitted` is false if its epoch needs a hook that is not set."""
        self.admitted = admitted
        self.epoch = epoch
        self.keys = keys
        self.partitions = partitions
        self.shape = AnswerShape(cells, cells_per_answer, answers, wildcard_alone)
        self.late_from_ms = late_from_ms
        width = cell_width(cells)
        per_entry = cells_per_answer * answers
        self.frames = ReportFrames(
            topic, epoch, bytes.fromhex(head_list_id), per_entry, width, log_position
        )
        self.dtype = np.dtype(f"<u{width}")
        self.pack = struct.Struct(f"<{per_entry}{_STRUCT_CODES[width]}").pack
        self.wrong_shape = refusal(
            Reason.WRONG_SHAPE,
            f"a report on this head list must hold {answers} answers of {cells_per_answer} "
            f"strictly increasing cell numbers from 0 to {cells - 1}; build it with the "
            "randomizer that the head list names",
        )
        self.late = refusal(
            Reason.LATE,
            f"the time for reports on the head list of epoch {epoch} has ended; "
            "fetch the current head list",
        )

    def verdict(self, append_ms: int | None) -> Verdict:
        """Return the verdict on a report with this append time; the workers decide likewise."""
        if append_ms is None:
            return NOT_ACKNOWLEDGED
        return self.late if append_ms >= self.late_from_ms else ACCEPTED
