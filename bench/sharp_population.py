"""Check that the population of the `sharp` benchmarks still has the figures that define it.

python -m bench sharp_population

Runs only the paper's algorithm; `bench/_sharp_settings.py` has the expected figures.
"""

from __future__ import annotations

import numpy as np

from bench._page import Table
from bench._sharp_settings import SETTINGS
from blendstream.blender.noise.exact_noise import laplace_scale
from blendstream.blender.paper.accuracy import l1_distance
from blendstream.evaluation.simulated_epochs import draw_optin, parameters_of, run_epoch

TITLE = "The population of these comparisons"
TEXT = """
The paper's algorithm alone on the Zipf population, means of 40 runs with one standard error.
*Stated* are the figures by which the population was fixed, before `sharp` was written
([0080](decisions/0080-populations-of-the-evaluation.md)).
"""

RUNS, SEED = 40, 11
#: By setting and label.
STATED = {
    ("aol", "threshold passed by"): "361", ("yandex", "threshold passed by"): "1113",
    ("aol", "mass ranked by S"): "0.159", ("aol", "mass ranked by T"): "0.144",
    ("aol", "its queries"): "0.169", ("aol", "L1 of paper"): "0.0250",
    ("yandex", "L1 of paper"): "0.101", ("aol", "L1 without privacy"): "0.0026",
}  # fmt: skip


def main() -> list[Table]:
    """Each setting's figures beside the stated ones."""
    table = Table(["setting, figure", "measured", "stated"])
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
            told = STATED.get((name, label), "")
            table.add(f"`{name}`, {label}", f"{value:.4g} ± {off:.2g}", told)
    return [table]


def _noise(size: int, rng: np.random.Generator) -> np.ndarray:
    stop = 1 - np.exp(-1 / laplace_scale(sensitivity=2, epsilon=4.0))
    return rng.geometric(stop, size) - rng.geometric(stop, size)


if __name__ == "__main__":
    main()
