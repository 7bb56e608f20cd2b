"""Show every setting: its value (secrets as ***), where it came from, and what it does.

If the settings are not complete or not right, shows what must be corrected, and exits with 1.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from streams.errors import SettingsError
from streams.settings import Settings, declared_settings, load_settings, shown

__all__ = ["run"]


def run(arguments: argparse.Namespace) -> int:
    """Print the settings; on a problem print the defaults, then let the problem be shown."""
    try:
        loaded = load_settings(arguments.settings)
    except SettingsError:
        _print(None, {})
        raise
    _print(loaded.settings, loaded.origins)
    return 0


def _print(settings: Settings | None, origins: Mapping[str, str]) -> None:
    section = ""
    for declared in declared_settings():
        if declared.section != section:
            section = declared.section
            print(f"\n[{section}]")
        if settings is not None:
            value = shown(declared.value_in(settings))
        else:
            value = "(must be given)" if declared.required else shown(declared.default)
        print(f"{declared.field} = {value}   ({origins.get(declared.name, 'default')})")
        print(f"    {declared.sentence} {declared.variable}")
    print(flush=True)
