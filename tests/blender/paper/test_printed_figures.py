"""Figures 3 to 7 again, in plain Python from the printed formulas, beside `blender/paper/`.

Loops over dictionaries and `math`, no NumPy and nothing of this project but its records: a mistake
in an array cannot repeat itself here. Noise is given, so both sides start from the same draws.
Where `blender/paper/` departs from the print, the loops do too, and name the decision.
"""

from __future__ import annotations

import math
import random
from collections import Counter

import numpy as np
import pytest

from blendstream.blender import OptinCounts, PrivacyParameters, Record
from blendstream.blender.noise.exact_noise import GRID
from blendstream.blender.paper.blend import blend_probabilities
from blendstream.blender.paper.head_list import create_head_list
from blendstream.blender.paper.local import TwoStage
from blendstream.blender.paper.optin import estimate_optin_probabilities
from blendstream.blender.registry import randomizer_for
from blendstream.blender.values.cells import RandomizerSpec
from tests.doubles import ScriptedNoise

STAR = "⋆"
EPSILON, DELTA, M, SHARE = 4.0, 1e-5, 6, 0.85
PARAMETERS = PrivacyParameters(
    epsilon=EPSILON, delta=DELTA, head_list_cells=M, query_budget_share=SHARE
)
RECORDS = [Record(q, u) for q, n in (("a", 4), ("b", 3), ("c", 1), ("d", 2)) for u in "wxyz"[:n]]


def draw(seed: int) -> tuple[Counter[Record], list[Record | None], dict[str, list[float]]]:
    """S's counts, T's records and noise in people; the noise lies on the grid of 1/G people."""
    rng = random.Random(seed)

    def laplace(draws: int) -> list[float]:
        signs = (rng.choice((-1, 1)) for _ in range(draws))
        return [round(GRID * sign * rng.expovariate(EPSILON / 2)) / GRID for sign in signs]

    in_s = Counter({record: rng.randint(3, 12) for record in RECORDS})
    in_t: list[Record | None] = [rng.choice([*RECORDS, None]) for _ in range(3_000)]
    return in_s, in_t, {"S": laplace(len(RECORDS)), "T": laplace(30)}


def printed_figure_3(in_s: Counter[Record], noise: list[float]) -> list[Record]:
    """Lines 6, 7 and 9 to 14, with m_O = 1; X is the noise of one record."""
    b = 2 / EPSILON
    tau = b * (math.log(math.exp(EPSILON / 2) + 1 - 1) - math.log(DELTA))
    # Departure: the grid's threshold is the first one whose exact tail is at most δ/2, up to two
    # units above τ (docs/decisions/0003-noise-on-a-fine-grid.md). No draw here lies between.
    assert not any(
        tau - 1e-9 <= n + x < tau + 2 / GRID for n, x in zip(in_s.values(), noise, strict=True)
    )
    return sorted(r for (r, n), x in zip(in_s.items(), noise, strict=True) if n + x > tau)


def cells_of(records: list[Record]) -> dict[str, list[str]]:
    """HL: each query with its URLs and ⋆, in order of appearance; ⟨⋆,⋆⟩ last."""
    queries = list(dict.fromkeys(record.query for record in records))
    head_list = {q: [r.url for r in records if r.query == q] + [STAR] for q in queries}
    return head_list | {STAR: [STAR]}


def falls_into(head_list: dict[str, list[str]], record: Record | None) -> tuple[str, str]:
    """Figure 6, lines 8 to 11: what is not in HL becomes ⋆."""
    if record is None or record.query not in head_list:
        return STAR, STAR
    return record.query, record.url if record.url in head_list[record.query] else STAR


