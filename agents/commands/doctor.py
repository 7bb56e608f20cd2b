"""Check settings, Kafka, topics, the release log, Redis, clock, tokens; say how to fix each.

Exits with 1 when something must be fixed. Leaves everything as it was: to compare clocks it writes
a byte to the clock topic, or before the first start to a topic of its own, which it deletes again.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from streams.errors import SettingsError
from streams.settings import Settings, load_settings

__all__ = ["run"]

_MARKS = {"ok": "  ok    ", "note": "  note  ", "fix": "  FIX   "}


def run(arguments: argparse.Namespace) -> int:
    try:
        settings = load_settings(arguments.settings).settings
    except SettingsError as error:
        for problem in error.problems:
            _print("fix", "settings", problem)
        return _end(len(error.problems))
    _print("ok", "settings", "complete and consistent; `blendstream settings` shows them")
    return _end(asyncio.run(_examine(settings)))


async def _examine(settings: Settings) -> int:
    from agents.operations.installation_checks import Grade, examine  # noqa: PLC0415 - settings first, libraries after

    to_fix = 0
    async for finding in examine(settings):
        _print(finding.grade, finding.what, finding.found)
        to_fix += finding.grade is Grade.FIX
    return to_fix


def _print(grade: str, what: str, sentence: str) -> None:
    print(f"{_MARKS[grade]}{what + ':':<13} {sentence}", flush=True)


def _end(to_fix: int) -> int:
    if to_fix:
        print(f"{to_fix} thing(s) to fix.", file=sys.stderr)
        return 1
    print("nothing to fix.")
    return 0
