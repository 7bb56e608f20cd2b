"""Every formula against numbers worked by hand (tests/vectors)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from blendstream.blender import (
    Cells,
    ClickGraphParameters,
    Estimates,
    RandomizerSpec,
    Record,
    blend_probabilities,
    estimate_client_probabilities,
    l1_distance,
    ndcg,
    project_onto_simplex,
)
from blendstream.blender.noise.exact_noise import laplace_scale
from blendstream.blender.paper.blend import optin_weight
from blendstream.blender.paper.click_graph import best_threshold
from blendstream.blender.paper.client import TwoStageChannel
from blendstream.blender.paper.optin import NoisyCounts, probability_and_variance
from blendstream.blender.paper.two_stage_estimates import TwoStageEstimator
from tests.channels import cells_of_shape

VECTORS = Path(__file__).parent.parent / "vectors"
CLIENT = json.loads((VECTORS / "client.json").read_text())
FORMULAS = json.loads((VECTORS / "formulas.json").read_text())


def test_client_estimates_and_variances():
    cells = Cells((Record("a", "x"), Record("a", "y"), Record("b", "z")), query_wildcards=True)
    channel = TwoStageChannel.from_cells(cells, CLIENT["truth"], np.array(CLIENT["url_truth"]))

    found = estimate_client_probabilities(
        np.array(CLIENT["counts"]), reports=CLIENT["reports"], channel=channel
    )

    assert found.participants == 100
    assert found.cells.probability == pytest.approx(CLIENT["probability"], abs=1e-12)
    assert found.cells.variance == pytest.approx(CLIENT["variance"], rel=1e-5)
    assert found.query_marginals.probability == pytest.approx(CLIENT["query_probability"])
    assert found.query_marginals.variance == pytest.approx(CLIENT["query_variance"], rel=1e-5)
    assert found.query_totals.probability == pytest.approx(CLIENT["total_probability"])
    assert found.query_totals.variance == pytest.approx(CLIENT["total_variance"], rel=1e-5)


def test_optin_estimate_and_variance():
    v = FORMULAS["optin"]
    scale = laplace_scale(sensitivity=2, epsilon=v["epsilon"])
    noisy = NoisyCounts(np.array([v["noisy_count"]]), np.array([1]), scale, v["users"])

    p, variance = probability_and_variance(noisy)

    assert p == pytest.approx([v["probability"]])
    assert variance == pytest.approx([v["variance"]], rel=1e-7)


def test_blend():
    v = FORMULAS["blend"]
    optin, client = (
        Estimates(*(np.array([x]) for x in (p, variance, 0.0, 1.0)))
        for p, variance in (v["optin"], v["client"])
    )
    found = blend_probabilities(optin, client)

    assert optin_weight(optin.variance, client.variance) == pytest.approx([v["weight"]])
    assert found.probability == pytest.approx([v["probability"]])
    assert found.variance == pytest.approx([v["variance"]])
    margin = 1.959964 * v["variance"] ** 0.5
    assert found.low == pytest.approx([v["probability"] - margin])
    assert found.high == pytest.approx([v["probability"] + margin])


def test_probabilities_of_telling_the_truth():
    v = FORMULAS["truth"]
    budget = {k: v[k] for k in ("epsilon", "delta", "answers", "query_budget_share")}
    cells = cells_of_shape(tuple(v["urls_per_query"]), query_wildcards=True)

    randomizer = TwoStageEstimator(cells, RandomizerSpec("two-stage", **budget))

    assert float(randomizer.truth) == pytest.approx(v["query_truth"], abs=1e-8)
    assert float(randomizer.url_truth[3]) == pytest.approx(v["url_truth"]["3"], abs=1e-8)
    assert float(randomizer.url_truth[2]) == pytest.approx(v["url_truth"]["2"], abs=1e-8)
    assert randomizer.url_truth[1] == 1, "⋆ has one URL, which is always told"


def test_simplex():
    v = FORMULAS["simplex"]
    assert project_onto_simplex(np.array(v["p"])) == pytest.approx(v["nearest"])


def test_ndcg():
    v = FORMULAS["ndcg"]
    truth = {Record(q, u): n for q, u, n in v["truth"]}
    estimate = {Record(q, u): p for q, u, p in v["estimate"]}
    assert ndcg(estimate, truth) == pytest.approx(v["ndcg"], abs=1e-5)
    assert ndcg(truth, truth) == 1.0


def test_l1():
    v = FORMULAS["l1"]
    found = l1_distance(np.array(v["p"]), np.array(v["truth"]))
    assert found == pytest.approx(v["distance"])


@pytest.mark.parametrize("which", ["click_graph", "click_graph_flat"])
def test_click_graph_privacy(which):
    v = FORMULAS[which]
    parameters = ClickGraphParameters(**v["parameters"])
    assert parameters.alpha == pytest.approx(v["alpha"], rel=1e-7)
    assert parameters.epsilon == pytest.approx(v["epsilon"], rel=1e-7)
    assert parameters.delta == pytest.approx(v["delta"], rel=1e-7)


def test_best_threshold():
    v = FORMULAS["best_threshold"]
    budget = {k: v[k] for k in ("epsilon", "delta", "queries_per_user")}
    assert best_threshold(**budget) == (v["scale"], v["threshold"])
    assert v["papers_k"] - 1 < v["threshold"] - 1 <= v["papers_k"]


def test_the_right_client_variance_where_the_printed_one_fails():
    """k = 20, k_q = 4, ε = 4, f_C = 0.5, n = 20 000, p = 0.2: 6.72e-5, where Figure 5 as printed
    gives −0.22.
    """
    cells = cells_of_shape((3,) * 19, query_wildcards=True)
    randomizer = TwoStageEstimator(
        cells, RandomizerSpec("two-stage", epsilon=4.0, query_budget_share=0.5)
    )
    k, k_q, n = 20, 4, 20_000
    t, t_q = float(randomizer.truth), float(randomizer.url_truth[4])
    p = np.full(len(cells), 0.8 / (len(cells) - 1))
    p[0] = 0.2
    r = randomizer.expected_shares(p)
    r_qu, r_q = r[0], r[cells.query_of_cell == 0].sum()

    c = (1 - t) / ((k - 1) * k_q) - t * (1 - t_q) / (k_q - 1)
    d, g = t - (1 - t) / (k - 1), t_q - (1 - t_q) / (k_q - 1)
    query = r_q * (1 - r_q) / (n * d**2)
    right = (r_qu * (1 - r_qu) / n + c**2 * query + 2 * c * r_qu * (1 - r_q) / (n * d)) / (
        t * g
    ) ** 2
    printed = (r_qu * (1 - r_qu) / n + c**2 * query + 2 * c * (k - 2 + t) / (k * t - 1) * r_qu) / (
        t * g
    ) ** 2

    found = randomizer.estimate(np.bincount([0], minlength=len(cells)) * n, n).variance_at(p)[0]
    assert found == pytest.approx(right, rel=1e-12)
    assert found == pytest.approx(6.72e-5, rel=1e-3)
    assert printed == pytest.approx(-0.225, rel=1e-2)
