"""Look at settings, Kafka, topics, the release log, Redis, clock, tokens; say how to mend each.

Exits with 1 when something must be mended. Leaves everything as it was: to compare clocks it writes
a byte to the clock topic, or before the first start to a topic of its own, which it deletes again.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from streams.errors import SettingsError
from streams.settings import Settings, load_settings

__all__ = ["add_arguments", "run"]

_MARKS = {"ok": "  ok    ", "note": "  note  ", "mend": "  MEND  "}


def add_arguments(_parser: argparse.ArgumentParser) -> None:
    """Nothing of its own; settings say where to look."""


def run(arguments: argparse.Namespace) -> int:
    """Print each finding as it is made."""
    try:
        settings = load_settings(arguments.settings).settings
    except SettingsError as error:
        for problem in error.problems:
            _print("mend", "settings", problem)
        return _end(len(error.problems))
    _print("ok", "settings", "complete and consistent; `blendstream settings` shows them")
    return _end(asyncio.run(_examine(settings)))


async def _examine(settings: Settings) -> int:
    from agents.operations.installation_checks import Grade, examine  # noqa: PLC0415 - settings first, libraries after

    to_mend = 0
    async for finding in examine(settings):
        _print(finding.grade, finding.what, finding.found)
        to_mend += finding.grade is Grade.MEND
    return to_mend


def _print(grade: str, what: str, found: str) -> None:
    print(f"{_MARKS[grade]}{what + ':':<13} {found}", flush=True)


def _end(to_mend: int) -> int:
    if to_mend:
        print(f"{to_mend} thing(s) to mend.", file=sys.stderr)
        return 1
    print("nothing to mend.")
    return 0