def printed_figure_4(
    selected: list[Record], in_t: list[Record | None], noise: list[float]
) -> tuple[list[Record], dict[tuple[str, str], float], dict[tuple[str, str], float]]:
    """p̂_O, σ̂²_O (Theorem 4) and the M records with the largest p̂.

    Departure: ⟨q,⋆⟩ is a cell of its own (docs/decisions/0001-one-set-of-cells.md).
    """
    everything = cells_of(selected)
    counts = Counter(falls_into(everything, record) for record in in_t)
    order = [(r.query, r.url) for r in selected]
    order += [(q, STAR) for q in everything if q != STAR] + [(STAR, STAR)]
    noisy = {cell: counts[cell] + x for cell, x in zip(order, noise, strict=False)}
    ranked = sorted(selected, key=lambda r: (-noisy[r.query, r.url], r))
    kept = ranked[:M]
    head_list = cells_of(kept)
    merged: Counter[tuple[str, str]] = Counter()
    draws: Counter[tuple[str, str]] = Counter()
    for (query, url), value in noisy.items():
        home = falls_into(head_list, Record(query, url)) if query != STAR else (STAR, STAR)
        merged[home] += value
        draws[home] += 1
    size, b = len(in_t), 2 / EPSILON
    p = {cell: value / size for cell, value in merged.items()}
    from_noise = {cell: 2 * draws[cell] * (b / size) ** 2 for cell in p}
    variance = {
        cell: size / (size - 1) * (p[cell] * (1 - p[cell]) / size + from_noise[cell]) for cell in p
    }
    # Departure: never below the noise's own (docs/decisions/0004-variance-floors.md).
    variance = {cell: max(value, from_noise[cell]) for cell, value in variance.items()}
    return kept, p, variance


def printed_figure_6(head_list: dict[str, list[str]]) -> tuple[float, dict[str, float]]:
    """Lines 2 to 6: t and each query's t_q, with m_C = 1."""
    epsilon_q, delta_q = SHARE * EPSILON, SHARE * DELTA
    epsilon_u, delta_u = EPSILON - epsilon_q, DELTA - delta_q
    k = len(head_list)
    t = (math.exp(epsilon_q) + delta_q / 2 * (k - 1)) / (math.exp(epsilon_q) + k - 1)
    t_q = {
        q: (math.exp(epsilon_u) + delta_u / 2 * (len(urls) - 1))
        / (math.exp(epsilon_u) + len(urls) - 1)
        for q, urls in head_list.items()
    }
    return t, t_q


def channel(
    head_list: dict[str, list[str]], held: tuple[str, str], reported: tuple[str, str]
) -> float:
    """Lines 12 to 21: how likely a device that holds one cell reports another."""
    t, t_q = printed_figure_6(head_list)
    (q, u), (q_reported, u_reported) = held, reported
    if q != q_reported:
        return (1 - t) / (len(head_list) - 1) / len(head_list[q_reported])
    if u != u_reported:
        return t * (1 - t_q[q]) / (len(head_list[q]) - 1)
    return t * t_q[q]


def printed_figure_5(
    head_list: dict[str, list[str]], reports: Counter[tuple[str, str]]
) -> tuple[dict[str, float], dict[str, float], dict[tuple[str, str], float]]:
    """Lines 11 to 16: p̂ and σ̂² of queries, p̂ of records."""
    n, k = sum(reports.values()), len(head_list)
    t, t_q = printed_figure_6(head_list)
    lie = (1 - t) / (k - 1)
    p_query, variance_query, p = {}, {}, {}
    for q, urls in head_list.items():
        r_q = sum(reports[q, u] for u in urls) / n
        p_query[q] = (r_q - lie) / (t - lie)
        variance_query[q] = 1 / (t - lie) ** 2 * r_q * (1 - r_q) / (n - 1)
        k_q = len(urls)
        for u in urls:
            if k_q == 1:  # ⟨⋆,⋆⟩ is its query
                p[q, u] = p_query[q]
                continue
            wrong = (1 - t_q[q]) / (k_q - 1)
            p[q, u] = (
                reports[q, u] / n
                - wrong * t * p_query[q]
                - (1 - t) * (1 - p_query[q]) / ((k - 1) * k_q)
            ) / (t * (t_q[q] - wrong))
    return p_query, variance_query, p


