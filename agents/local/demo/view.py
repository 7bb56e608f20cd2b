"""What a person sees while the demo runs: a block that is redrawn, or plain lines.

On a terminal the block stays in place at the bottom and finished epochs scroll above it; its lines
are cut to the terminal's width, since one that wraps takes two rows and the block would crawl down.
Where there is no terminal, a line is printed when something changed, and the figures now and then.
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


#: Figures change all the time: more often would bury the epochs' states in a log file.
_FIGURES_EVERY_S = 10.0


class View:
    """Prints lines for good, and a block that the next block replaces."""

    def __init__(
        self, out: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`out`: standard output by default."""
        self._out = out or sys.stdout
        self._clock = clock
        self._live = self._out.isatty()
        self._drawn = 0
        self._last = ("", "")
        self._began = self._figures_at = clock()

    def say(self, text: str) -> None:
        self._clear()
        for line in text.splitlines() or [""]:
            stamp = "" if self._live else f"[{self._clock() - self._began:5.1f} s] "
            print(f"{stamp}{line}", file=self._out)
        self._out.flush()

    def show(self, lines: Sequence[str], *, summary: str, figures: str = "") -> None:
        """The present state: redrawn on a terminal, else `summary` once when it changed.

        Without a terminal `figures` are printed too, if they changed, every ten seconds.
        """
        if self._live:
            self._clear()
            # Asked every time, since people resize their windows.
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
    """The ten most frequent records with both profiles' estimates, and how close each came."""
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
