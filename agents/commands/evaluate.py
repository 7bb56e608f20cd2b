"""Measure the error of the published estimates, and draw the paper's figures again.

Simulates whole epochs on populations whose truth is known, for the profiles `paper` and `sharp`,
with the functions that the service calls. The experiments are the paper's (Figures 9 and 11 to 16)
and these:
- list size by selector and over epochs;
- coverage of intervals;
- the agreement test;
- the error without privacy;
- several records per user;
- thirty epochs under one budget.

Writes measurements.csv, one CSV per experiment, figures as SVG and PNG in a light and a dark theme,
and report.md with the paper's claims beside our results.

With --log the people are the users of a search log: one record per user is drawn at random from
the user's clicks, users are divided at random into opt-in users and clients, and the truth is the
distribution of the drawn records. No query and no URL of a log is printed or written.

It may be stopped at any time: the same command resumes where it stopped.

  blendstream evaluate --smoke                        a minute, to see the output; no evidence
  blendstream evaluate                                everything; prints the expected duration
  blendstream evaluate --only epsilon,limit --runs 5  some experiments, faster and less exact
  blendstream evaluate --table clicks.tsv.gz --columns query,url,count
  blendstream evaluate --log user-ct-test-collection-01.txt.gz --epsilon 2
  blendstream evaluate --log clicks.csv --log-columns person,search,link --runs 5
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from blendstream.blender.values.errors import ParameterError, require
from blendstream.evaluation.baselines.baseline_experiments import BASELINE_EXPERIMENTS
from blendstream.evaluation.drawing import require_matplotlib
from blendstream.evaluation.experiment import Experiment
from blendstream.evaluation.figures import draw_all, without_lines
from blendstream.evaluation.measurements import Measurements
from blendstream.evaluation.over_time_experiments import OVER_TIME_EXPERIMENTS
from blendstream.evaluation.own_experiments import OWN_EXPERIMENTS
from blendstream.evaluation.paper_experiments import PAPER_EXPERIMENTS
from blendstream.evaluation.parameter_experiments import PARAMETER_EXPERIMENTS
from blendstream.evaluation.populations import Setting
from blendstream.evaluation.report import write_report, write_top_ten
from blendstream.evaluation.run_options import (
    add_parameters,
    add_populations,
    changed_parameters,
    check_measured,
    populations_of,
    unmeasured,
)
from blendstream.evaluation.summary import Summary
from blendstream.evaluation.work import compute, plan
from blendstream.streams.version import version_of

__all__ = ["EXPERIMENTS", "add_arguments", "run"]

#: In the order of docs/evaluation.md.
EXPERIMENTS = (
    *PAPER_EXPERIMENTS, *BASELINE_EXPERIMENTS, *PARAMETER_EXPERIMENTS, *OWN_EXPERIMENTS,
    *OVER_TIME_EXPERIMENTS,
)  # fmt: skip

#: A smoke run, to see that everything works: a fifth of the people, one run, each axis's ends.
SMOKE_SCALE, SMOKE_RUNS, SMOKE_POINTS = 0.2, 1, 2
#: With a twentieth of the people, the figures that the report checks would lack whole lines.
_LEAST_SCALE = 0.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options, each of which has a default."""
    parser.add_argument(
        "--out", type=Path, metavar="DIR",
        help="where to write everything (default: ./evaluation, with --smoke ./evaluation-smoke)",
    )  # fmt: skip
    parser.add_argument(
        "--only", metavar="NAMES", help="some experiments, by comma: " + ", ".join(_names())
    )
    add_populations(parser)
    add_parameters(parser)
    parser.add_argument("--runs", type=int, metavar="N", help="repetitions of every point")
    parser.add_argument(
        "--scale", type=float, metavar="X",
        help="multiply the number of people: 0.1 is fast, and noisier (default: 1)",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=1, help="same seed, same figures (default: 1)")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, metavar="N",
        help="how many at a time (default: one per core)",
    )  # fmt: skip
    parser.add_argument(
        "--publish", type=Path, metavar="DIR",
        help="copy the CSVs there, and make report.md and the SVGs of all CSVs that are there",
    )  # fmt: skip
    parser.add_argument(
        "--draw-only", action="store_true", help="compute nothing, draw what is there already"
    )
    parser.add_argument("--smoke", action="store_true", help="everything small, in under a minute")


