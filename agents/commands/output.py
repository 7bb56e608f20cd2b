"""What verbs print, and what happens when its reader has ended (`blendstream VERB | head -1`).

A verb that only shows something then ends quietly, as Unix tools do. One that changes something
uses `say`: its work must not stop half-way because its output is no longer read.
"""

from __future__ import annotations

import os
import select
import sys
from typing import TextIO

__all__ = ["drop_unread_output", "say"]


def say(line: str) -> None:
    """Print a line at once; carry on if its reader has ended."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        drop_unread_output()


def drop_unread_output() -> bool:
    """Redirect output whose reader has ended to nowhere; whether there was such a reader.

    Otherwise Python tries to write it at exit, and prints a traceback.
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
