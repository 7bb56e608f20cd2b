"""The action after each kind of failed release, as one table that `release_step` follows.

docs/released-once.md shows the same table.

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
    """A release failed permanently and was abandoned; the next epoch continues.

    `__cause__` is the failure.
    """


class Progress(enum.Enum):
    """How far a release was when it failed."""

    NOTHING_DRAWN = enum.auto()
    #: From just before the first noise until the commit was read back.
    DRAWING = enum.auto()
    COMMITTED = enum.auto()


class FailureAction(enum.Enum):
    """Action taken after a failed release."""

    LOG_DECIDES = "the job discards the draw, the log decides"
    PUBLISH = "the next attempt publishes the committed document"
    ABANDON = "the job abandons the release immediately"
    RETRY = "the job retries until the counting deadline, then abandons the release"


@dataclass(frozen=True, slots=True)
class FailureRule:
    """One line of the table: which failures, the action, and the reason for it."""

    failure: str
    error: type[Exception]
    progress: frozenset[Progress]
    action: FailureAction
    #: The reason that the publication or the abandoned epoch states. None: never abandoned.
    reason: IncompleteReason | None
    because: str


_NOT_COMMITTED = frozenset({Progress.NOTHING_DRAWN, Progress.DRAWING})
_REDRAWN = "drawing again until a draw succeeds would make the release depend on the draw"
#: The first matching rule applies. A crash has the effect of the first rule, without running it.
#: docs/released-once.md shows this table; a test compares them.
FAILURES: tuple[FailureRule, ...] = (
    FailureRule(
        "a crash, an outage, a fence, or doubt about the commit",
        StoreUnavailable, _NOT_COMMITTED,
        FailureAction.LOG_DECIDES, None,
        "none of these depends on the noise",
    ),
    FailureRule(
        "anything, after the commit was read back",
        Exception, frozenset({Progress.COMMITTED}),
        FailureAction.PUBLISH, None,
        "the log contains the release, and publishing may be repeated",
    ),
    FailureRule(
        "the broker refused the commit permanently",
        CommitRefused, _NOT_COMMITTED,
        FailureAction.ABANDON, IncompleteReason.COMMIT_REFUSED,
        _REDRAWN,
    ),
    FailureRule(
        "anything else, while drawing or between drawing and commit",
        Exception, frozenset({Progress.DRAWING}),
        FailureAction.ABANDON, IncompleteReason.DRAW_FAILED,
        _REDRAWN,
    ),
    FailureRule(
        "anything else, before noise was drawn, or in the estimates, which draw none",
        Exception, frozenset({Progress.NOTHING_DRAWN}),
        FailureAction.RETRY, IncompleteReason.JOB_FAILED,
        "nothing was drawn: the cause may be repaired, and no epoch waits forever",
    ),
)  # fmt: skip


def rule_for(error: Exception, progress: Progress) -> FailureRule:
    """Return the first rule that matches a failure at this point of a release."""
    return next(r for r in FAILURES if isinstance(error, r.error) and progress in r.progress)
