"""Show a published epoch: the most frequent records, with 95 % ranges.

Reads the gateway's public API, so an analyst needs no access to Kafka or Redis.
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from typing import Any

import httpx

from blendstream.agents.plurals import counted
from blendstream.blender.values.errors import BlenderError

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--epoch", type=int, metavar="E", help="the epoch; default: the latest")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="print all records as CSV")
    form.add_argument("--json", action="store_true", help="print the document as published")
    parser.add_argument(
        "--top", type=int, default=20, metavar="N", help="number of records; default: 20"
    )
    parser.add_argument(
        "--server",
        default="http://127.0.0.1:8080",
        metavar="URL",
        help="the gateway; default: %(default)s",
    )


def run(arguments: argparse.Namespace) -> int:
    """Fetch and print one publication."""
    which = "latest" if arguments.epoch is None else str(arguments.epoch)
    address = f"{arguments.server.rstrip('/')}/v1/estimates/{which}"
    accept = "text/csv" if arguments.csv else "application/json"
    try:
        response = httpx.get(address, headers={"accept": accept}, timeout=30)
    except httpx.HTTPError as error:
        raise BlenderError(
            f"the gateway at {arguments.server} must respond, got {type(error).__name__}; start "
            "it, or name another with --server"
        ) from error
    if response.status_code == 404:
        print("nothing is published there yet; `blendstream epochs` shows the epochs' states")
        return 1
    if response.status_code != 200:
        raise BlenderError(
            f"the gateway must respond with 200, got {response.status_code}; see its logs"
        )
    if arguments.csv or arguments.json:
        sys.stdout.write(response.text)
    else:
        _print(response.json(), arguments.top)
    return 0


def _print(document: dict[str, Any], top: int) -> None:
    people = document["participants"]
    optin = people["selection"] + people["estimation"]
    start, end = (_utc(document[f"window_{edge}_s"]) for edge in ("start", "end"))
    print(
        f"epoch {document['epoch']}, {start} to {end} UTC, {document['outcome']}, profile "
        f"{document['mechanisms'].get('profile', '?')}: {optin:,} opt-in users, "
        f"{people['clients']:,} clients"
    )
    for reason in document["reasons"]:
        print(f"  reason: {reason}")
    prefer = _print_agreement(document["agreement"])
    if difference := document["difference"]:
        print(f"  {difference['statement']}")
    if disputed := document["disputed"]:
        print(f"  disputed: {disputed['reason']}")
    filtered = document["filtered"]
    if filtered:
        print(
            f"  share is this epoch's own; filtered combines "
            f"{counted(filtered['epochs'], 'publication')} since epoch {filtered['since_epoch']}"
        )
    column = f"{'filtered':>9}  " if filtered else ""
    print(f"{'share':>9}  {'95 % range':<20} {column}query → URL")
    records = [
        record
        for record in document["records"]
        if record["url"] is not None
        and record[prefer]
        and record[prefer]["probability"] is not None
    ]
    # The document orders records by the blend, but it may prefer another group's estimates.
    records.sort(key=lambda record: -record[prefer]["probability"])
    for record in records[:top]:
        figure = record[prefer]
        span = f"{figure['low']:.3%} … {figure['high']:.3%}"
        column = f"{record['filtered']['probability']:>9.3%}  " if filtered else ""
        typed = f"{_printable(record['query'])} → {_printable(record['url'])}"
        print(f"{figure['probability']:>9.3%}  {span:<20} {column}{typed}")
        if record["disputed"]:
            groups = (("optin", "opt-in users"), ("client", "clients"))
            both = ", ".join(f"{name} {record[group]['probability']:.3%}" for group, name in groups)
            print(f"{'':>9}  disputed: {both}")
    if len(records) > top:
        print(f"… and {len(records) - top} more; --top {len(records)} or --csv shows them")


def _printable(text: str) -> str:
    """Replace characters that could change other text on a terminal, such as direction controls."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _print_agreement(agreement: dict[str, Any] | None) -> str:
    """Print whether the groups agree; return the group whose estimates to show."""
    if agreement is None:
        return "blend"
    p_value = "" if agreement["p_value"] is None else f" (p = {agreement['p_value']:.2g})"
    words = "agree" if agreement["agree"] else "disagree significantly"
    whose = "the clients' estimates" if agreement["prefer"] == "client" else "both groups blended"
    print(f"  the groups {words}{p_value}; shown: {whose}")
    return str(agreement["prefer"])


def _utc(time_s: int) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M:%S")
