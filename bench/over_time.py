"""Accuracy over thirty epochs: error, coverage and list length, in both settings.

    python -m bench.over_time [--runs 20] [--setting aol|yandex|both] [--only WORD] [--quick]
    python -m bench.over_time --table FILE --columns QUERY,URL,COUNT

Every row is `--runs` simulated histories of 30 epochs; `evaluation/over_time.py` documents how
they are drawn. ± is one standard error over runs. L1 is over the listed records, of the epoch alone
(`own`, by `sharp`'s blend, in one epoch of three) and of the filter, and over the true top M
(`top`), where records that are not shown count as 0; with `own` and `asked` records that were not
listed for clients count as 0 too. Coverage is of 95 % intervals of listed records, of all shown
records and of the listed queries.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from bench._sharp_settings import SETTINGS, settings_on_table
from blendstream.evaluation.over_time import EpochScores, Plan, simulate
from blendstream.evaluation.populations import Setting

TITLE = "Thirty epochs together"
TEXT = """
Error, coverage and list length of the filter over thirty epochs, case by case. The runs of the page
*Over many epochs* are those of `blendstream evaluate --only over_time`.
"""
SHOWN_IN = "evaluation.md#over-many-epochs"

#: What is looked at: a word to pick it by, the plan, and the epochs over which it is averaged.
CASES: Sequence[tuple[str, Plan, slice]] = (
    ("one-budget", Plan(one_budget=True), slice(18, 30)),
    ("one-budget h=.9", Plan(one_budget=True, staying=0.9), slice(18, 30)),
    ("rotated", Plan(rotated=True), slice(18, 30)),
    ("each-epoch", Plan(), slice(15, 30)),
    ("list", Plan(selection_share=1.0), slice(29, 30)),
    *(
        (f"grid h={h} drift={d}", Plan(staying=h, drift=d), slice(15, 30))
        for h in (0.0, 0.5, 0.9, 1.0)
        for d in (0.0, 0.02, 0.05, 0.1)
    ),
    *(
        (f"shock h={h}", Plan(staying=h, shock_epoch=20), slice(19, 20))
        for h in (0.0, 0.5, 0.9, 1.0)
    ),
    *(
        (f"habits={a} drift={d}", Plan(habit=a, drift=d), slice(15, 30))
        for a in (0.7, 0.9)
        for d in (0.0, 0.02)
    ),
    ("clients-stay", Plan(staying=0.9, clients_staying=0.9), slice(15, 30)),
    ("groups-differ", Plan(groups_differ=0.2), slice(15, 30)),
    ("groups-differ h=.9", Plan(groups_differ=0.2, staying=0.9), slice(15, 30)),
    ("one-budget drift=.05", Plan(one_budget=True, drift=0.05), slice(18, 30)),
    ("one-budget panel", Plan(one_budget=True, staying=1.0), slice(18, 30)),
    ("one-budget groups-differ", Plan(one_budget=True, groups_differ=0.2), slice(18, 30)),
)

NAMES = [field.name for field in fields(EpochScores)]


def measure(setting: Setting, case: str, plan: Plan, epochs: slice, runs: int) -> None:
    """Simulate and print one row."""
    began = time.perf_counter()
    rows = []
    for run in range(runs):
        rng = np.random.default_rng([20170816, run])
        scores = list(simulate(setting, replace(plan, own_every=3), rng))
        rows.append([[getattr(s, n) for n in NAMES] for s in scores])
        print(f"\r{case} {run + 1}/{runs}", end="", file=sys.stderr)
    print("\r", end="", file=sys.stderr)
    by_run = np.nanmean(np.array(rows, dtype=np.float64)[:, epochs], axis=1)
    mean = dict(zip(NAMES, by_run.mean(axis=0), strict=True))
    error = dict(zip(NAMES, by_run.std(axis=0, ddof=1) / np.sqrt(runs), strict=True))
    ratio = mean["filter_l1"] / mean["own_l1"]
    print(
        f"{setting.name:7} {case:26} L1 own {mean['own_l1']:.4f} (top {mean['own_top_l1']:.4f})"
        f" filter {mean['filter_l1']:.4f} ± {error['filter_l1']:.4f} ratio {ratio:.3f}"
        f"  top {mean['top_l1']:.4f} ± {error['top_l1']:.4f} asked {mean['top_asked_l1']:.4f}"
        f"  covers {mean['covered']:.3f} ± {error['covered']:.3f} shown {mean['covered_shown']:.3f}"
        f" queries {mean['covered_queries']:.3f}"
        f"  listed {mean['listed']:.0f} shown {mean['shown']:.0f} ± {error['shown']:.0f}"
        f" on top {mean['on_top']:.3f}  ĥ {mean['staying']:.2f} κ̂ {mean['drift']:.3f}"
        f"  ({runs} runs, {time.perf_counter() - began:.0f} s)",
        flush=True,
    )


def main(words: Sequence[str] = ()) -> None:
    """Run and print; `words` are the command line's."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--setting", choices=[*SETTINGS, "both"], default="both")
    parser.add_argument("--only", default="", help="cases that start with this word")
    parser.add_argument("--quick", action="store_true", help="the first five cases only")
    parser.add_argument("--table", type=Path, help="people of a table, TSV or CSV, .gz or not")
    parser.add_argument("--columns", default="query,url,count", help="the table's columns")
    arguments = parser.parse_args(words)
    settings = SETTINGS
    if arguments.table is not None:
        settings = settings_on_table(arguments.table, arguments.columns)
    for name, setting in settings.items():
        if arguments.setting not in (name, "both"):
            continue
        for case, plan, epochs in CASES[:5] if arguments.quick else CASES:
            if case.startswith(arguments.only):
                measure(setting, case, plan, epochs, arguments.runs)


if __name__ == "__main__":
    main(sys.argv[1:])
