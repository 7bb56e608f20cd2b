"""Compare publications with the truth, and with the other profile on the same people.

L1 is over the listed records without ⋆, not rescaled; NDCG is as in the paper's Section 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from blendstream.agents.local.demo.people import NO_RECORD, Crowd, Window
from blendstream.blender.epoch_estimates import estimate_epoch
from blendstream.blender.noise.exact_noise import ExactNoise
from blendstream.blender.paper.accuracy import l1_distance, ndcg
from blendstream.blender.profiles import build_head_list
from blendstream.blender.registry import randomizer_for
from blendstream.blender.values.interfaces import OptinCounts
from blendstream.blender.values.parameters import PrivacyParameters
from blendstream.blender.values.record import Record

__all__ = ["Row", "Score", "other_profile", "published"]


@dataclass(frozen=True, slots=True)
class Row:
    """One record's estimate and interval."""

    record: Record
    estimate: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Score:
    """The accuracy of one profile's estimates; `within` counts intervals that contain the truth."""

    rows: list[Row]
    l1: float
    ndcg: float
    within: int

    @classmethod
    def of(cls, rows: list[Row], truth: Mapping[Record, float]) -> Score:
        """Compute the accuracy over the listed records."""
        proportions = [truth.get(row.record, 0.0) for row in rows]
        estimates = {row.record: row.estimate for row in rows}
        return cls(
            rows,
            l1_distance(np.array([row.estimate for row in rows]), np.array(proportions)),
            ndcg(estimates, truth) if rows else 0.0,
            sum(row.low <= p <= row.high for row, p in zip(rows, proportions, strict=True)),
        )


def published(document: Mapping[str, Any], truth: Mapping[Record, float]) -> Score:
    """Return the accuracy of a published document."""
    rows = [
        Row(
            Record(cell["query"], cell["url"]),
            cell["blend"]["probability"],
            cell["blend"]["low"],
            cell["blend"]["high"],
        )
        for cell in document["records"]
        if cell["url"] is not None and cell["blend"] and cell["blend"]["probability"] is not None
    ]
    return Score.of(rows, truth)


def other_profile(profile: str, crowd: Crowd, window: Window, document: Mapping[str, Any]) -> Score:
    """Return the accuracy of the other profile, run on the same people at the same (ε, δ)."""
    rng = np.random.default_rng()  # Seeded by the operating system, because it draws noise.
    given = document["parameters"]
    parameters = PrivacyParameters(
        epsilon=given["epsilon"], delta=given["delta"], head_list_cells=given["head_list_cells"]
    )
    in_s = rng.random(len(window.optin)) < parameters.selection_share
    selection, estimation = (
        np.bincount(some[some != NO_RECORD], minlength=len(crowd.records))
        for some in (window.optin[in_s], window.optin[~in_s])
    )
    present = np.flatnonzero(selection + estimation)
    release = build_head_list(
        profile,
        OptinCounts(
            records=[crowd.records[i] for i in present],
            selection=selection[present],
            estimation=estimation[present],
            selection_users=int(in_s.sum()),
            estimation_users=int((~in_s).sum()),
        ),
        parameters,
        ExactNoise(),
    )
    cells = release.head_list.cells
    held = crowd.cell_of_number(cells)[window.clients]
    answers = randomizer_for(release.head_list).answer_batch(held, rng)
    counts = np.bincount(answers.ravel(), minlength=len(cells)).astype(np.int64)
    blended = estimate_epoch(release, counts, len(window.clients)).blended.cells
    rows = [
        Row(record, float(p), float(low), float(high))
        for record, p, low, high in zip(
            cells.records, blended.probability, blended.low, blended.high, strict=False
        )
    ]
    return Score.of(rows, window.truth)
