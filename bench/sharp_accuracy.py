"""Compare the accuracy of `sharp` and `paper` at the same ε, δ and people.

    python -m bench.sharp_accuracy [--runs 40] [--setting aol|yandex|both]
    python -m bench.sharp_accuracy --table FILE --columns QUERY,URL,COUNT

L1 is over the M listed records, without ⋆, not rescaled, blends unprojected; the truth is the
generator's p (of a table: its proportions); f_O is each profile's default (0.95 and 0.9). NDCG is
over these records, against the M records that are truly most likely. In each run both profiles have
the same opt-in users; ± is one standard error, that of the ratio by the delta method over paired
runs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench._page import Table
from bench._sharp_settings import SETTINGS, settings_on_table
from blendstream.blender.paper.accuracy import l1_distance, ndcg
from blendstream.blender.profiles import PROFILES
from blendstream.evaluation.populations import Setting
from blendstream.evaluation.simulated_epochs import (
    Optin,
    SimulatedEpoch,
    draw_optin,
    parameters_of,
    run_epoch,
)

TITLE = "`sharp` beside `paper`: error"
TEXT = """
The L1 error over the M listed records, without ⋆, of blends that are neither rescaled nor
projected. The truth is the distribution from which people are drawn. Each number is from 40 runs,
with both profiles on the same opt-in users; ± is one standard error.

Both settings have ε = 4, replace-one, and each profile's own f_O (0.95 and 0.9):

| setting | people | opt-in | M | δ |
|---|---:|---:|---:|---:|
| `aol` | 657 000 | 5 % | 50 | 1e-5 |
| `yandex` | 5 000 000 | 2.5 % | 500 | 1e-7 |

The parameters of the Zipf population were fitted to the paper's results, never to those of `sharp`
([0080](decisions/0080-populations-of-the-evaluation.md)). No parameter was chosen on the public
tables, which `--table FILE --columns QUERY,URL,COUNT` reads. Clients' reports already use all of ε;
with the best randomizer that we know of, L1 would be 0.0073 (`aol`) and 0.0194 (`yandex`).
"""


def one_run(
    profile: str, setting: Setting, optin: Optin, rng: np.random.Generator
) -> tuple[float, float, int]:
    """L1, NDCG and length of the selected list of one simulated epoch."""
    epoch = run_epoch(profile, setting, optin, parameters_of(setting), rng)
    listed = len(epoch.truth.listed)
    estimate = epoch.estimates.blended.cells.probability[:listed]
    error = l1_distance(estimate, epoch.truth.cells[:listed])
    return error, _ndcg(epoch, setting), len(epoch.release.head_list.records)


def _ndcg(epoch: SimulatedEpoch, setting: Setting) -> float:
    top = setting.people.top(setting.list_size)
    records, p = setting.people.records(top), setting.people.probability(top)
    cells = epoch.release.head_list.cells
    estimate = epoch.estimates.blended.cells.probability[: len(cells.records)]
    return ndcg(
        dict(zip(cells.records, estimate.tolist(), strict=True)),
        dict(zip(records, p.tolist(), strict=True)),
    )


def compare(table: Table, name: str, setting: Setting, runs: int, seed: int) -> None:
    """Run both profiles and add a row."""
    rng = np.random.default_rng(seed)
    rows: dict[str, list[tuple[float, float, int]]] = {profile: [] for profile in PROFILES}
    began = time.perf_counter()
    for run in range(runs):
        optin = draw_optin(setting, rng)
        for profile in PROFILES:
            rows[profile].append(one_run(profile, setting, optin, rng))
        took = time.perf_counter() - began
        print(f"\r{name} {run + 1}/{runs} {took:.0f} s", end="", file=sys.stderr)
    print(file=sys.stderr)
    paper, sharp = (np.array(rows[profile])[:, 0] for profile in ("paper", "sharp"))
    ratio = sharp.mean() / paper.mean()
    off = np.std(sharp - ratio * paper, ddof=1) / np.sqrt(runs) / paper.mean()
    quality = [f"{np.mean(rows[profile], axis=0)[1]:.3f}" for profile in ("paper", "sharp")]
    table.add(
        f"{setting.label}, `{name}`", f"{paper.mean():.4f}", f"{sharp.mean():.4f}",
        f"{ratio:.3f} ± {off:.3f}", *quality,
    )  # fmt: skip


def main(words: Sequence[str] = ()) -> list[Table]:
    """Compare in each setting; `words` are the command line's."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--setting", choices=[*SETTINGS, "both"], default="both")
    parser.add_argument("--seed", type=int, default=20170816)
    parser.add_argument("--table", type=Path, help="people of a table, TSV or CSV, .gz or not")
    parser.add_argument("--columns", default="query,url,count", help="the table's columns")
    arguments = parser.parse_args(words)
    table = Table(["population, setting", "`paper`", "`sharp`", "sharp / paper",
                   "NDCG of `paper`", "of `sharp`"])  # fmt: skip
    settings = SETTINGS
    if arguments.table is not None:
        settings = settings_on_table(arguments.table, arguments.columns)
    for name, setting in settings.items():
        if arguments.setting in (name, "both"):
            compare(table, name, setting, arguments.runs, arguments.seed)
    return [table]


if __name__ == "__main__":
    main(sys.argv[1:])
