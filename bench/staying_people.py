"""Coverage of 95 % intervals of known records when people return from epoch to epoch.

    python -m bench.staying_people [--runs 40]

Four epochs, in each of which a part of the opt-in users of the last one returns with their records;
200 000 people, 5 % opt-in, M = 500, ε = 4, δ = 1e-5. The table is about the last epoch: its known
records, and the third of them with the lowest counts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import numpy as np

from bench._sharp_settings import PEOPLE
from bench._staying_people import last_of_some_epochs
from bench._two_groups import Groups

TITLE = "Known records when people stay"
TEXT = """
How often the 95 % interval of a known record contains the true share, in the last of four epochs.
Some of each epoch's opt-in users return in the next epoch with their records.
"""
SHOWN_IN = "evaluation.md#people-who-stay"

STAYING = (0.0, 0.5, 0.9, 1.0)


def main(words: Sequence[str] = ()) -> None:
    """Run and print; `words` are the command line's."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=31)
    arguments = parser.parse_args(words)
    groups = Groups(PEOPLE, 200_000, list_size=500)
    print("| people who stay | known records | blend | opt-in alone | smaller third: blend "
          "| opt-in alone |\n|---|---|---|---|---|---|")  # fmt: skip
    for staying in STAYING:
        rng = np.random.default_rng((arguments.seed, round(10 * staying)))
        rows = []
        for _ in range(arguments.runs):
            last = last_of_some_epochs(groups, staying, 4, rng)
            m = len(last.truth)
            counts = np.array(last.release.head_list.noisy_counts)[:m]
            found = [counts]
            for group in (last.estimates.blended, last.estimates.optin):
                cells = group.cells
                found.append((cells.low[:m] <= last.truth) & (last.truth <= cells.high[:m]))
            rows.append(np.stack(found)[:, last.known])
        counts, blend, optin = np.concatenate(rows, axis=1)
        small = counts <= np.quantile(counts, 1 / 3)
        print(
            f"| {staying:.0%} | {len(counts)} | {blend.mean():.3f} | {optin.mean():.3f} | "
            f"{blend[small].mean():.3f} | {optin[small].mean():.3f} |"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
