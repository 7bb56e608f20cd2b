"""Check settings, Kafka, topics, the release log, Redis, clock and tokens; print how to fix each.

Exits with 1 if something must be fixed. With --wait-s it can run while Kafka and Redis are still
starting. Changes nothing, with one exception: to compare clocks, it writes a byte to the clock
topic or, before the first start, to a topic that it creates and deletes.

With --edge it instead checks a reverse proxy (edge) from outside. That needs no settings and
submits no entry.
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
    """Prints each finding immediately; with `as_json` all of them at the end."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._findings: list[dict[str, str]] = []

    def add(self, grade: str, subject: str, found: str) -> None:
        """Add one finding."""
        self._findings.append({"grade": grade, "what": subject, "found": found})
        if not self._as_json:
            print(f"{_MARKS[grade]}{subject + ':':<13} {found}", flush=True)

    def end(self) -> int:
        """Print the summary; return the exit code."""
        to_fix = sum(finding["grade"] == "fix" for finding in self._findings)
        if self._as_json:
            print_json({"findings": self._findings, "to_fix": to_fix})
        elif to_fix:
            print(f"{counted(to_fix, 'problem')} to fix.", file=sys.stderr)
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
        help="first wait up to this long until Kafka and Redis respond (default: 0)",
    )
    parser.add_argument(
        "--edge",
        metavar="URL",
        help="check only the edge at this URL, as a device would: TLS and days to expiry, limits, "
        "deadlines, errors, cache",
    )


def run(arguments: argparse.Namespace) -> int:
    """Check and print; return 1 if something must be fixed."""
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
    # Imported here, so that wrong settings are reported without waiting for these libraries.
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
