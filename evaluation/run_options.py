"""Command-line options of an evaluation: populations and parameters."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from blendstream.blender.profiles import PROFILES
from blendstream.blender.values.errors import ParameterError, require
from blendstream.evaluation.experiment import Experiment
from blendstream.evaluation.populations import (
    AOL,
    SETTING_A,
    SETTING_B,
    YANDEX,
    Setting,
    log_setting,
    table_setting,
)
from blendstream.evaluation.search_logs import LogColumns, LogTally
from blendstream.evaluation.simulated_epochs import parameters_of

__all__ = [
    "add_parameters",
    "add_populations",
    "changed_parameters",
    "check_measured",
    "populations_of",
    "unmeasured",
]

_GENERATED = {s.name: s for s in (AOL, YANDEX, SETTING_A, SETTING_B)}


def add_populations(parser: argparse.ArgumentParser) -> None:
    """Add the options for generated populations, tables and logs."""
    parser.add_argument(
        "--populations", metavar="NAMES",
        help="generated populations, by comma: aol, yandex, setting-a, setting-b, or none "
        "(default: all four; with --log none)",
    )  # fmt: skip
    parser.add_argument(
        "--table", type=Path, action="append", default=[], metavar="FILE",
        help="a population from a TSV or CSV with a heading (.gz is read too); may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--columns", action="append", default=[], metavar="QUERY,URL,COUNT",
        help="the table's columns, one --columns for each --table",
    )  # fmt: skip
    parser.add_argument(
        "--log", type=Path, action="append", default=[], metavar="FILE",
        help="a search log, one row per query: the AOL release's format or a TSV or CSV with a "
        "heading (.gz is read too); one record per user is drawn; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--log-columns", action="append", default=[], metavar="USER,QUERY,URL",
        help="the log's columns, one --log-columns for each --log (default: AOL's names, or "
        "user,query,url)",
    )  # fmt: skip


def add_parameters(parser: argparse.ArgumentParser) -> None:
    """Add options for the parameters that experiments hold constant."""
    for option, (kind, metavar, text, _) in _PARAMETERS.items():
        parser.add_argument(option, type=kind, metavar=metavar, help=text)


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(sorted({int(size) for size in text.split(",")}))


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))


#: Option: type, metavar, help, the fields of `Setting` that it sets.
_PARAMETERS: dict[str, tuple[Callable[[str], Any], str, str, tuple[str, ...]]] = {
    "--epsilon": (float, "E", "ε (default: 4)", ("epsilon",)),
    "--delta": (float, "D", "δ (default: the population's: 1e-5, large 1e-7)", ("delta",)),
    "--optin-share": (
        float, "P", "proportion of the users who opt in (default: 0.05, large 0.025)",
        ("optin_share",),
    ),
    "--list-size": (
        _sizes, "M", "lengths of the head list, by comma; the longest is the usual one (default: "
        "10,25,50, large 10,100,250,500)", ("list_sizes",),
    ),
    "--selection-share": (
        float, "F", "f_O: proportion of opt-in users who build the head list (default: the "
        "profile's, 0.95 and 0.9)", ("selection_share",),
    ),
    "--query-budget-share": (
        float, "F", "f_C: part of a device's budget for the query, `paper` only (default: 0.85)",
        ("query_budget_share",),
    ),
    "--records-per-optin-user": (
        int, "N", "m_O, above 1 with `--profiles sharp` only (default: 1)",
        ("records_per_optin_user",),
    ),
    "--records-per-client": (int, "N", "m_C (default: 1)", ("records_per_client",)),
    "--profiles": (_names, "NAMES", "paper, sharp or both (default: both)", ("profiles",)),
}  # fmt: skip


def _given_parameters(arguments: argparse.Namespace) -> Iterator[tuple[str, str, Any]]:
    """Yield option, field and value of each parameter on the command line."""
    for option, (_, _, _, (field,)) in _PARAMETERS.items():
        value = getattr(arguments, option[2:].replace("-", "_"))
        if value is not None:
            yield option, field, value


def changed_parameters(arguments: argparse.Namespace) -> str:
    """Return the given parameters in one line, which a resumed evaluation must repeat."""
    return "".join(
        f", {option[2:]} {','.join(map(str, value)) if isinstance(value, tuple) else f'{value:g}'}"
        for option, _, value in _given_parameters(arguments)
    )


def populations_of(
    arguments: argparse.Namespace, *, scale: float, few: bool
) -> tuple[list[Setting], dict[str, LogTally]]:
    """Read every population, with the given parameters; `few` leaves out two generated ones.

    Logs take longest, so they come last: errors in other options then appear first.
    """
    names = (arguments.populations or ("none" if arguments.log else ",".join(_GENERATED))).split(
        ","
    )
    unknown = [name for name in names if name not in (*_GENERATED, "none")]
    if unknown:
        raise ParameterError(
            f"--populations knows {', '.join(_GENERATED)}, none; "
            f"it does not know {', '.join(unknown)}"
        )
    settings = [_GENERATED[name] for name in names if name != "none"]
    if few:
        settings = [setting for setting in settings if setting in (AOL, SETTING_A)]
    if len(arguments.table) != len(arguments.columns):
        raise ParameterError(
            "each --table needs one --columns QUERY,URL,COUNT, got "
            f"{len(arguments.table)} and {len(arguments.columns)}"
        )
    columns: list[LogColumns | None] = [_log_columns(text) for text in arguments.log_columns]
    columns = columns or [None] * len(arguments.log)
    if len(columns) != len(arguments.log):
        raise ParameterError(
            "either no --log-columns or one for each --log, got "
            f"{len(columns)} and {len(arguments.log)}"
        )
    for path, text in zip(arguments.table, arguments.columns, strict=True):
        settings.append(table_setting(path, [c.strip() for c in text.split(",")]))
    if not settings and not arguments.log:
        raise ParameterError("nothing to evaluate: name a population, a --table or a --log")
    tallies = {}
    _apply_parameters(AOL, arguments)  # report errors in parameters before reading a log
    for path, names_of_columns in zip(arguments.log, columns, strict=True):
        setting, tally = log_setting(
            path,
            names_of_columns,
            records_per_user=arguments.records_per_optin_user or 1,
            seed=arguments.seed,
        )
        settings.append(setting)
        tallies[setting.name] = tally
    called = [setting.name for setting in settings]
    twice = sorted({name for name in called if called.count(name) > 1})
    if twice:
        raise ParameterError(
            f"two populations are called {', '.join(twice)}; a table or log is called like its "
            "file without the endings: name each once, or rename one"
        )
    made = [_apply_parameters(s, arguments).scaled(scale, arguments.seed) for s in settings]
    return made, tallies


def _log_columns(text: str) -> LogColumns:
    names = [name.strip() for name in text.split(",")]
    if len(names) not in (3, 4) or not all(names):
        raise ParameterError(
            f"--log-columns must name three or four columns, USER,QUERY,URL[,TIME], got {text!r}"
        )
    return LogColumns(*names)


def _apply_parameters(setting: Setting, arguments: argparse.Namespace) -> Setting:
    changes = {field: value for _, field, value in _given_parameters(arguments)}
    if sizes := changes.get("list_sizes"):
        require(min(sizes) >= 1, f"--list-size must be at least 1, got {min(sizes)}")
        changes["list_size"] = max(sizes)
    changed = replace(setting, **changes)
    unknown = [name for name in changed.profiles if name not in PROFILES]
    require(not unknown, f"--profiles knows {', '.join(PROFILES)}, got {', '.join(unknown)}")
    require(
        0 < changed.optin_share < 1,
        f"--optin-share must lie between 0 and 1, got {changed.optin_share}",
    )
    require(
        changed.records_per_optin_user == 1 or changed.profiles == ("sharp",),
        "--records-per-optin-user above 1 needs --profiles sharp: Theorem 1 of the paper, on which "
        f"`paper` rests, holds for 1 only; got {changed.records_per_optin_user}",
    )
    parameters_of(replace(changed, selection_share=None))
    if changed.selection_share is not None:
        share = changed.selection_share
        require(0 < share <= 1, f"--selection-share must lie in (0, 1], got {share}")
    return changed


def unmeasured(experiments: Iterable[Experiment], settings: Sequence[Setting]) -> Iterator[str]:
    """Yield a sentence per table and log: the experiments that cannot run on it, and why."""
    experiments = list(experiments)
    for setting in settings:
        if setting.is_table or setting.is_log:
            by_reason: dict[str, list[str]] = {}
            for experiment in experiments:
                if reason := experiment.reason_against(setting):
                    by_reason.setdefault(reason, []).append(experiment.name)
            for reason, names in by_reason.items():
                yield f"{setting.name}: no {', '.join(names)}: {reason}"


def check_measured(experiments: Iterable[Experiment], settings: Sequence[Setting]) -> None:
    """Raise `ParameterError` for an experiment that cannot run on any of these populations."""
    for experiment in experiments:
        if not any(experiment.suits(setting) for setting in settings):
            reasons = dict.fromkeys(experiment.reason_against(setting) for setting in settings)
            raise ParameterError(
                f"{experiment.name} cannot be measured on {', '.join(s.name for s in settings)}: "
                f"{'; '.join(reasons)}. Leave it out of --only, or name another population"
            )
