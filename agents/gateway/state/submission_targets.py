"""What may be sent now: the epochs that take records, and the head lists that take reports.

Each has its times, its epoch's keys and the frames that its entries go into. The release log says
which there are (`agents.gateway.state.release_follower`); `submit/` judges entries by them.
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
    refused,
    retry,
)
from blendstream.blender.values.answer_shape import AnswerShape
from blendstream.streams.epoch_keys import EpochKeys, PeriodShares, account
from blendstream.streams.wire.frames import cell_width

__all__ = ["OptinTarget", "OptinTargets", "ReportTarget"]


@dataclass(frozen=True, slots=True, eq=False)
class OptinTarget:
    """An epoch that opt-in records may be sent for."""

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
    #: Who is in which share, in a budget period; otherwise the workers work it out.
    shares: PeriodShares | None = None

    def contributor(self, space: str, user_id: bytes) -> bytes:
        """Who this is, by the rule that the epoch was opened with."""
        identity = account(space, user_id) if self.user_id_spaces else user_id
        if self.shares is not None:
            return self.keys.contributor_in(identity, self.shares.of(user_id))
        return self.keys.contributor_of(identity)

    def verdict(self, append_ms: int | None) -> Verdict:
        """What the counters will say of a record that the broker appended at this moment."""
        if append_ms is None:
            return NOT_ACKNOWLEDGED
        if append_ms < self.early_before_ms:
            return _early(self)
        return _late(self) if append_ms >= self.late_from_ms else ACCEPTED


class OptinTargets:
    """The epochs whose records may be on their way, and which of them is now."""

    def __init__(self, targets: Sequence[OptinTarget] = ()) -> None:
        self._targets = {target.epoch: target for target in targets}

    def get(self, epoch: int) -> OptinTarget | None:
        """The target of this epoch, if there is one."""
        return self._targets.get(epoch)

    def now(self, now_ms: float) -> OptinTarget | None:
        """The epoch whose window holds this moment."""
        for target in self._targets.values():
            if target.window_start_ms <= now_ms < target.window_end_ms:
                return target
        return None

    def stated(self, epoch: int, now_ms: float) -> OptinTarget | None:
        """The epoch an entry states, from its beginning until its grace has ended.

        A device whose clock is a little ahead may state an epoch that begins in a moment. This
        asks our own clock; the broker's has the last word, once it has appended the record.
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
    return refused(
        Reason.LATE,
        f"the record reached the log after the grace of epoch {target.epoch}; it is not counted",
    )


_STRUCT_CODES: Final = {1: "B", 2: "H", 4: "I"}


class ReportTarget:
    """A head list that may be reported against: its shape, its times and its epoch's keys."""

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
        """`admitted`: reports on this list pass the hook that its epoch asks for, if any."""
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
        self.wrong_shape = refused(
            Reason.WRONG_SHAPE,
            f"a report on this head list must hold {answers} answers of {cells_per_answer} "
            f"strictly increasing cell numbers from 0 to {cells - 1}; build it with the "
            "randomizer that the head list names",
        )
        self.late = refused(
            Reason.LATE,
            f"the time for reports on the head list of epoch {epoch} has ended; "
            "fetch the current head list",
        )

    def verdict(self, append_ms: int | None) -> Verdict:
        """What the counters will say of a report that the broker appended at this moment."""
        if append_ms is None:
            return NOT_ACKNOWLEDGED
        return self.late if append_ms >= self.late_from_ms else ACCEPTED
