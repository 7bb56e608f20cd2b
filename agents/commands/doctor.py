"""Check settings, Kafka, topics, the release log, Redis, clock, tokens; say how to fix each.

Exits with 1 when something must be fixed. Leaves everything as it was: to compare clocks it writes
a byte to the clock topic, or before the first start to a topic of its own, which it deletes again.
With --wait-s it may be run while Kafka and Redis are still starting.

With --edge it checks an edge from outside instead. That needs no settings and counts nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from blendstream.agents.output import add_json, print_json
from blendstream.agents.plurals import counted
from blendstream.streams.errors import SettingsError
from blendstream.streams.settings import Settings, load_settings

__all__ = ["run"]

_MARKS = {"ok": "  ok    ", "note": "  note  ", "fix": "  FIX   "}


class _Report:
    """Prints each finding as it is made; with `as_json` all of them at the end."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._findings: list[dict[str, str]] = []

    def add(self, grade: str, what: str, found: str) -> None:
        self._findings.append({"grade": grade, "what": what, "found": found})
        if not self._as_json:
            print(f"{_MARKS[grade]}{what + ':':<13} {found}", flush=True)

    def end(self) -> int:
        to_fix = sum(finding["grade"] == "fix" for finding in self._findings)
        if self._as_json:
            print_json({"findings": self._findings, "to_fix": to_fix})
        elif to_fix:
            print(f"{counted(to_fix, 'thing')} to fix.", file=sys.stderr)
        else:
            print("nothing to fix.")
        return 1 if to_fix else 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json(parser)
    parser.add_argument(
        "--wait-s",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="first wait up to so long until Kafka and Redis answer (default: 0)",
    )
    parser.add_argument(
        "--edge",
        metavar="URL",
        help="check the edge that devices reach there, and nothing else: TLS and days to expiry, "
        "limits, deadlines, errors, cache",
    )


def run(arguments: argparse.Namespace) -> int:
    report = _Report(as_json=arguments.json)
    if arguments.edge:
        asyncio.run(_examine_edge(arguments.edge, report))
        return report.end()
    try:
        settings = load_settings(arguments.settings).settings
    except SettingsError as error:
        for problem in error.problems:
            report.add("fix", "settings", problem)
        return report.end()
    report.add("ok", "settings", "complete and consistent; `blendstream settings` shows them")
    asyncio.run(_examine(settings, report, arguments.wait_s))
    return report.end()


async def _examine(settings: Settings, report: _Report, wait_s: float) -> None:
    # Settings first, libraries after.
    from blendstream.agents.operations.installation_checks import examine  # noqa: PLC0415
    from blendstream.agents.operations.server_wait import wait_for_servers  # noqa: PLC0415

    if wait_s:
        await wait_for_servers(settings, wait_s, lambda line: print(line, file=sys.stderr))
    async for finding in examine(settings):
        report.add(finding.grade.value, finding.what, finding.found)


async def _examine_edge(url: str, report: _Report) -> None:
    from blendstream.agents.operations.edge_checks import examine_edge  # noqa: PLC0415

    async for finding in examine_edge(url):
        report.add(finding.grade.value, finding.what, finding.found)
