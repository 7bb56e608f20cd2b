"""Send a population of simulated people to a running service: the demo's, or a search log's users.

    export TOKEN=$(blendstream tokens add trial-app --file tokens.txt)
    blendstream simulate --server http://127.0.0.1:8080
    blendstream simulate --log clicks.tsv.gz --speed 3600 --save replay.json

The application's token is read from the variable TOKEN, or from a file with --token-file: every
user of a machine can read command lines.
Opt-in users search in each window, and devices report on each head list, through the public API.
Prints each epoch that is published. Never point it at a service that people use: it invents users.

With --log each user of a search log is an opt-in user or a device. Each epoch's window replays a
part of the log that is --speed times as long. In each window a user has one record, drawn from the
user's clicks in that part, or none. When the log has ended, the command prints the published epochs
beside the truth and saves them. It prints no query and no URL; the file contains those that the
service published.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from blendstream.agents.commands.demo import add_people, within
from blendstream.agents.commands.simulate_log import add_log_arguments, read_log
from blendstream.blender.values.errors import BlenderError
from blendstream.streams.settings.private_files import exposed

if TYPE_CHECKING:
    from blendstream.agents.local.demo.log_replay import LogClicks

__all__ = ["add_arguments", "run"]

_PEOPLE = 10_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the service, the token and who takes part."""
    parser.allow_abbrev = False  # `--token T` would take the token for a file's name, and print it
    parser.add_argument(
        "--server", default="http://127.0.0.1:8080", metavar="URL",
        help="the gateway; default: %(default)s",
    )  # fmt: skip
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE",
        help="has the token of an application, as `blendstream tokens add` printed it; "
        "default: the token is in the variable TOKEN",
    )  # fmt: skip
    parser.add_argument(
        "--epochs", type=within(int, 1), metavar="N", help="end after N epochs with estimates"
    )
    add_people(parser, people=None, usually=f"{_PEOPLE}; with --log all of its users")
    add_log_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Send until the epochs are published, or Ctrl-C."""
    from blendstream.agents.local.demo.run import first_error  # noqa: PLC0415 - for --help's sake

    token = _token(arguments.token_file)
    clicks = None if arguments.log is None else read_log(arguments)
    try:
        asyncio.run(_course(arguments, token, clicks))
    except KeyboardInterrupt:
        pass
    except BaseExceptionGroup as errors:
        raise first_error(errors) from None
    return 0


def _token(file: Path | None) -> str:
    """Return the application's token from a private file or the variable TOKEN."""
    if file is None:
        if token := os.environ.get("TOKEN", ""):
            return token
        raise BlenderError(
            "simulate must have an application's token, and neither the variable TOKEN nor "
            "--token-file gives one; run: export TOKEN=$(blendstream tokens add NAME)"
        )
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "text that is not UTF-8"
        raise BlenderError(
            f"--token-file must name a readable file, got {why} for {file}; correct the path"
        ) from None
    if problem := exposed(file, "the file of the token"):
        raise BlenderError(problem)
    return token


async def _course(arguments: argparse.Namespace, token: str, clicks: LogClicks | None) -> None:
    import httpx  # noqa: PLC0415 - for --help's sake

    from blendstream.agents.local.demo.log_comparison import replay  # noqa: PLC0415
    from blendstream.agents.local.demo.log_replay import LogReplay  # noqa: PLC0415
    from blendstream.agents.local.demo.participation import take_part  # noqa: PLC0415
    from blendstream.agents.local.demo.population import Population  # noqa: PLC0415

    async with httpx.AsyncClient(
        base_url=arguments.server.rstrip("/"), timeout=30, limits=httpx.Limits(max_connections=8)
    ) as http:
        who = {"optin_share": arguments.optin, "seed": arguments.seed}
        if clicks is None:
            people = Population(http, token, people=arguments.people or _PEOPLE, **who)
            await take_part(http, people, epochs=arguments.epochs)
        else:
            users = LogReplay(http, token, clicks, speed=arguments.speed, **who)
            await replay(http, users, arguments.save, epochs=arguments.epochs)
