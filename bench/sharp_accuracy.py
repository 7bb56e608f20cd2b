"""How much closer `sharp` comes to the truth than `paper`, at the same ε, δ and people.

    python -m bench.sharp_accuracy [--runs 40] [--setting aol|yandex|both]

L1 over the M listed records, ⋆ left out, nothing rescaled, blends unprojected, truth = the
generator's p; f_O as suits each profile (0.95 and 0.9). NDCG over the same records, against the
M records that are truly most likely.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, replace

import numpy as np

from agents.evaluation.populations import Population, zipf_population
from agents.evaluation.simulated_noise import SimulatedNoise
from blender.cells import Cells
from blender.estimates import GroupEstimates
from blender.metrics import l1_distance, ndcg
from blender.parameters import PrivacyParameters
from blender.profiles import PROFILES, SELECTION_SHARES, build_head_list, estimate_epoch
from blender.record import Record
from blender.registry import randomizer_for
from blender.roles import OptinCounts
from blender.subset_selection import SubsetSelection


@dataclass(frozen=True)
class Setting:
    """One of the paper's two data sets, by size."""

    name: str
    users: int
    optin: float
    parameters: PrivacyParameters


SETTINGS = {
    "aol": Setting("aol", 657_000, 0.05, PrivacyParameters(delta=1e-5, head_list_cells=50)),
    "yandex": Setting(
        "yandex", 5_000_000, 0.025, PrivacyParameters(delta=1e-7, head_list_cells=500)
    ),
}


def draw_optin(
    population: Population, users: int, share: float, rng: np.random.Generator
) -> tuple[OptinCounts, dict[Record, int]]:
    """S and T of one epoch, and which record has which number in the population."""
    in_s = round(users * share)
    in_t = users - in_s
    s_numbers, s_counts = population.draw(in_s, rng)
    t_numbers, t_counts = population.draw(in_t, rng) if in_t else (s_numbers[:0], s_counts[:0])
    numbers = np.union1d(s_numbers, t_numbers)
    selection, estimation = (np.zeros(len(numbers), dtype=np.int64) for _ in range(2))
    selection[np.searchsorted(numbers, s_numbers)] = s_counts
    estimation[np.searchsorted(numbers, t_numbers)] = t_counts
    records = [population.record(int(i)) for i in numbers]
    back = dict(zip(records, numbers.tolist(), strict=True))
    return OptinCounts(records, selection, estimation, in_s, in_t), back


def true_cells(population: Population, cells: Cells, back: dict[Record, int]) -> np.ndarray:
    """The generator's p for every cell of a head list."""
    listed = np.array([back[r] for r in cells.records], dtype=np.int64)
    p = population.probability[listed]
    if cells.query_wildcards:
        numbers = np.zeros(len(cells.queries), dtype=np.int64)
        numbers[cells.query_of_cell[: len(listed)]] = population.query[listed]
        of_query = population.query_probability[numbers]
        told = np.bincount(cells.query_of_cell[: len(listed)], weights=p)
        p = np.append(p, np.maximum(of_query - told, 0.0))
    return np.append(p, max(0.0, 1 - p.sum()))


def one_run(
    setting: Setting, profile: str, population: Population, rng: np.random.Generator
) -> tuple[float, float, int, GroupEstimates]:
    """L1, NDCG, length of the selected list and the blend of one simulated epoch."""
    optin_users = round(setting.users * setting.optin)
    parameters = replace(setting.parameters, selection_share=SELECTION_SHARES[profile])
    counts, back = draw_optin(population, optin_users, parameters.selection_share, rng)
    release = build_head_list(profile, counts, parameters, SimulatedNoise(rng))
    cells = release.head_list.cells
    truth = true_cells(population, cells, back)
    clients = setting.users - optin_users
    held = rng.multinomial(clients, truth)
    randomizer = randomizer_for(release.head_list)
    if isinstance(randomizer, SubsetSelection):
        shown = randomizer.count_batch(held, rng)
    else:
        answers = randomizer.answer_batch(np.repeat(np.arange(len(cells)), held), rng)
        shown = np.bincount(answers.ravel(), minlength=len(cells))
    blended = estimate_epoch(release, shown, clients).blended
    m = len(cells.records)
    estimate = blended.cells.probability[:m]
    best = {
        population.record(i): float(population.probability[i])
        for i in range(parameters.head_list_cells)
    }
    quality = ndcg(dict(zip(cells.records, estimate.tolist(), strict=True)), best)
    return l1_distance(estimate, truth[:m]), quality, len(release.head_list.records), blended


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--setting", choices=[*SETTINGS, "both"], default="both")
    parser.add_argument("--seed", type=int, default=20170816)
    arguments = parser.parse_args()
    population = zipf_population()
    chosen = SETTINGS if arguments.setting == "both" else {arguments.setting: None}
    for name in chosen:
        setting = SETTINGS[name]
        results: dict[str, np.ndarray] = {}
        for profile in PROFILES:
            rng = np.random.default_rng(arguments.seed)
            rows, began = [], time.perf_counter()
            for run in range(arguments.runs):
                rows.append(one_run(setting, profile, population, rng)[:3])
                took = time.perf_counter() - began
                print(f"\r{name} {profile} {run + 1}/{arguments.runs} {took:.0f} s", end="",
                      file=sys.stderr)  # fmt: skip
            print(file=sys.stderr)
            results[profile] = np.array(rows)
            l1, quality, length = results[profile].mean(axis=0)
            error = results[profile].std(axis=0, ddof=1) / np.sqrt(arguments.runs)
            print(
                f"{name:7} {profile:6} L1 {l1:.5f} ± {error[0]:.5f}  "
                f"NDCG {quality:.4f} ± {error[1]:.4f}  list {length:.0f}"
            )
        ratio = results["sharp"][:, 0].mean() / results["paper"][:, 0].mean()
        print(f"{name:7} sharp/paper L1 {ratio:.3f} ({arguments.runs} runs)")


if __name__ == "__main__":
    main()
