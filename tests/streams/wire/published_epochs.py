"""An epoch and what is published of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from blendstream.agents.jobs.estimates import build_estimates
from blendstream.agents.jobs.job_context import RandomnessSources
from blendstream.blender.profiles import build_head_list
from blendstream.blender.registry import randomizer_for
from blendstream.blender.values.interfaces import OptinCounts
from blendstream.blender.values.record import Record
from blendstream.streams.budget.epoch_plan import ClickGraphPlan
from blendstream.streams.releases.documents import DocumentReference
from blendstream.streams.releases.epoch_state import HeadListRelease
from blendstream.streams.releases.optin_release import read_optin_release, write_optin_release
from blendstream.streams.releases.sealed_counts import ReportsRead
from blendstream.streams.wire.click_graph_document import ClickGraphDocument, GraphQuery
from blendstream.streams.wire.estimates_document import EstimatesDocument
from tests.agents.jobs.kept_epochs import START, keep
from tests.agents.jobs.model_log import WINDOW_MS, ModelLog
from tests.doubles_jobs import RepeatableNoise

REFERENCE = DocumentReference("head-list", "0" * 64, 1, 1, 0, 1)


def epoch_state(**changes: object):
    log = ModelLog()
    keep(log, START, **changes)
    return log.log_state.epochs[0]


def counts(rng: np.random.Generator) -> OptinCounts:
    records = [Record(f"query {n % 7}", f"https://{n}.example/") for n in range(20)]
    s, t = rng.integers(20, 300, 20), rng.integers(5, 80, 20)
    return OptinCounts(records, s, t, int(s.sum()), int(t.sum()))


def published(
    profile: str, reports: int, reasons=(), *, forged: float | None = None, **changes: object
) -> EstimatesDocument:
    """A publication made as the jobs make it.

    Clients answer at random; with `forged` they want what opt-in users do, but for so large a share
    of all reports, which name the first record.
    """
    rng = np.random.default_rng(2)
    state = epoch_state(profile=profile, **changes)
    release = build_head_list(
        profile, counts(rng), state.parameters.plan.privacy, RepeatableNoise(3)
    )
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
    return build_estimates(state, again, ReportsRead(cells, reports, False), reasons, dice)


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
