"""Draw figures in a light and a dark theme, with colours that colour-blind readers can distinguish.

Each line has its label at its right end, so that readers need not match colours with a legend. The
colours are from Okabe and Ito's palette; the choice depends on the background.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from blendstream.blender.values.errors import ParameterError
from blendstream.evaluation.summary import Curve

__all__ = ["THEMES", "Line", "Panel", "Theme", "draw_figure", "require_matplotlib"]


@dataclass(frozen=True, slots=True)
class Theme:
    """Background, text and the colours of the roles."""

    name: str
    ground: str
    text: str
    faint: str
    colours: dict[str, str]


#: The profiles `paper` and `sharp` have one colour each in all figures; the other roles distinguish
#: further curves.
THEMES = (
    Theme(
        "light", "#ffffff", "#1f2328", "#d0d7de",
        {"paper": "#D55E00", "sharp": "#0072B2", "limit": "#009E73",
         "third": "#CC79A7", "fourth": "#000000", "plain": "#59636e"},
    ),
    Theme(
        "dark", "#0d1117", "#e6edf3", "#3d444d",
        {"paper": "#E69F00", "sharp": "#56B4E9", "limit": "#2BC79A",
         "third": "#E29BC2", "fourth": "#F0E442", "plain": "#9198a1"},
    ),
)  # fmt: skip

#: A panel and its margins, in inches; the right one is for the lines' names.
_WIDTH, _HEIGHT = 5.6, 3.6
_LEFT, _RIGHT, _BOTTOM, _TOP = 0.85, 1.35, 0.6, 0.4

_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.2, 1.6)), (0, (6, 2, 1.2, 2)))
_MARKERS = ("o", "s", "^", "D")


@dataclass(frozen=True, slots=True)
class Line:
    """A curve with its label, the role of its colour, and its dash pattern."""

    curve: Curve
    label: str
    colour: str
    dash: int = 0


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    x_scale: str = "linear"
    y_scale: str = "linear"
    y_range: tuple[float | None, float | None] = (None, None)
    percent_x: bool = False
    percent_y: bool = False
    #: A horizontal reference line: (height, label).
    mark: tuple[float, str] | None = None
    x_ticks: Sequence[float] | None = None


def require_matplotlib() -> None:
    """Raise if matplotlib is missing. Called first, because the measurements take long."""
    if find_spec("matplotlib") is None:
        raise ParameterError(
            "the figures need matplotlib, which is not installed; nothing was computed. "
            "Run: pip install 'blendstream[eval]'"
        )


def draw_figure(
    panels: Sequence[Panel], path: Path, columns: int, kinds: Iterable[str]
) -> Iterator[Path]:
    """Draw the panels in both themes: NAME-light.svg, NAME-dark.png, …"""
    columns = min(columns, len(panels))
    for theme in THEMES:
        with _pyplot(theme) as plt:
            rows = -(-len(panels) // columns)
            width, height = columns * _WIDTH, rows * _HEIGHT
            figure = plt.figure(figsize=(width, height))
            for place, panel in enumerate(panels):
                left = place % columns * _WIDTH + _LEFT
                bottom = height - (place // columns + 1) * _HEIGHT + _BOTTOM
                inside = (_WIDTH - _LEFT - _RIGHT, _HEIGHT - _BOTTOM - _TOP)
                axes = figure.add_axes(
                    (left / width, bottom / height, inside[0] / width, inside[1] / height)
                )
                _draw_panel(axes, panel, theme)
                _label_lines(axes, panel, theme)
                _label_mark(axes, panel, theme)
            for kind in kinds:
                target = path.with_name(f"{path.name}-{theme.name}.{kind}")
                # Without a date or random ids, the same numbers give the same file.
                figure.savefig(target, dpi=110, metadata={"Date": None} if kind == "svg" else None)
                yield target
            plt.close(figure)


@contextmanager
def _pyplot(theme: Theme) -> Iterator[Any]:
    import matplotlib as mpl  # noqa: PLC0415

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    style: Any = {
        "svg.hashsalt": "blendstream",
        "svg.fonttype": "none",  # text stays text: a third of the size, and can be searched
        "figure.facecolor": theme.ground,
        "axes.facecolor": theme.ground,
        "savefig.facecolor": theme.ground,
        "text.color": theme.text,
        "axes.labelcolor": theme.text,
        "axes.edgecolor": theme.faint,
        "axes.titlecolor": theme.text,
        "xtick.color": theme.text,
        "ytick.color": theme.text,
        "grid.color": theme.faint,
        "grid.alpha": 0.6,
        "grid.linewidth": 0.6,
        "font.size": 10,
        "axes.titlesize": 11,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
    }
    with mpl.rc_context(style):
        yield plt


def _draw_panel(axes: Any, panel: Panel, theme: Theme) -> None:
    from matplotlib.ticker import (  # noqa: PLC0415
        FixedLocator,
        FuncFormatter,
        LogLocator,
        NullFormatter,
        NullLocator,
    )

    axes.set_title(panel.title)
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    # From 0 to the first tick above it an axis with 0 is linear, then logarithmic.
    axes.set_xscale(
        panel.x_scale, **({"linthresh": _first_above_0(panel)} if panel.x_scale == "symlog" else {})
    )
    axes.set_yscale(panel.y_scale)
    for line in panel.lines:
        x = line.curve.x
        means = [m.mean for m in line.curve.means]
        colour = theme.colours[line.colour]
        axes.plot(
            x, means, color=colour, linestyle=_DASHES[line.dash], linewidth=1.8,
            marker=_MARKERS[line.dash], markersize=3.6,
        )  # fmt: skip
        low = [m.mean - 2 * m.error for m in line.curve.means]
        high = [m.mean + 2 * m.error for m in line.curve.means]
        axes.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)
    if panel.mark is not None:
        height, _ = panel.mark
        axes.axhline(height, color=theme.colours["plain"], linewidth=1, linestyle=(0, (2, 2)))
    if panel.y_scale == "linear":
        axes.set_ylim(*panel.y_range)
    if panel.x_ticks is not None:
        axes.xaxis.set_major_locator(FixedLocator(panel.x_ticks))
        axes.xaxis.set_minor_locator(NullLocator())
    percent = FuncFormatter(lambda value, _: f"{value * 100:g} %")
    plain = FuncFormatter(lambda value, _: _plain(value))
    axes.xaxis.set_major_formatter(percent if panel.percent_x else plain)
    axes.yaxis.set_major_formatter(percent if panel.percent_y else plain)
    axes.xaxis.set_minor_formatter(NullFormatter())
    for scale, axis in ((panel.x_scale, axes.xaxis), (panel.y_scale, axes.yaxis)):
        if scale == "log" and not (axis is axes.xaxis and panel.x_ticks is not None):
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.set_minor_locator(NullLocator())


def _first_above_0(panel: Panel) -> float:
    return min(tick for tick in panel.x_ticks or (1.0,) if tick > 0)


def _plain(value: float) -> str:
    if abs(value) >= 1e6:
        return f"{value / 1e6:g} M"
    if abs(value) >= 1e4:
        return f"{value / 1e3:g} k"
    return f"{value:.6g}"


def _label_lines(axes: Any, panel: Panel, theme: Theme) -> None:
    """Write each line's name next to its last point, moved apart where names would touch.

    A thin stroke connects a moved name with its line, because several lines may have one colour.
    """
    ends = []
    axes.get_ylim()  # fixes the axes' limits, on which the positions below depend
    for line in panel.lines:
        if line.curve.x:
            end = (line.curve.x[-1], line.curve.means[-1].mean)
            ends.append((axes.transData.transform(end)[1], end, line))
    # A long title extends above the names: the topmost must not touch it.
    bottom, top = axes.bbox.y0, axes.bbox.y1 - 5 * axes.figure.dpi / 72
    heights = _spread([height for height, _, _ in ends], 13 * axes.figure.dpi / 72, bottom, top)
    points = 72 / axes.figure.dpi
    for (height, end, line), wanted in zip(ends, heights, strict=True):
        moved = (wanted - height) * points
        colour = theme.colours[line.colour]
        tie = {"arrowstyle": "-", "color": colour, "linewidth": 0.7, "shrinkA": 1, "shrinkB": 3}
        axes.annotate(
            line.label, end, xytext=(14, moved), textcoords="offset points",
            va="center", ha="left", fontsize=9, color=colour, annotation_clip=False,
            arrowprops=tie | {"relpos": (0, 0.5)} if abs(moved) > 4 else None,
        )  # fmt: skip


def _label_mark(axes: Any, panel: Panel, theme: Theme) -> None:
    """Write the meaning of a reference line at the end and on the side with most free space."""
    if panel.mark is None:
        return
    height, meaning = panel.mark
    place = axes.transData.transform((axes.get_xlim()[0], height))[1]
    step = 8 * axes.figure.dpi / 72  # from the line to the middle of the text
    free = []
    for at, left in ((-1, False), (0, True)):
        taken = [
            axes.transData.transform((line.curve.x[at], line.curve.means[at].mean))[1]
            for line in panel.lines
            if line.curve.x
        ]
        for above in (True, False):
            middle = place + step if above else place - step
            around = [abs(middle - y) for y in [*taken, axes.bbox.y0, axes.bbox.y1]]
            free.append((min(around), left, above))
    _, left, above = max(free)
    axes.annotate(
        meaning, (0.0 if left else 1.0, height), xycoords=("axes fraction", "data"),
        xytext=(4 if left else -4, 3 if above else -3), textcoords="offset points",
        ha="left" if left else "right", va="bottom" if above else "top",
        color=theme.colours["plain"], fontsize=8.5,
    )  # fmt: skip


def _spread(heights: Iterable[float], gap: float, bottom: float, top: float) -> list[float]:
    """Move heights as little as needed, so that they are `gap` apart and within bounds.

    >>> _spread([10.0, 11.0, 50.0], 5.0, 0.0, 100.0)
    [8.0, 13.0, 50.0]
    >>> _spread([99.0, 100.0], 5.0, 0.0, 100.0)
    [95.0, 100.0]
    """
    given = [min(max(h, bottom), top) for h in heights]
    order = sorted(range(len(given)), key=lambda i: given[i])
    placed = [given[i] for i in order]
    for _ in range(200):
        moved = False
        for i in range(1, len(placed)):
            short = gap - (placed[i] - placed[i - 1])
            if short > 1e-6:
                placed[i - 1] -= short / 2
                placed[i] += short / 2
                moved = True
        if not moved:
            break
    # Back within bounds, from the top down, then from the bottom up.
    for i in reversed(range(len(placed))):
        placed[i] = min(placed[i], top if i == len(placed) - 1 else placed[i + 1] - gap)
    for i in range(len(placed)):
        placed[i] = max(placed[i], bottom if i == 0 else placed[i - 1] + gap)
    result = [0.0] * len(given)
    for place, i in enumerate(order):
        result[i] = placed[place]
    return result
