"""Make a master secret, or see which ones are set.

    blendstream keys new 2026-b     prints a line for the master secrets' file, once
    blendstream keys list           the ids that the settings hold, and which one is current

To rotate: append the new line to the file that BLENDSTREAM_KEYS_MASTER_SECRETS_FILE names on every
host, restart, then set keys.current_id to it. The next epoch opens with it; keep the old line
until every epoch opened with it is published.
"""

from __future__ import annotations

import argparse
import secrets

from blender.errors import ParameterError
from streams.settings import checks, load_settings

__all__ = ["add_arguments", "run"]

_BYTES = 32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `new` and `list`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    new = actions.add_parser("new", help="print a new secret under an id")
    new.add_argument("id", help="a short name, such as the year and a letter")
    actions.add_parser("list", help="the ids that are set; never the secrets")


def run(arguments: argparse.Namespace) -> int:
    """Do what was asked for."""
    if arguments.action == "new":
        problem = checks.name(arguments.id)
        if problem:
            raise ParameterError(f"a key's id {problem}, got {arguments.id!r}")
        print(f"{arguments.id}={secrets.token_hex(_BYTES)}")
        return 0
    keys = load_settings(arguments.settings).settings.keys
    for name in sorted(keys.master_secrets):
        print(f"{name}{'  (current)' if name == keys.current_id else ''}")
    return 0