def variance_of_records(
    head_list: dict[str, list[str]], reports: Counter[tuple[str, str]]
) -> dict[tuple[str, str], float]:
    """σ̂² of records by brute force, in place of line 17.

    Departure: the printed one lacks a 1/n (docs/decisions/0002-client-variance.md). p̂ is linear in
    the reports, so a report of cell c adds some g_c/n to it, and σ̂² is the sample variance of g
    over n. g comes from Figure 5 itself: all reports moved to c.
    """
    n = sum(reports.values())
    effect = {c: printed_figure_5(head_list, Counter({c: n}))[2] for c in reports}
    variance = {}
    for q, urls in head_list.items():
        for u in urls:
            mean = sum(count * effect[c][q, u] for c, count in reports.items()) / n
            squares = sum(count * (effect[c][q, u] - mean) ** 2 for c, count in reports.items())
            variance[q, u] = squares / (n - 1) / n
    return variance


@pytest.mark.parametrize("seed", range(3))
def test_figures_3_to_7_give_what_the_printed_formulas_give(seed: int) -> None:
    """From S's counts to the blend, with the same noise and the same reports."""
    in_s, in_t, noise = draw(seed)
    units = {name: [round(x * GRID) for x in draws] for name, draws in noise.items()}
    of_t = Counter(in_t)
    counts = OptinCounts(
        RECORDS,
        np.array([in_s[r] for r in RECORDS]),
        np.array([of_t[r] for r in RECORDS]),
        sum(in_s.values()),
        len(in_t),
    )
    spec = RandomizerSpec("two-stage", EPSILON, DELTA, query_budget_share=SHARE, cells_per_answer=1)

    # Figure 3
    selected = create_head_list(counts, PARAMETERS, ScriptedNoise(units["S"]))
    assert list(selected) == printed_figure_3(in_s, noise["S"])
    assert 0 < len(selected) < len(RECORDS)

    # Figure 4
    in_all = len(selected) + len({r.query for r in selected}) + 1
    optin = estimate_optin_probabilities(
        selected, counts, PARAMETERS, ScriptedNoise(units["T"][:in_all]), randomizer=spec
    )
    kept, p_optin, variance_optin = printed_figure_4(list(selected), in_t, noise["T"])
    cells = optin.head_list.cells
    assert list(cells.records) == kept
    where = [tuple(part or STAR for part in cells.cell(i)) for i in range(len(cells))]
    found = optin.estimates.cells
    assert found.probability.tolist() == pytest.approx([p_optin[c] for c in where])
    assert found.variance.tolist() == pytest.approx([variance_optin[c] for c in where], rel=1e-5)

    # Figure 6
    head_list = cells_of(kept)
    t, _ = printed_figure_6(head_list)
    device = randomizer_for(optin.head_list)
    assert isinstance(device, TwoStage)
    assert float(device.truth) == pytest.approx(t)
    for held in (*kept, None):
        for i, reported in enumerate(where):
            expected = channel(head_list, falls_into(head_list, held), reported)
            assert float(device.report_probability(held, (i,))) == pytest.approx(expected)

    # Figure 5, on reports that are as many as expected, so that every estimate is a probability.
    rng = random.Random(seed)
    devices = {cell: rng.randint(1_000, 9_000) for cell in where}
    reports = Counter(
        {
            reported: round(
                sum(n * channel(head_list, held, reported) for held, n in devices.items())
            )
            for reported in where
        }
    )
    p_query, variance_query, p_client = printed_figure_5(head_list, reports)
    client = device.estimate(np.array([reports[c] for c in where]), sum(reports.values()))
    assert client.query_marginals is not None
    queries = [q for q in head_list if q != STAR]
    assert client.query_marginals.probability.tolist() == pytest.approx(
        [p_query[q] for q in queries]
    )
    assert client.query_marginals.variance.tolist() == pytest.approx(
        [variance_query[q] for q in queries]
    )
    assert client.cells.probability.tolist() == pytest.approx([p_client[c] for c in where])
    variance_client = variance_of_records(head_list, reports)
    assert client.cells.variance.tolist() == pytest.approx([variance_client[c] for c in where])

    # Figure 7
    blended = blend_probabilities(found, client.cells)
    for i, cell in enumerate(where):
        w = variance_client[cell] / (variance_optin[cell] + variance_client[cell])
        expected = w * p_optin[cell] + (1 - w) * p_client[cell]
        assert blended.probability[i] == pytest.approx(expected, rel=1e-4)
