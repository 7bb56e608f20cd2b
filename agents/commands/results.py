"""Show a published epoch: what people search for, with 95 % ranges, best first.

Reads the gateway's public API, so an analyst needs no access to Kafka or Redis.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import httpx

from blender.errors import BlenderError

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--epoch", type=int, metavar="E", help="default: the latest")
    parser.add_argument("--csv", action="store_true", help="everything, as CSV")
    parser.add_argument("--top", type=int, default=20, metavar="N", help="records; default: 20")
    parser.add_argument(
        "--server",
        default="http://127.0.0.1:8080",
        metavar="URL",
        help="the gateway; default: %(default)s",
    )


def run(arguments: argparse.Namespace) -> int:
    which = "latest" if arguments.epoch is None else str(arguments.epoch)
    address = f"{arguments.server.rstrip('/')}/v1/estimates/{which}"
    accept = "text/csv" if arguments.csv else "application/json"
    try:
        answer = httpx.get(address, headers={"accept": accept}, timeout=30)
    except httpx.HTTPError as error:
        raise BlenderError(
            f"the gateway at {arguments.server} must answer, got {type(error).__name__}; start it, "
            "or name another with --server"
        ) from error
    if answer.status_code == 404:
        print("nothing is published there yet; `blendstream epochs` shows how far epochs are")
        return 1
    if answer.status_code != 200:
        raise BlenderError(f"the gateway must answer 200, got {answer.status_code}; see its logs")
    if arguments.csv:
        sys.stdout.write(answer.text)
    else:
        _print(answer.json(), arguments.top)
    return 0


def _print(document: dict[str, Any], top: int) -> None:
    people = document["participants"]
    optin = people["selection"] + people["estimation"]
    print(
        f"epoch {document['epoch']}, {document['outcome']}, profile "
        f"{document['mechanisms'].get('profile', '?')}: {optin:,} opt-in users, "
        f"{people['clients']:,} clients"
    )
    for reason in document["reasons"]:
        print(f"  reason: {reason}")
    agreement = document["agreement"]
    prefer = agreement["prefer"] if agreement else "blend"
    if prefer != "blend":
        print("  the groups disagree by more than chance; shown are the clients' estimates")
    # Publications of version 1 have neither.
    if difference := document.get("difference"):
        print(f"  {difference['statement']}")
    if disputed := document.get("disputed"):
        print(f"  disputed: {disputed['reason']}")
    print(f"{'share':>9}  {'95 % range':<20} query → URL")
    records = [r for r in document["records"] if r["url"] is not None and r[prefer]]
    for record in records[:top]:
        figure = record[prefer]
        if figure["probability"] is None:
            continue
        span = f"{figure['low']:.3%} … {figure['high']:.3%}"
        print(f"{figure['probability']:>9.3%}  {span:<20} {record['query']} → {record['url']}")
        if record.get("disputed"):
            groups = (("optin", "opt-in users"), ("client", "clients"))
            said = ", ".join(f"{name} {record[group]['probability']:.3%}" for group, name in groups)
            print(f"{'':>9}  disputed: {said}")
    if len(records) > top:
        print(f"… and {len(records) - top} more; --top {len(records)} or --csv shows them")
