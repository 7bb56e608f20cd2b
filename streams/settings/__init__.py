"""One frozen `Settings` from the environment (BLENDSTREAM_...) and one optional TOML file.

    loaded = load_settings()          # raises one SettingsError with all problems
    loaded.settings.epoch.window_s
    loaded.origins["epoch.window_s"]  # "default", a file, or the variable's name

`sections` declares them; `rules` checks the conditions between them.
"""

from blendstream.streams.settings.fields import Secret, Url, shown
from blendstream.streams.settings.loading import (
    Loaded,
    load_kafka,
    load_redis,
    load_settings,
    raw_settings,
)
from blendstream.streams.settings.settings import Settings, SettingSpec, declared_settings

__all__ = [
    "Loaded",
    "Secret",
    "SettingSpec",
    "Settings",
    "Url",
    "declared_settings",
    "fields",
    "load_kafka",
    "load_redis",
    "load_settings",
    "private_files",
    "raw_settings",
    "sections",
    "settings",
    "shown",
    "value_checks",
]
