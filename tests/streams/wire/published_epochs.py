"""An epoch and what is published of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from blendstream.agents.jobs.estimates import build_estimates
from blendstream.agents.jobs.head_lists import _commit_contents
from blendstream.agents.jobs.job_context import RandomnessSources
from blendstream.blender.over_time.epoch_memory import EpochMemory
from blendstream.blender.over_time.publication_filter import RecordFilter
from blendstream.blender.profiles import build_head_list
from blendstream.blender.registry import randomizer_for
from blendstream.blender.values.interfaces import OptinCounts
from blendstream.blender.values.record import Record
from blendstream.streams.budget.epoch_plan import ClickGraphPlan
from blendstream.streams.releases.documents import DocumentReference, join
from blendstream.streams.releases.epoch_state import HeadListRelease
from blendstream.streams.releases.optin_release import read_optin_release, write_optin_release
from blendstream.streams.releases.sealed_counts import ReportsRead
from blendstream.streams.wire.click_graph_document import ClickGraphDocument, GraphQuery
from blendstream.streams.wire.estimates_document import EstimatesDocument
from blendstream.streams.wire.head_list_document import HeadListDocument
from tests.agents.jobs.kept_epochs import START, keep
from tests.agents.jobs.model_log import WINDOW_MS, ModelLog
from tests.doubles_jobs import RepeatableNoise

REFERENCE = DocumentReference("head-list", "0" * 64, 1, 1, 0, 1)


def epoch_state(**changes: object):
    log = ModelLog()
    keep(log, START, **changes)
    return log.log_state.epochs[0]


def counts(rng: np.random.Generator) -> OptinCounts:
    """Counts of twenty records by people of S and of T."""
    records = [Record(f"query {n % 7}", f"https://{n}.example/") for n in range(20)]
    s, t = rng.integers(20, 300, 20), rng.integers(5, 80, 20)
    return OptinCounts(records, s, t, int(s.sum()), int(t.sum()))


def published(
    profile: str, reports: int, reasons=(), *, forged: float | None = None, **changes: object
) -> EstimatesDocument:
    """Make a publication as the jobs make it.

    Clients answer at random; with `forged` they want what opt-in users do, but for so large a share
    of all reports, which name the first record.
    """
    held = counts(np.random.default_rng(2))
    return published_documents(profile, reports, held, reasons, forged=forged, **changes)[1]


def published_documents(
    profile: str, reports: int, held: OptinCounts, reasons=(), *, forged: float | None = None,
    **changes: object,
) -> tuple[HeadListDocument, EstimatesDocument]:  # fmt: skip
    """Make the head list and the publication of an epoch with these counts."""
    state = epoch_state(profile=profile, **changes)
    privacy, period = state.parameters.plan.privacy, state.parameters.period
    memory = None
    if period is not None:
        memory = EpochMemory(0, RecordFilter.start(), 1000, period.rule)
    release = build_head_list(profile, held, privacy, RepeatableNoise(3), (), memory)
    committed = _commit_contents(state, release, START + 3 * WINDOW_MS, ())
    stored = committed.documents[0]
    reference = DocumentReference.from_json(stored.to_json(), 0, 1)
    head_list = HeadListDocument.from_bytes(join(reference, stored.parts))
    k = len(release.head_list.cells)
    state = replace(
        state,
        head_list=HeadListRelease(
            REFERENCE, REFERENCE, k, 1, 1, False,
            START + 3 * WINDOW_MS, tuple(reasons), START + WINDOW_MS,
        ),
    )  # fmt: skip
    shares = np.full(k, 1 / k)
    if forged is not None:
        randomizer = randomizer_for(release.head_list)
        shares = randomizer.expected_shares(np.append(release.optin.cells.probability[:-1], 0.0))
        shares = (1 - forged) * shares / shares.sum()
        shares[0] += forged
    cells = np.random.default_rng(4).multinomial(reports, shares).astype(np.int64)
    again = read_optin_release(write_optin_release(release), release.head_list)
    dice = RandomnessSources(RepeatableNoise(3), lambda: np.random.default_rng(1))
    found = build_estimates(state, again, ReportsRead(cells, reports, False), reasons, dice)
    return head_list, found


def graph() -> ClickGraphDocument:
    """A click graph of two queries."""
    parameters = ClickGraphPlan(2.0, 1e-6, 1, 1)
    return ClickGraphDocument(
        epoch=3,
        window_start_s=0,
        window_end_s=60,
        outcome="complete",
        reasons=(),
        url_table="file",
        participants=100,
        parameters={},
        mechanisms={},
        queries=(
            GraphQuery("b", 5, (("https://x/", 1), ("https://y/", 4))),
            GraphQuery("a", 9, ()),
        ),
        privacy={
            "statement": "x" * 100,
            "neighbouring": "add-remove",
            "released": {"epsilon": 2.0, "delta": 1e-6},
            "charged": {
                "epsilon": parameters.cost.epsilon,
                "delta": parameters.cost.delta,
                "neighbouring": "replace-one",
            },
        },
        versions={},
        quantity="x" * 100,
    )
