"""The frozen `Settings` object. Its constructor validates every setting."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from blendstream.blender.values.parameters import PERIOD_EPOCHS
from blendstream.streams.errors import SettingsError
from blendstream.streams.settings import sections
from blendstream.streams.settings.fields import SettingProblem, Url, read_value, shown
from blendstream.streams.settings.rules import broken_rules

__all__ = ["SettingSpec", "Settings", "declared_settings", "read_values"]


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings, read once at start-up. `blender` never receives it."""

    kafka: sections.KafkaSettings
    redis: sections.RedisSettings
    budget: sections.BudgetSettings
    keys: sections.KeysSettings
    topics: sections.TopicsSettings = field(default_factory=sections.TopicsSettings)
    epoch: sections.EpochSettings = field(default_factory=sections.EpochSettings)
    privacy: sections.PrivacySettings = field(default_factory=sections.PrivacySettings)
    click_graph: sections.ClickGraphSettings = field(default_factory=sections.ClickGraphSettings)
    gateway: sections.GatewaySettings = field(default_factory=sections.GatewaySettings)
    worker: sections.WorkerSettings = field(default_factory=sections.WorkerSettings)
    jobs: sections.JobsSettings = field(default_factory=sections.JobsSettings)
    metrics: sections.MetricsSettings = field(default_factory=sections.MetricsSettings)
    log: sections.LogSettings = field(default_factory=sections.LogSettings)

    def __post_init__(self) -> None:
        """Refuse settings that break a rule, naming every one of them."""
        problems = [
            problem
            for declared in declared_settings()
            for problem in declared.problems(declared.value_in(self))
        ]
        # Rules compare values, so each of them must make sense first.
        if problems := problems or list(broken_rules(self)):
            raise SettingsError(problems)

    @property
    def period_epochs(self) -> int:
        """T, or 0 if each epoch has a separate budget: as set, or the profile's default."""
        chosen = self.budget.period_epochs
        if chosen is not None:
            return chosen
        return 0 if self.privacy.optin_cohorts > 1 else PERIOD_EPOCHS[self.privacy.profile]

    @property
    def segment_s(self) -> int:
        """Maximum age of a log segment; Kafka removes raw data in whole segments only."""
        return self.topics.segment_s or min(self.epoch.window_s, 3600)

    @classmethod
    def from_values(cls, values: Mapping[str, object]) -> Self:
        """Build from dotted names, `{"epoch.window_s": 60, ...}`; values may be strings."""
        given, problems = read_values(values)
        problems += [
            f"{declared.name} is required and has no default: {declared.sentence} "
            f"Set {declared.variable}"
            for declared in declared_settings()
            if declared.required and declared.name not in values
        ]
        if problems:
            raise SettingsError(problems)
        types = section_types()
        return cls(**{section: types[section](**given[section]) for section in given})


def read_values(values: Mapping[str, object]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Parse and check each value. Return the values by section and field, and all problems."""
    known = {declared.name: declared for declared in declared_settings()}
    by_section: dict[str, dict[str, Any]] = {section: {} for section in section_types()}
    problems: list[str] = []
    for name, given in values.items():
        if name not in known:
            problems.append(f"{name} is not a setting; take it out")
            continue
        declared = known[name]
        try:
            value = read_value(given, declared.kind)
        except SettingProblem as problem:
            hidden = declared.secret or declared.kind is Url
            found = "text that is kept secret" if hidden else repr(given)
            problems.append(f"{name} {problem}, got {found}; set {declared.variable}")
        else:
            problems += declared.problems(value)
            by_section[declared.section][declared.field] = value
    return by_section, problems


class SettingSpec(NamedTuple):
    """Declaration of one setting."""

    section: str
    field: str
    kind: Any
    default: object
    sentence: str
    checks: tuple[Any, ...]

    @property
    def name(self) -> str:
        """Name as in the TOML file: `epoch.window_s`."""
        return f"{self.section}.{self.field}"

    @property
    def variable(self) -> str:
        """Name of its environment variable: `BLENDSTREAM_EPOCH_WINDOW_S`."""
        return f"BLENDSTREAM_{self.section}_{self.field}".upper()

    @property
    def required(self) -> bool:
        """True if it has no default."""
        return self.default is dataclasses.MISSING

    @property
    def secret(self) -> bool:
        """True if it is a secret, or several by id, which may then be in a separate file."""
        return "Secret" in str(self.kind)

    def problems(self, value: object) -> list[str]:
        """List the checks that a value breaks, and what to do."""
        complaints = [complaint for check in self.checks if (complaint := check(value))]
        return [
            f"{self.name} {each}, got {shown(value)}; set {self.variable}" for each in complaints
        ]

    def value_in(self, settings: Settings) -> Any:
        """Return this setting's value."""
        return getattr(getattr(settings, self.section), self.field)


def section_types() -> dict[str, Any]:
    """Return the sections' types by name, in the order of declaration."""
    return typing.get_type_hints(Settings)


def declared_settings() -> Iterator[SettingSpec]:
    """Yield all settings, in order."""
    for section, kind in section_types().items():
        hints = typing.get_type_hints(kind)
        for entry in dataclasses.fields(kind):
            yield SettingSpec(
                section,
                entry.name,
                hints[entry.name],
                entry.default,
                entry.metadata["sentence"],
                entry.metadata["checks"],
            )
