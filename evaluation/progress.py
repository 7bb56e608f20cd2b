"""Show the progress of a long step: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import time
from typing import TextIO

__all__ = ["ProgressBar", "describe_seconds"]

_CELLS = 24


class ProgressBar:
    """A bar of `total` steps. `show` may be called for each step: most calls print nothing."""

    def __init__(self, total: int, out: TextIO) -> None:
        self._total = max(1, total)
        self._out = out
        self._shown = time.monotonic()

    def show(self, done: int, text: str) -> None:
        """Print the bar, at most 5 times per second on a terminal, twice per minute elsewhere."""
        terminal = self._out.isatty()
        now = time.monotonic()
        if now - self._shown < (0.2 if terminal else 30):
            return
        self._shown = now
        line = f"[{bar(done / self._total)}] {text}"
        print(f"\r\033[K{line}" if terminal else line, end="" if terminal else "\n", file=self._out)
        self._out.flush()

    def clear(self) -> None:
        """Remove the bar from the terminal."""
        print("\r\033[K" if self._out.isatty() else "", end="", file=self._out)


def bar(part: float) -> str:
    """Draw a part of 1.

    >>> bar(0.5)
    '############············'
    """
    filled = min(_CELLS, int(part * _CELLS))
    return "#" * filled + "·" * (_CELLS - filled)


def describe_seconds(seconds: float) -> str:
    """Format a duration for people.

    >>> describe_seconds(40), describe_seconds(200), describe_seconds(9000)
    ('40 seconds', '3 minutes', '2.5 hours')
    """
    if seconds < 90:
        return f"{max(1, round(seconds))} seconds"
    if seconds < 5400:
        return f"{round(seconds / 60)} minutes"
    return f"{seconds / 3600:.1f} hours"
