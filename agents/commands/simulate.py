"""Send a population of simulated people to a running service: the demo's, with their habits.

    export TOKEN=$(blendstream tokens add trial-app --file tokens.txt)
    blendstream simulate --server http://127.0.0.1:8080

The application's token is read from the variable TOKEN, or from a file with --token-file: every
user of a machine can read command lines.
Opt-in users search in each window, and devices report on each head list, through the public API.
Prints each epoch that is published. Never point it at a service that people use: it invents users.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from pathlib import Path
from typing import Any

from blendstream.agents.commands.demo import add_people, within
from blendstream.blender.values.errors import BlenderError
from blendstream.streams.settings.private_files import exposed

__all__ = ["add_arguments", "run"]

_LOOK_EVERY_S = 0.5


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
    add_people(parser, people=10_000)


def run(arguments: argparse.Namespace) -> int:
    """Send until the epochs are published, or Ctrl-C."""
    from blendstream.agents.local.demo.run import first_error  # noqa: PLC0415 - for --help's sake

    token = _token(arguments.token_file)
    try:
        asyncio.run(_course(arguments, token))
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


async def _course(arguments: argparse.Namespace, token: str) -> None:
    import httpx  # noqa: PLC0415 - for --help's sake

    from blendstream.agents.local.demo.population import Population  # noqa: PLC0415

    async with httpx.AsyncClient(
        base_url=arguments.server.rstrip("/"), timeout=30, limits=httpx.Limits(max_connections=8)
    ) as http, asyncio.TaskGroup() as tasks:  # fmt: skip
        people = Population(
            http,
            token,
            people=arguments.people,
            optin_share=arguments.optin,
            seed=arguments.seed,
        )
        shown: set[int] = set()
        said, with_estimates = "", 0
        while arguments.epochs is None or with_estimates < arguments.epochs:
            try:
                states = (await http.get("/v1/epochs")).raise_for_status().json()
                await people.act(states, tasks)
                now = _now(states, people)
                with_estimates += await _show_published(http, states, people, shown)
            except httpx.HTTPError as error:
                now = f"waiting for the gateway at {http.base_url} ({type(error).__name__}) ..."
            if now != said:
                said = now
                print(said, flush=True)
            await asyncio.sleep(_LOOK_EVERY_S)
        people.stop()


def _now(states: Any, people: Any) -> str:
    """What happens now, without numbers that change all the time."""
    if states["paused"] is not None:
        return f"paused: {states['paused']['detail']}"
    collecting = states["collecting"]
    if collecting is None:
        return "no epoch is open; are the jobs running?"
    epoch, window = collecting["epoch"], people.windows.get(collecting["epoch"])
    length_s = collecting["window_end_s"] - collecting["window_start_s"]
    if window is None:
        at = _clock(collecting["window_end_s"])
        return f"epoch {epoch}: too little of its window is left; people search in the next, {at}"
    due = _clock(collecting["window_end_s"] + length_s)
    return (
        f"epoch {epoch}: {len(window.optin):,} opt-in users search, {len(window.clients):,} "
        f"devices report in the next window; its results are due soon after {due}"
    )


def _clock(time_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(time_s))


async def _show_published(http: Any, states: Any, people: Any, shown: set[int]) -> int:
    """Print what was published of epochs that these people took part in; how many have results."""
    with_estimates = 0
    for state in sorted(states["epochs"], key=lambda s: int(s["epoch"])):
        epoch = int(state["epoch"])
        if state["state"] != "published" or epoch in shown or not people.windows.get(epoch):
            continue
        answer = await http.get(f"/v1/estimates/{epoch}")
        if answer.status_code != 200:
            continue
        shown.add(epoch)
        document = answer.json()
        took_part = document["participants"]
        text = ", ".join(document["reasons"]) or (
            f"{took_part['selection'] + took_part['estimation']:,} opt-in users, "
            f"{took_part['clients']:,} devices, {len(document['records'])} cells"
        )
        print(f"epoch {epoch} published, {document['outcome']}: {text}", flush=True)
        with_estimates += document["outcome"] != "empty"
    return with_estimates
