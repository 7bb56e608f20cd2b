"""Loading of settings from the environment and one TOML file, with the origin of each value.

Decision: docs/decisions/0100-settings-of-our-own.md
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from blendstream.streams.errors import SettingsError
from blendstream.streams.settings.fields import Secret, Url
from blendstream.streams.settings.private_files import exposed
from blendstream.streams.settings.sections import KafkaSettings, RedisSettings
from blendstream.streams.settings.settings import (
    Settings,
    SettingSpec,
    declared_settings,
    read_values,
)

__all__ = ["Loaded", "RawSettings", "load_kafka", "load_redis", "load_settings", "raw_settings"]

PREFIX = "BLENDSTREAM_"
FILE_VARIABLE = "BLENDSTREAM_SETTINGS"
#: Names that hosting platforms set; the prefixed ones override them.
ACCEPTED = {"KAFKA_URL": "kafka.url", "REDIS_URL": "redis.url"}
DEFAULT = "default"


class Loaded(NamedTuple):
    """The settings, and the origin of each value by name."""

    settings: Settings
    origins: Mapping[str, str]


class RawSettings(NamedTuple):
    """Values as read, unchecked. They may contain secrets in clear text: never print them."""

    values: dict[str, object]
    origins: dict[str, str]
    problems: list[str]


def raw_settings(
    file: Path | None = None, environment: Mapping[str, str] | None = None
) -> RawSettings:
    """Read the file (or the one BLENDSTREAM_SETTINGS names), then the environment, which overrides.

    A file that cannot be read raises a separate `SettingsError`: otherwise every setting in it
    would seem missing, which would hide the one problem to correct.
    """
    environment = os.environ if environment is None else environment
    raw = RawSettings({}, {}, [])
    if file is None and environment.get(FILE_VARIABLE):
        file = Path(environment[FILE_VARIABLE])
    for found in _sources(file, environment, raw.problems):
        raw.values[found.name] = found.value
        raw.origins[found.name] = found.origin
    return raw


def load_settings(file: Path | None = None, environment: Mapping[str, str] | None = None) -> Loaded:
    """Load the settings, complete and checked; `SettingsError` names every problem."""
    values, origins, problems = raw_settings(file, environment)
    try:
        settings = Settings.from_values(values)
    except SettingsError as error:
        named = file or (os.environ if environment is None else environment).get(FILE_VARIABLE)
        no_file = [] if named or not _is_missing_a_setting(values) else [_NO_FILE]
        raise SettingsError([*no_file, *problems, *error.problems]) from None
    if problems:
        raise SettingsError(problems)
    names = [declared.name for declared in declared_settings()]
    return Loaded(settings, {name: origins.get(name, DEFAULT) for name in names})


_NO_FILE = (
    "no settings file was read: name yours with --settings FILE or in the variable "
    f"{FILE_VARIABLE}, or give every setting below in the environment"
)


def _is_missing_a_setting(values: Mapping[str, object]) -> bool:
    return any(one.required and one.name not in values for one in declared_settings())


def load_kafka(environment: Mapping[str, str]) -> KafkaSettings:
    """Load Kafka's settings from the environment, without those of the whole service."""
    return KafkaSettings(**_section("kafka", environment))


def load_redis(environment: Mapping[str, str]) -> RedisSettings:
    """Load Redis's settings from the environment, without those of the whole service."""
    return RedisSettings(**_section("redis", environment))


def _section(section: str, environment: Mapping[str, str]) -> dict[str, Any]:
    mine = {
        variable: environment[variable]
        for variable in environment
        if variable.startswith(f"{PREFIX}{section.upper()}_")
        or ACCEPTED.get(variable, "").startswith(f"{section}.")
    }
    problems: list[str] = []
    values = {found.name: found.value for found in _sources(None, mine, problems)}
    sections, wrong = read_values(values)
    if problems or wrong:
        raise SettingsError([*problems, *wrong])
    return sections[section]


class _RawValue(NamedTuple):
    name: str
    value: object
    origin: str


def _sources(
    file: Path | None, environment: Mapping[str, str], problems: list[str]
) -> Iterator[_RawValue]:
    """Yield all values, those of the lowest precedence first."""
    known = {declared.name: declared for declared in declared_settings()}
    if file is not None:
        yield from _from_file(file, known, problems)
    for variable, name in ACCEPTED.items():
        if environment.get(variable):
            yield _RawValue(name, environment[variable], variable)
    by_variable = {declared.variable: declared for declared in known.values()}
    for variable in sorted(environment):
        if not variable.startswith(PREFIX) or variable == FILE_VARIABLE:
            continue
        if variable in by_variable:
            yield _RawValue(by_variable[variable].name, environment[variable], variable)
        elif (declared := by_variable.get(variable.removesuffix("_FILE"))) and declared.secret:
            yield from _secret_file(declared, Path(environment[variable]), variable, problems)
        else:
            problems.append(_unknown(variable, [*by_variable, FILE_VARIABLE], "the environment"))


def _document(file: Path) -> dict[str, Any]:
    """Read a TOML file; `SettingsError` if it is unreadable or not TOML."""
    try:
        text = file.read_text(encoding="utf-8")
        return tomllib.loads(text)
    except OSError as error:
        raise SettingsError(
            [
                f"the settings file must be readable, got {error.strerror} for {file}; "
                f"correct the path in --settings or {FILE_VARIABLE}"
            ]
        ) from None
    except UnicodeDecodeError:
        raise SettingsError(
            [f"the settings file must be TOML, got other bytes than UTF-8 text in {file}"]
        ) from None
    except tomllib.TOMLDecodeError as error:
        if text.lstrip().startswith("{"):
            found, advice = "JSON", "`blendstream settings --sample basic` prints one to begin with"
        else:
            found, advice = str(error), "correct that line"
        raise SettingsError(
            [f"the settings file must be TOML, got {found} in {file}; {advice}"]
        ) from None


def _from_file(
    file: Path, known: Mapping[str, SettingSpec], problems: list[str]
) -> Iterator[_RawValue]:
    document = _document(file)
    secrets: list[str] = []
    for section, table in document.items():
        if not isinstance(table, dict):
            problems.append(_unknown(section, known, f"{file}"))
            continue
        for field, given in table.items():
            name = f"{section}.{field}"
            if name in known:
                password = known[name].kind is Url and Url(str(given)).password
                if password or (known[name].secret and given):
                    secrets.append(name)
                yield _RawValue(name, given, str(file))
            elif (declared := known.get(name.removesuffix("_file"))) and declared.secret:
                path = file.parent / str(given)
                yield from _secret_file(declared, path, f"{file}: {name}", problems)
            else:
                problems.append(_unknown(name, known, f"{file}"))
    if secrets and (problem := exposed(file, f"the settings file, with {', '.join(secrets)},")):
        problems.append(problem)


def _secret_file(
    declared: SettingSpec, path: Path, origin: str, problems: list[str]
) -> Iterator[_RawValue]:
    """Read a secret from a separate file, as container platforms provide them."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        problems.append(
            f"{declared.name} must be in a readable file, got {type(error).__name__} for {path}; "
            f"correct the path in {origin}"
        )
        return
    if problem := exposed(path, f"the file of {declared.name}"):
        problems.append(problem)
    # Several secrets: one id=secret per line.
    given = text if declared.kind is Secret else ",".join(text.split())
    yield _RawValue(declared.name, given, f"{path} (named by {origin})")


def _unknown(name: str, known: Mapping[str, object] | list[str], where: str) -> str:
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}?" if near else "`blendstream settings` lists them all"
    return f"{name} in {where} is not a setting; {hint}"
