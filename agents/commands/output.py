"""What verbs print, and what happens when nobody reads it any more (`blendstream VERB | head -1`).

A verb that only shows something ends then, quietly, as Unix tools do. One that changes something
uses `say`: half of its work must not depend on who reads what it says.
"""

from __future__ import annotations

import os
import select
import sys
from typing import TextIO

__all__ = ["drop_unread_output", "say"]


def say(line: str) -> None:
    """Print a line at once, and go on with the work if its reader has gone."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        drop_unread_output()


def drop_unread_output() -> bool:
    """Send what nobody reads any more nowhere; whether there was a reader that has gone.

    Else Python tries again when it ends, and prints a traceback over it.
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
