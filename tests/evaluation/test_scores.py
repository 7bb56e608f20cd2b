"""The measures measure: a perfect estimate scores perfectly, a missing favourite costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from blendstream.blender.values.arrays import FloatArray
from blendstream.blender.values.cell_estimates import Estimates, GroupEstimates
from blendstream.evaluation.drawing import THEMES
from blendstream.evaluation.paper_experiments import deviation, ingredients, regressions
from blendstream.evaluation.populations import AOL
from blendstream.evaluation.scores import missing, scores
from blendstream.evaluation.simulated_epochs import (
    SimulatedEpoch,
    draw_optin,
    parameters_of,
    run_epoch,
)

SMALL = AOL.scaled(0.3)


@pytest.fixture(scope="module")
def epoch() -> SimulatedEpoch:
    rng = np.random.default_rng(2)
    optin = draw_optin(SMALL, rng)
    return run_epoch("paper", SMALL, optin, parameters_of(SMALL, list_size=10), rng)


def saying(epoch: SimulatedEpoch, cells: FloatArray) -> GroupEstimates:
    """A group whose estimate of every cell is the given one, its queries added up from them."""
    of_cell = epoch.release.head_list.cells.query_of_cell
    queries = len(epoch.release.head_list.cells.queries)
    totals = np.bincount(of_cell[:-1], weights=cells[:-1], minlength=queries)
    blended = epoch.estimates.blended
    return replace(blended, cells=_exactly(cells), query_marginals=_exactly(totals))


def _exactly(p: FloatArray) -> Estimates:
    return Estimates(p, np.zeros_like(p), p, p)


def test_the_truth_has_no_error(epoch: SimulatedEpoch) -> None:
    """L1 of 0 by every measure."""
    found = scores(epoch, SMALL.people, saying(epoch, epoch.truth.cells))

    assert found["l1"] == pytest.approx(0, abs=1e-9)
    assert found["l1_queries"] == pytest.approx(0, abs=1e-9)
    assert found["l1_plain"] == pytest.approx(0, abs=1e-9)


def test_the_third_column_of_figure_nine_is_the_query_with_any_url(epoch: SimulatedEpoch) -> None:
    """Sums over listed URLs once stood there, and fell short of the truth beside them."""
    truth = epoch.truth.cells
    of_cell = epoch.release.head_list.cells.query_of_cell
    exact = saying(epoch, truth)
    listed = len(epoch.truth.listed)
    totals = np.bincount(of_cell[:listed], weights=truth[:listed])
    blended = replace(exact, query_totals=_exactly(totals))
    told = replace(epoch, estimates=replace(epoch.estimates, blended=blended))
    columns = ingredients(SMALL, told)

    assert deviation(columns["blended"], columns["truth"]) == pytest.approx(0, abs=1e-9)
    assert deviation(columns["blended_urls"], columns["truth"]) > 0.1


def test_what_is_missing_is_counted(epoch: SimulatedEpoch) -> None:
    """Ten records are listed; those of the true ten that are not among them are missing."""
    listed = set(epoch.truth.listed.tolist())

    assert missing(epoch, SMALL.people) == len(set(SMALL.people.top(10).tolist()) - listed)


def test_turning_the_list_upside_down_costs_ndcg(epoch: SimulatedEpoch) -> None:
    """The truth's order is the best of all orders of this list."""
    listed = len(epoch.truth.listed)
    upside_down = epoch.truth.cells.copy()
    upside_down[:listed] = (
        upside_down[:listed].min() + upside_down[:listed].max() - (upside_down[:listed])
    )
    right = scores(epoch, SMALL.people, saying(epoch, epoch.truth.cells))["ndcg"]

    assert scores(epoch, SMALL.people, saying(epoch, upside_down))["ndcg"] < right <= 1


def test_regressions_are_what_figure_9_prints_in_red() -> None:
    """Larger than the line above; queries that are not listed are passed over."""
    assert regressions(np.array([9.0, 8.0, 8.5, 3.0, np.nan, 3.5])) == 2
    assert regressions(np.array([])) == 0


def test_lines_stand_out_from_their_ground_in_both_themes() -> None:
    """Graphics need a contrast of about 3:1 to be told from the ground; labels are larger text."""
    for theme in THEMES:
        for role, colour in theme.colours.items():
            assert contrast(colour, theme.ground) > 2.9, (theme.name, role)
        assert contrast(theme.text, theme.ground) > 7


def contrast(one: str, other: str) -> float:
    """Ratio of relative luminances, as WCAG 2 defines it."""

    def luminance(colour: str) -> float:
        parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        linear = np.where(parts <= 0.03928, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)
