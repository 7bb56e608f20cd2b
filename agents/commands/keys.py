"""Create a master secret, or list the ids of those set.

    blendstream keys new 2026-b     print a line for the master secrets' file
    blendstream keys new 2026-b --file FILE
                                    append it to that file instead; a new file has mode 600
    blendstream keys list           the ids in the settings, and which one is current

To rotate: append the new line to the file that BLENDSTREAM_KEYS_MASTER_SECRETS_FILE names on every
host, restart, then set keys.current_id to it. The next epoch opens with it; keep the old line
until every epoch opened with it is published.
"""

from __future__ import annotations

import argparse
import os
import secrets
from pathlib import Path
from typing import TextIO

from blendstream.blender.values.errors import ParameterError
from blendstream.streams.settings import load_settings, value_checks
from blendstream.streams.settings.private_files import exposed, rewriting

__all__ = ["add_arguments", "run"]

_BYTES = 32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    new = actions.add_parser("new", help="create a secret with this id and print it")
    new.add_argument("id", help="a short name, such as the year and a letter")
    new.add_argument(
        "--file", type=Path, metavar="FILE", help="append the line to FILE instead of printing it"
    )
    actions.add_parser("list", help="list the ids that are set; never the secrets")


def run(arguments: argparse.Namespace) -> int:
    """Create a secret, or list the ids."""
    if arguments.action == "new":
        problem = value_checks.name(arguments.id)
        if problem:
            raise ParameterError(f"a key's id {problem}, got {arguments.id!r}")
        line = f"{arguments.id}={secrets.token_hex(_BYTES)}"
        if arguments.file is None:
            print(line)
        else:
            _append(arguments.file, arguments.id, line)
        return 0
    keys = load_settings(arguments.settings).settings.keys
    for name in sorted(keys.master_secrets):
        print(f"{name}{'  (current)' if name == keys.current_id else ''}")
    return 0


def _opened(file: Path) -> TextIO:
    # A new file is for its owner alone, under any umask; an existing one keeps its mode.
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    return os.fdopen(handle, "r+", encoding="utf-8")


def _append(file: Path, name: str, line: str) -> None:
    try:
        if problem := exposed(file, "--file"):
            raise ParameterError(problem)
        with rewriting(file), _opened(file) as written:
            text = written.read()
            if name in (known.partition("=")[0].strip() for known in text.splitlines()):
                raise ParameterError(f"a key's id must be new, {name!r} is in the file already")
            written.write(f"{'' if text.endswith(chr(10)) or not text else chr(10)}{line}\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ParameterError(
            f"--file must name a text file that can be read and written, got "
            f"{type(error).__name__} for {file}; correct the path, or let this user write there"
        ) from None
