"""How much longer the head list gets from the same people, at the same ε and δ.

    python -m bench.sharp_head_lists [--runs 40] [--epochs 12]

Steady state: each epoch's list is known in the next; the paper starts anew every time. Many
records: people who hold about 30 records; the paper's theorem takes one of them.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from agents.evaluation.populations import Population, zipf_population
from agents.evaluation.simulated_noise import SimulatedNoise
from bench.sharp_accuracy import SETTINGS, Setting
from blender.gaussian_histogram import GaussianHistogram
from blender.head_list import ThresholdSelector
from blender.parameters import PrivacyParameters
from blender.roles import HeadListSelector
from blender.stable_histogram import StableHistogram

RECORDS_HELD = 30


def select(
    selector: HeadListSelector,
    counted: tuple[np.ndarray, np.ndarray],
    known: np.ndarray,
    parameters: PrivacyParameters,
    rng: np.random.Generator,
) -> np.ndarray:
    """The numbers of the records that pass; known ones that nobody holds are counted too."""
    present, counts = counted
    numbers = np.union1d(present, known)
    every = np.zeros(len(numbers), dtype=np.int64)
    every[np.searchsorted(numbers, present)] = counts
    flags = np.isin(numbers, known)
    kept = selector.select(every, flags, parameters, SimulatedNoise(rng)).kept
    return numbers[kept]


def steady_state(
    setting: Setting, population: Population, epochs: int, rng: np.random.Generator
) -> tuple[int, int, int, float]:
    """List lengths: the paper's, ours without known keys, ours after some epochs; true share."""
    users = round(setting.users * setting.optin * 0.95)
    nothing = np.zeros(0, dtype=np.int64)
    known, alone = nothing, 0
    for epoch in range(epochs):
        counted = population.draw(users, rng)
        known = select(StableHistogram(), counted, known, setting.parameters, rng)
        alone = len(known) if epoch == 0 else alone
    paper = select(ThresholdSelector(), counted, nothing, setting.parameters, rng)
    true_top = float((known < len(known)).mean())  # records are numbered by falling probability
    return len(paper), alone, len(known), true_top


def many_records(
    setting: Setting, population: Population, m: int, rng: np.random.Generator
) -> tuple[int, int]:
    """List lengths of the paper (one record each) and of m distinct records each."""
    users = round(setting.users * setting.optin * 0.95)
    nothing = np.zeros(0, dtype=np.int64)
    counted = population.draw(users, rng)
    paper = select(ThresholdSelector(), counted, nothing, setting.parameters, rng)
    counted = population.draw_many(users, m, rng)
    parameters = PrivacyParameters(
        delta=setting.parameters.delta, records_per_optin_user=m, head_list_cells=0
    )
    ours = select(GaussianHistogram(), counted, nothing, parameters, rng)
    return len(paper), len(ours)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=20170816)
    arguments = parser.parse_args()
    population = zipf_population()
    for setting in SETTINGS.values():
        rng = np.random.default_rng(arguments.seed)
        rows, pairs = [], []
        for run in range(arguments.runs):
            rows.append(steady_state(setting, population, arguments.epochs, rng))
            pairs.append(many_records(setting, population, RECORDS_HELD, rng))
            print(f"\r{setting.name} {run + 1}/{arguments.runs}", end="", file=sys.stderr)
        print(file=sys.stderr)
        paper, alone, known, true_top = np.mean(rows, axis=0)
        print(
            f"{setting.name:7} paper {paper:.0f}, β = δ {alone:.0f} ({alone / paper:.2f}×), known "
            f"keys after {arguments.epochs} epochs {known:.0f} ({known / paper:.2f}×), "
            f"of them truly on top {true_top:.0%}"
        )
        one, many = np.mean(pairs, axis=0)
        print(
            f"{setting.name:7} {RECORDS_HELD} records a user: paper {one:.0f}, "
            f"Gaussian {many:.0f} ({many / one:.2f}×)   ({arguments.runs} runs)"
        )


if __name__ == "__main__":
    main()
