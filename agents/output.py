"""Print for subcommands, also when the reader has exited (`blendstream SUBCOMMAND | head -1`).

A subcommand that only prints then ends silently, as Unix tools do. One that changes something uses
`say`: its work must not stop half-way because nobody reads its output.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import sys
from typing import Any, TextIO

__all__ = ["add_json", "drop_unread_output", "print_json", "say"]


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option --json: print one JSON object, for programs."""
    parser.add_argument("--json", action="store_true", help="for programs: one JSON object")


def print_json(document: Any) -> None:
    """Print one JSON object, indented, with its keys in insertion order."""
    print(json.dumps(document, indent=2, ensure_ascii=False), flush=True)


def say(line: str) -> None:
    """Print and flush a line; continue if the reader has exited."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        drop_unread_output()


def drop_unread_output() -> bool:
    """Redirect output whose reader has exited to /dev/null. Return True if there was any.

    Otherwise Python writes it at exit and prints a traceback.
    """
    gone = [stream for stream in (sys.stdout, sys.stderr) if _reader_has_gone(stream)]
    for stream in gone:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    return bool(gone)


def _reader_has_gone(stream: TextIO) -> bool:
    try:
        number = stream.fileno()
    except (OSError, ValueError):
        return False  # Not a file: captured by a test.
    poll = select.poll()
    poll.register(number, 0)
    return bool(poll.poll(0))
