"""The page docs/benchmarks.md, written from the stored results of each benchmark.

A benchmark is a module of this folder with `TITLE`, `TEXT` (what it measures, how to read it, its
limits) and `main()`, which returns its tables. `python -m bench` stores the tables in
docs/benchmarks/NAME.json with date, commit, command and machine, and writes the page from all
stored results. A benchmark with `SHOWN_IN` prints its figures for another page and stores nothing.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import subprocess
import textwrap
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

__all__ = ["GROUPS", "PAGE", "RESULTS", "Result", "Table", "load", "page", "store"]

REPOSITORY = Path(__file__).parents[1]
PAGE = REPOSITORY / "docs" / "benchmarks.md"
RESULTS = REPOSITORY / "docs" / "benchmarks"
#: The page's headings, and the benchmarks below each in the order in which they run.
GROUPS = {
    "The service": [
        "counting", "gateway_http", "edge_attacks", "epochs_publication", "results_page",
        "device_import", "device_head_list", "local_stack",
    ],
    "The mechanisms": [
        "blender_noise", "blender_head_list", "head_list_records", "blender_clients",
        "blender_estimates", "sharp_rates", "epoch_filter", "growth",
    ],
    "Accuracy": [
        "sharp_accuracy", "sharp_head_lists", "sharp_population", "blend_grid", "staying_people",
        "search_logs", "forged_reports", "over_time", "libraries_clients", "libraries_histogram",
    ],
}  # fmt: skip
INTRODUCTION = """\
# Benchmarks

`make bench` measures everything here in one run and writes this page; `make bench BENCH="NAME ..."`
measures some benchmarks and replaces only their sections. Edit no figure by hand:
`docs/benchmarks/` stores the figures, and each module in `bench/` has its sentences.

Every benchmark is seeded and runs its own baseline, so compare ratios rather than seconds. The
machine is a virtual one with two cores, shared by servers, load generator and what is measured, and
its speed varies by a factor of two from day to day. Processor time changes little under other load;
wall-clock time does. The load before each run is stated where it was recorded.
"""


@dataclass(frozen=True)
class Table:
    """Rows of text, printed as they are added: a run may take long."""

    columns: list[str]
    title: str = ""
    rows: list[list[str]] = field(default_factory=list)

    def add(self, *cells: str) -> None:
        """Append a row and print it."""
        if len(cells) != len(self.columns):
            raise ValueError(f"a row must have {len(self.columns)} cells, not {len(cells)}")
        if not self.rows:
            print("\n".join(filter(None, [self.title, _line(self.columns)])))
        self.rows.append(list(cells))
        print(_line(cells), flush=True)

    def markdown(self) -> str:
        """The table with its title above; all columns but the first are aligned to the right."""
        lines = [self.columns, ["---"] + ["---:"] * (len(self.columns) - 1), *self.rows]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return f"{textwrap.fill(f'**{self.title}**', 100)}\n\n{table}" if self.title else table


def _line(cells: list[str] | tuple[str, ...]) -> str:
    first, *others = cells
    return f"   {first:<52}" + "".join(f"  {cell:>12}" for cell in others)


@dataclass(frozen=True)
class Result:
    """The tables of one run, and the conditions under which it ran."""

    date: str
    commit: str
    command: str
    machine: str
    tables: list[Table]

    @classmethod
    def begin(cls, command: str) -> Result:
        """A result without tables: where and when the run begins."""
        cores = f"{os.cpu_count()} cores of {platform.machine()}"
        return cls(
            date=datetime.now(UTC).date().isoformat(),
            commit=_commit(),
            command=command,
            machine=f"Python {platform.python_version()}, {cores}, load {os.getloadavg()[0]:.1f} "
            "before the run",
            tables=[],
        )

    def measured(self) -> str:
        """One sentence."""
        day = datetime.fromisoformat(self.date)
        sentence = (
            f"Measured on {day.day} {day:%B %Y} at commit {self.commit} with `{self.command}`: "
            f"{self.machine}."
        )
        return textwrap.fill(sentence, 100, break_on_hyphens=False, break_long_words=False)


def _commit() -> str:
    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=REPOSITORY, capture_output=True, text=True, check=True
        ).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":!docs")
    return git("rev-parse", "--short=7", "HEAD") + (" with changes" if changed else "")


def store(name: str, result: Result) -> None:
    """Keep the result of a benchmark, and write the page."""
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(asdict(result), indent=1, ensure_ascii=False)
    (RESULTS / f"{name}.json").write_text(text + "\n")
    PAGE.write_text(page())


def load(name: str) -> Result | None:
    """The stored result of a benchmark, or None if it was never run."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return None
    stored = json.loads(path.read_text())
    return Result(**{**stored, "tables": [Table(**table) for table in stored["tables"]]})


def page() -> str:
    """The page as the stored results and the benchmarks' own sentences give it."""
    parts = [INTRODUCTION]
    stored = [result for names in GROUPS.values() for name in names if (result := load(name))]
    if len({(result.date, result.commit) for result in stored}) == 1:
        parts.append(f"One run measured all of it at commit {stored[0].commit}.\n")
    else:
        parts.append("Sections come from different runs; each states its day and commit.\n")
    for heading, names in GROUPS.items():
        parts.append(f"## {heading}\n")
        parts += [_section(name) for name in names]
    return "\n".join(parts)


def _section(name: str) -> str:
    module = _module(name)
    parts = [f"### {module.TITLE}", module.TEXT.strip()]
    shown_in = getattr(module, "SHOWN_IN", None)
    if shown_in is not None:
        where = f"[{shown_in}]({shown_in})"
        parts.append(f"`python -m bench.{name}` prints it; the figures are in\n{where}.")
    elif (result := load(name)) is not None:
        parts += [result.measured(), *(table.markdown() for table in result.tables)]
        parts.append(getattr(module, "AFTER", "").strip())
    else:
        parts.append(f"Not measured yet: `python -m bench {name}`.")
    return "\n\n".join(filter(None, parts)) + "\n"


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"bench.{name}")
