"""Whether the population of the `sharp` benches still shows what it was fixed by.

python -m bench sharp_population

Only the paper's algorithm is run; `bench/_sharp_settings.py` says what should come out.
"""

from __future__ import annotations

import numpy as np

from bench._sharp_settings import SETTINGS
from blendstream.blender.noise.exact_noise import laplace_scale
from blendstream.blender.paper.accuracy import l1_distance
from blendstream.evaluation.simulated_epochs import draw_optin, parameters_of, run_epoch

RUNS, SEED = 40, 11


def main() -> None:
    """Run and print."""
    for name, setting in SETTINGS.items():
        rng = np.random.default_rng(SEED)
        rows = []
        for _ in range(RUNS):
            optin = draw_optin(setting, rng)
            counts = optin.counts(0.95)
            noisy = counts.selection + _noise(len(counts.selection), rng)
            by_s = np.argsort(-noisy, kind="stable")[: setting.list_size]
            epoch = run_epoch("paper", setting, optin, parameters_of(setting), rng)
            listed, truth = len(epoch.truth.listed), epoch.truth.cells
            told = rng.multinomial(setting.users, truth) / setting.users
            estimate = epoch.estimates.blended.cells.probability
            rows.append(
                (
                    len(epoch.release.head_list.records),
                    setting.people.probability(optin.numbers[by_s]).sum(),
                    truth[:listed].sum(),
                    1 - truth[-1],
                    l1_distance(estimate[:listed], truth[:listed]),
                    l1_distance(told[:listed], truth[:listed]),
                    epoch.release.noisy.noise_terms[-1],
                )
            )
        mean = np.mean(rows, axis=0)
        error = np.std(rows, axis=0, ddof=1) / np.sqrt(RUNS)
        labels = ("threshold passed by", "mass ranked by S", "mass ranked by T", "its queries",
                  "L1 of paper", "L1 without privacy", "draws in ⟨⋆,⋆⟩")  # fmt: skip
        for label, value, off in zip(labels, mean, error, strict=True):
            print(f"{name:7} {label:20} {value:.5g} ± {off:.2g}")


def _noise(size: int, rng: np.random.Generator) -> np.ndarray:
    stop = 1 - np.exp(-1 / laplace_scale(sensitivity=2, epsilon=4.0))
    return rng.geometric(stop, size) - rng.geometric(stop, size)


if __name__ == "__main__":
    main()
