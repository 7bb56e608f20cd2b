"""The action after a failed release: the table that the jobs follow and the docs show."""

from __future__ import annotations

from pathlib import Path

import pytest

from blendstream.agents.jobs.release_failures import FAILURES, FailureAction, Progress, rule_for
from blendstream.streams.errors import StoreMismatch, StoreUnavailable
from blendstream.streams.releases.entries import IncompleteReason
from blendstream.streams.releases.log import CommitInDoubt, CommitRefused, Fenced

PAGE = Path(__file__).parents[3] / "docs" / "released-once.md"


def test_the_docs_show_the_table_that_the_jobs_follow():
    """A reader who checks the privacy argument must see what the code does."""
    rows = [
        line.strip("| ").split(" | ")
        for line in PAGE.read_text().split("| what failed | then | because |")[1].splitlines()[2:]
        if line.startswith("|")
    ]
    shown = rows[: len(FAILURES)]
    assert shown == [[rule.failure, rule.action.value, rule.because] for rule in FAILURES]
    assert "| what failed | then | because |\n|---|---|---|\n" in PAGE.read_text()


@pytest.mark.parametrize("progress", [Progress.NOTHING_DRAWN, Progress.DRAWING])
@pytest.mark.parametrize("error", [StoreUnavailable("x"), Fenced("x"), CommitInDoubt("x")])
def test_an_outage_never_ends_an_epoch(error: Exception, progress: Progress):
    """It does not depend on the noise; only the log shows whether the commit succeeded."""
    assert rule_for(error, progress).action is FailureAction.LOG_DECIDES


@pytest.mark.parametrize(
    "error", [MemoryError(), OSError(), StoreMismatch("x"), CommitRefused("x")]
)
def test_once_noise_was_drawn_no_failure_leads_to_another_draw(error: Exception):
    """The cause of the failure may have depended on the draw."""
    rule = rule_for(error, Progress.DRAWING)
    assert rule.action is FailureAction.ABANDON
    wanted = IncompleteReason.DRAW_FAILED
    if isinstance(error, CommitRefused):
        wanted = IncompleteReason.COMMIT_REFUSED
    assert rule.reason is wanted


@pytest.mark.parametrize("error", [MemoryError(), StoreMismatch("x")])
def test_before_noise_is_drawn_a_failure_is_tried_again_until_the_deadline(error: Exception):
    """Nothing is lost by trying, and no epoch waits for ever."""
    rule = rule_for(error, Progress.NOTHING_DRAWN)
    assert (rule.action, rule.reason) == (FailureAction.RETRY, IncompleteReason.JOB_FAILED)


@pytest.mark.parametrize("error", [MemoryError(), CommitRefused("x"), StoreUnavailable("x")])
def test_what_was_committed_is_never_given_up(error: Exception):
    """It is released; an entry that ends its epoch would contradict it."""
    assert rule_for(error, Progress.COMMITTED).action is FailureAction.PUBLISH


def test_every_rule_that_gives_up_names_its_reason():
    """The publication or the abandoned epoch has the reason for readers."""
    ends = (FailureAction.ABANDON, FailureAction.RETRY)
    assert all((rule.reason is not None) == (rule.action in ends) for rule in FAILURES)
