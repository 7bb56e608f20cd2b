"""Compare the head lists' lengths of `sharp` and `paper` for the same people, ε and δ.

    python -m bench.sharp_head_lists [--runs 40] [--epochs 12] [--setting aol|yandex|both]

Steady state: in `sharp` each epoch's list is known in the next; the paper's algorithm starts over.
Many records: people hold about 30 records; the paper's theorem uses one of them. f_O is each
profile's default (0.95 and 0.9).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import numpy as np

from bench._page import Table
from bench._sharp_settings import SETTINGS
from blendstream.evaluation.own_experiments import listed_in_one_epoch
from blendstream.evaluation.populations import Setting

TITLE = "`sharp` beside `paper`: length of the list"
TEXT = """
The number of records on the head list of each profile, from the same people at the same ε and δ:
means of 40 runs on the Zipf population. In brackets the number relative to the paper's.

- *Known records*: the next epoch knows each epoch's list; the paper's algorithm has no memory.
- *30 records*: people hold about 30 records each, of which the paper's theorem allows one.
"""

RECORDS_HELD = 30


def one_run(setting: Setting, epochs: int, rng: np.random.Generator) -> tuple[float, ...]:
    """List lengths: the paper's, β = δ, known keys after some epochs, 30 records; true share."""
    known = np.zeros(0, dtype=np.int64)
    for _ in range(epochs):
        known = listed_in_one_epoch(setting, "sharp", 4.0, rng, known=known)
    paper, alone = (listed_in_one_epoch(setting, p, 4.0, rng) for p in ("paper", "sharp"))
    many = listed_in_one_epoch(setting, "sharp", 4.0, rng, records_each=RECORDS_HELD)
    on_top = np.isin(known, setting.people.top(len(known))).mean()
    return len(paper), len(alone), len(known), len(many), float(on_top)


def main(words: Sequence[str] = ()) -> list[Table]:
    """Measure in each setting; `words` are the command line's."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--setting", choices=[*SETTINGS, "both"], default="both")
    parser.add_argument("--seed", type=int, default=20170816)
    arguments = parser.parse_args(words)
    table = Table(
        ["setting", "`paper`", "β = δ", f"known records, epoch {arguments.epochs}",
         "of these truly on top", f"{RECORDS_HELD} records per user"]
    )  # fmt: skip
    for name, setting in SETTINGS.items():
        if arguments.setting not in (name, "both"):
            continue
        rng = np.random.default_rng(arguments.seed)
        rows = []
        for run in range(arguments.runs):
            rows.append(one_run(setting, arguments.epochs, rng))
            print(f"\r{name} {run + 1}/{arguments.runs}", end="", file=sys.stderr)
        print(file=sys.stderr)
        found = np.array(rows)
        paper, *ours, on_top = found.mean(axis=0)
        alone, known, many = (f"{length:.0f} ({length / paper:.2f})" for length in ours)
        table.add(f"`{name}`", f"{paper:.0f}", alone, known, f"{on_top:.0%}", many)
    return [table]


if __name__ == "__main__":
    main(sys.argv[1:])