def run(arguments: argparse.Namespace) -> int:
    """Compute the missing units, then write the tables and figures."""
    require_matplotlib()
    experiments = _chosen(arguments.only)
    scale = _scale(arguments)
    chosen, logs = populations_of(arguments, scale=scale, few=arguments.smoke)
    settings = {setting.name: setting for setting in chosen}
    runs = arguments.runs or (SMOKE_RUNS if arguments.smoke else None)
    require(
        arguments.runs is None or arguments.runs >= 1,
        f"runs must be at least 1, got {arguments.runs}",
    )
    require(arguments.processes >= 1, f"processes must be at least 1, got {arguments.processes}")
    if arguments.only is not None:
        check_measured(experiments, chosen)
    if arguments.publish is not None:
        _can_publish(arguments.publish, settings)
    for name, tally in logs.items():
        print(f"{name}: {tally.describe()}")
    print("".join(f"{line}\n" for line in unmeasured(experiments, chosen)), end="")
    units = plan(
        experiments, settings.values(), runs, points=SMOKE_POINTS if arguments.smoke else None
    )
    out: Path = arguments.out or Path("evaluation-smoke" if arguments.smoke else "evaluation")
    measurements = Measurements(
        out / "measurements.csv",
        f"seed {arguments.seed}, scale {scale:g}, version {version_of('blendstream')}"
        + changed_parameters(arguments),
        {setting.name: setting.source for setting in settings.values()},
    )
    if not arguments.draw_only:
        compute(
            units,
            {experiment.name: experiment for experiment in experiments},
            settings,
            measurements,
            seed=arguments.seed,
            processes=arguments.processes,
        )
    # In the plan's order, not the order of finishing: files and panels must not depend on that.
    place = {unit: i for i, unit in enumerate(units)}
    ordered = [m for m in measurements if m.unit in place]
    ordered.sort(key=lambda m: place[m.unit])
    summary = Summary(ordered)
    data = [*summary.write(out), *write_top_ten(ordered, summary, settings, out)]
    evidence = not arguments.smoke
    report = write_report(summary, settings, out, evidence=evidence, logs=logs)
    written = [*data, report, *draw_all(summary, settings, out)]
    print(f"{len(written)} files in {out}: {_kinds(written)}")
    for name in without_lines(summary, settings):
        print(f"{name} is not drawn: in fewer than half of the runs a list got that long")
    if arguments.publish is not None:
        _publish(data, settings, arguments.publish, evidence=evidence)
    if not evidence:
        print("A smoke run is no evidence: its numbers say nothing about any claim.")
    return 0


def _kinds(files: Iterable[Path]) -> str:
    """List the written files: the report by its name, the others by their kind."""
    kinds = dict.fromkeys(path.suffix[1:].upper() for path in files)
    return ", ".join(["report.md", *(kind for kind in kinds if kind != "MD")])


def _can_publish(folder: Path, settings: Mapping[str, Setting]) -> None:
    """Raise unless `settings` has every population published in `folder`: the report needs all."""
    lacking = sorted(set(Summary.read(folder).populations()) - settings.keys())
    if lacking:
        raise ParameterError(
            f"{folder} also has {', '.join(lacking)}: name every population and --table that is "
            "published there, so that the report can be made of all of them"
        )


def _publish(
    data: Sequence[Path], settings: Mapping[str, Setting], folder: Path, *, evidence: bool
) -> None:
    """Replace the CSVs of these experiments, and make report and figures of all CSVs there."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in data:
        shutil.copyfile(path, folder / path.name)
    summary = Summary.read(folder, settings)
    made = [write_report(summary, settings, folder, evidence=evidence)]
    made += draw_all(summary, settings, folder, kinds=["svg"])
    print(f"{len(data)} of them copied to {folder}, {len(made)} made anew there of all its CSVs")


def _names() -> list[str]:
    return [experiment.name for experiment in EXPERIMENTS]


def _chosen(only: str | None) -> list[Experiment]:
    if only is None:
        return list(EXPERIMENTS)
    wanted = [name.strip() for name in only.split(",")]
    unknown = [name for name in wanted if name not in _names()]
    if unknown:
        raise ParameterError(
            f"--only knows {', '.join(_names())}; it does not know {', '.join(unknown)}"
        )
    return [experiment for experiment in EXPERIMENTS if experiment.name in wanted]


def _scale(arguments: argparse.Namespace) -> float:
    scale: float | None = arguments.scale
    if scale is None:
        scale = SMOKE_SCALE if arguments.smoke else 1.0
    require(
        _LEAST_SCALE <= scale <= 100,
        f"scale must lie in [{_LEAST_SCALE}, 100], got {scale}; with fewer people lists stay empty "
        "and figures have nothing to show",
    )
    return scale
