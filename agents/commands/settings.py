"""Show every setting: its value (secrets as ***), its origin, and its description.

    blendstream settings                  all settings
    blendstream settings epoch            one section
    blendstream settings --changed        only those set in the file or the environment
    blendstream settings --sample trial > settings.toml
                                          print a sample file: trial, basic (the required
                                          settings) or advanced (all)

If settings are missing or wrong, prints the values that are set, then the corrections to make, and
exits with 1.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from blendstream.agents.output import add_json, print_json
from blendstream.blender.values.errors import ParameterError
from blendstream.streams.errors import SettingsError
from blendstream.streams.settings import declared_settings, load_settings, raw_settings, shown
from blendstream.streams.settings.fields import MASK, SettingProblem, Url, as_json, read_value
from blendstream.streams.settings.settings import SettingSpec

__all__ = ["add_arguments", "run"]

_MUST_BE_GIVEN = "(must be given)"


class _Shown(NamedTuple):
    declared: SettingSpec
    #: The value in use, or the raw value if it is invalid; `MISSING` if it is required and absent.
    value: object
    origin: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the section, --changed, --json and --sample."""
    parser.add_argument("section", nargs="?", metavar="SECTION", help="only this one, as `epoch`")
    parser.add_argument(
        "--changed", action="store_true", help="only settings in the file or the environment"
    )
    add_json(parser)
    parser.add_argument(
        "--sample", choices=("trial", "basic", "advanced"), help="print a sample file"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the settings; if some are wrong, then raise an error that lists the problems."""
    if arguments.sample is not None:
        print(_sample(arguments.sample).read_text(encoding="utf-8"), end="")
        return 0
    sections = list(dict.fromkeys(declared.section for declared in declared_settings()))
    if arguments.section not in (None, *sections):
        raise ParameterError(
            f"a section must be one of {', '.join(sections)}, got {arguments.section!r}"
        )
    given = raw_settings(arguments.settings)
    problem: SettingsError | None = None
    try:
        load_settings(arguments.settings)
    except SettingsError as error:
        problem = error
    chosen = [
        _Shown(declared, _value(declared, given.values), _origin(declared, given.origins))
        for declared in declared_settings()
        if arguments.section in (None, declared.section)
        and (declared.name in given.values or not arguments.changed)
    ]
    if arguments.json:
        print_json(_document(chosen, problem.problems if problem else ()))
        return 1 if problem else 0
    _print(chosen)
    if problem:
        raise problem
    return 0


def _sample(name: str) -> Path:
    installed = Path(__file__).with_name("samples") / f"{name}.toml"  # put there with the wheel
    checkout = Path(__file__).resolve().parents[2] / "deploy/settings" / f"{name}.toml"
    return installed if installed.exists() else checkout


def _value(declared: SettingSpec, given: Mapping[str, object]) -> object:
    """Return the value in use, or the raw value if it is invalid; secrets are masked."""
    if declared.name not in given:
        return declared.default
    try:
        return read_value(given[declared.name], declared.kind)
    except SettingProblem:
        hidden = declared.secret or declared.kind is Url
        return MASK if hidden else given[declared.name]


def _origin(declared: SettingSpec, origins: Mapping[str, str]) -> str:
    return origins.get(declared.name, "not given" if declared.required else "default")


def _print(chosen: Sequence[_Shown]) -> None:
    section = ""
    for declared, value, origin in chosen:
        if declared.section != section:
            section = declared.section
            print(f"\n[{section}]")
        text = _MUST_BE_GIVEN if value is dataclasses.MISSING else shown(value)
        print(f"{declared.field} = {text}   ({origin})")
        print(f"    {declared.sentence} {declared.variable}")
    if not chosen:
        print("nothing is set here: every value is the default")
    print(flush=True)


def _document(chosen: Sequence[_Shown], problems: Sequence[str]) -> dict[str, Any]:
    return {
        "settings": [
            {
                "name": declared.name,
                "value": None if value is dataclasses.MISSING else as_json(value),
                "origin": origin,
                "variable": declared.variable,
                "sentence": declared.sentence,
            }
            for declared, value, origin in chosen
        ],
        "problems": list(problems),
    }
