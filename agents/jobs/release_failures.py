"""What a failed release means: one table, which `release_step` follows.

docs/released-once.md shows it too.

Promises: no failure that may have depended on the noise leads to another draw.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from blendstream.blender.values.errors import BlenderError
from blendstream.streams.errors import StoreUnavailable
from blendstream.streams.releases.entries import IncompleteReason
from blendstream.streams.releases.log import CommitRefused

__all__ = ["FAILURES", "FailureAction", "FailureRule", "Progress", "ReleaseFailed", "rule_for"]


class ReleaseFailed(BlenderError):
    """A release failed and was given up; the next epoch continues. The cause says why."""


class Progress(enum.Enum):
    """How far a release was when it failed."""

    NOTHING_DRAWN = enum.auto()
    #: From just before the first noise until the commit was read back.
    DRAWING = enum.auto()
    COMMITTED = enum.auto()


class FailureAction(enum.Enum):
    """What the job does about a failure."""

    LOG_DECIDES = "the draw is thrown away, the log decides"
    PUBLISH = "published as committed, at the next attempt"
    GIVE_UP = "given up at once"
    TRY_AGAIN = "tried again until the counting deadline, then given up"


@dataclass(frozen=True, slots=True)
class FailureRule:
    """One line of the table: which failures, what is done, and why that is right."""

    failure: str
    error: type[Exception]
    progress: frozenset[Progress]
    then: FailureAction
    #: What the publication or the abandoned epoch says when it is given up.
    reason: IncompleteReason | None
    because: str


_NOT_COMMITTED = frozenset({Progress.NOTHING_DRAWN, Progress.DRAWING})
_REDRAWN = "drawing again until a draw succeeds would make the release depend on the draw"
#: The first rule that fits holds. A crash runs no code, and has the effect of the first.
#: docs/released-once.md shows this table; a test compares them.
FAILURES: tuple[FailureRule, ...] = (
    FailureRule(
        "a crash, an outage, a fence, or doubt about the commit",
        StoreUnavailable, _NOT_COMMITTED,
        FailureAction.LOG_DECIDES, None,
        "none of these knows anything of the noise",
    ),
    FailureRule(
        "anything, after the commit was read back",
        Exception, frozenset({Progress.COMMITTED}),
        FailureAction.PUBLISH, None,
        "the log has it, and publishing may be repeated",
    ),
    FailureRule(
        "the broker refused the commit for good",
        CommitRefused, _NOT_COMMITTED,
        FailureAction.GIVE_UP, IncompleteReason.COMMIT_REFUSED,
        _REDRAWN,
    ),
    FailureRule(
        "anything else, while drawing or between drawing and commit",
        Exception, frozenset({Progress.DRAWING}),
        FailureAction.GIVE_UP, IncompleteReason.DRAW_FAILED,
        _REDRAWN,
    ),
    FailureRule(
        "anything else, before noise was drawn, or in the estimates, which draw none",
        Exception, frozenset({Progress.NOTHING_DRAWN}),
        FailureAction.TRY_AGAIN, IncompleteReason.JOB_FAILED,
        "nothing was drawn: the cause may be repaired, and no epoch waits for ever",
    ),
)  # fmt: skip


def rule_for(error: Exception, progress: Progress) -> FailureRule:
    return next(r for r in FAILURES if isinstance(error, r.error) and progress in r.progress)
