"""The demo's output: a block that is redrawn on a terminal, or plain lines.

On a terminal the block stays at the bottom and finished epochs scroll above it. Its lines are cut
to the terminal's width: a wrapped line would take two rows, and the block would move down. Without
a terminal, a line is printed at each change, and the figures at most every ten seconds.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TextIO

from blendstream.agents.local.demo.compare import Score
from blendstream.blender.values.record import Record

__all__ = ["View", "epoch_table"]


#: Interval between printed figures, which change constantly. More frequent lines would hide the
#: epochs' states in a log file.
_FIGURES_EVERY_S = 10.0


class View:
    """Prints permanent lines, and a block that the next block replaces."""

    def __init__(
        self, out: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Write to `out`, by default standard output."""
        self._out = out or sys.stdout
        self._clock = clock
        self._live = self._out.isatty()
        self._drawn = 0
        self._last = ("", "")
        self._began = self._figures_at = clock()

    def say(self, text: str) -> None:
        """Print permanent lines."""
        self._clear()
        for line in text.splitlines() or [""]:
            stamp = "" if self._live else f"[{self._clock() - self._began:5.1f} s] "
            print(f"{stamp}{line}", file=self._out)
        self._out.flush()

    def show(self, lines: Sequence[str], *, summary: str, figures: str = "") -> None:
        """Show the present state: redrawn on a terminal, else `summary` if it changed.

        Without a terminal, changed `figures` are printed too, every ten seconds.
        """
        if self._live:
            self._clear()
            # Each time, because users resize their windows.
            columns, rows = shutil.get_terminal_size()
            # A line of exactly that many columns wraps on some terminals.
            drawn = [
                line if len(line) < columns else line[: max(0, columns - 2)] + "…"
                for line in lines[: max(1, rows - 1)]
            ]
            print("\n".join(drawn), file=self._out, flush=True)
            self._drawn = len(drawn)
            return
        if summary != self._last[0]:
            self.say(summary)
        due = self._clock() - self._figures_at >= _FIGURES_EVERY_S
        if due and figures != self._last[1]:
            self._figures_at = self._clock()
            self.say(figures)
        self._last = summary, figures if due else self._last[1]

    def _clear(self) -> None:
        if self._drawn:
            # Up over the block, and erase from there to the end of the screen.
            print(f"\x1b[{self._drawn}F\x1b[J", end="", file=self._out)
            self._drawn = 0


def epoch_table(
    epoch: int, people: str, scores: Sequence[tuple[str, Score]], truth: Mapping[Record, float]
) -> str:
    """Return a table of the ten most frequent records, and the accuracy of both profiles."""
    first = scores[0][1]
    lines = [f"Epoch {epoch} published: {people}"]
    # 79 columns: fits a terminal of 80.
    header = f"{'query → result':<26}{'true':>7}"
    for name, _ in scores:
        header += f"{name:>8}{'95 % interval':>15}"
    lines.append(header)
    others = [{row.record: row for row in score.rows} for _, score in scores]
    for row in first.rows[:10]:
        text = f"{row.record.query} → …/{row.record.url.rpartition('/')[2]}"
        line = f"{text:<26}{truth.get(row.record, 0.0):>7.2%}"
        for rows in others:
            other = rows.get(row.record)
            if other is None:
                line += f"{'–':>8}{'not listed':>15}"
            else:
                interval = f"{100 * other.low:.2f}–{other.high:.2%}"
                line += f"{other.estimate:>8.2%}{interval:>15}"
        lines.append(line)
    lines.append("")
    for name, score in scores:
        lines.append(
            f"{name}: {len(score.rows)} records listed, L1 {score.l1:.4f}, NDCG {score.ndcg:.4f}, "
            f"truth in the interval {score.within} of {len(score.rows)}"
        )
    return "\n".join(lines)
