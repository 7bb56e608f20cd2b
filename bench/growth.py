"""Measure how each stage's time and memory grow with its input, and fit the exponent.

Reading from Redis is measured by `head_list_records`, the servers by `counting`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench._measured import measure
from bench._page import RESULTS, Table
from blendstream.agents.worker.entry_checks import judge_reports
from blendstream.blender.epoch_estimates import OptinRelease, estimate_epoch
from blendstream.blender.noise.exact_noise import ExactNoise
from blendstream.blender.over_time.publication_filter import (
    ClientFigures,
    Publication,
    RecordFilter,
)
from blendstream.blender.profiles import build_head_list
from blendstream.blender.registry import randomizer_for
from blendstream.blender.sharp.agreement import measure_agreement
from blendstream.blender.sharp.stable_histogram import StableHistogram
from blendstream.blender.values.interfaces import OptinCounts
from blendstream.blender.values.parameters import PrivacyParameters
from blendstream.blender.values.record import Record
from blendstream.evaluation.drawing import Line, Panel, draw_figure
from blendstream.evaluation.summary import Curve, Mean
from blendstream.streams.epoch_keys import EpochKeys
from blendstream.streams.releases.epoch_state import ReleaseLogState
from blendstream.streams.tables.batch_verdict import Delivery
from blendstream.streams.tables.fingerprints import FingerprintTable
from blendstream.streams.tables.record_rows import RecordSums
from blendstream.streams.wire.frames import decode
from tests.release_entries import (
    estimates_entry,
    fold,
    head_list_entries,
    log_state_of,
    opened_entry,
)
from tests.report_frames import encode_reports

TITLE = "How stages grow"
TEXT = """
Each row is one process that runs one stage at one size; stages of less than a second run three
times, and the shortest time counts. *Memory* is in addition to that of the stage's smallest size.
*n^x* is the growth from the previous size; in the row of all sizes, from the first size to the
last. The number in brackets is the growth of n·log n. A stage may grow faster than that only if its
small sizes avoid some work, for example because a table fits the processor's cache, or because rows
need no second merge.
"""
AFTER = """
Three stages grow faster than n·log n between two sizes, each for a reason that does not continue at
larger sizes:

- *Rows added up*. Up to a million rows are merged once. More rows are merged in several steps, each
  when as many new rows wait as are already merged: at most three merges per row, for any number.
- *Reports judged*. The table of fingerprints doubles when it is half full, and all fingerprints are
  inserted again: zero to two times per fingerprint, depending on the size between powers of two.
- *Table reloaded*. Space for all fingerprints is reserved, so none is inserted again. The table
  becomes larger than the processor's caches, which is probably the reason; we did not test that.

<picture>
  <source media="(prefers-color-scheme: dark)" srcset="growth-dark.svg">
  <img alt="Time and memory of ten stages, beside proportional growth" src="growth-light.svg">
</picture>
"""

HOUR_MS = 3_600_000
HEAD_LIST = bytes(range(32))
FRAME, BATCH = 1_000, 128


def rows_added_up(records: int) -> Callable[[], float]:
    """Rows of distinct opt-in records, as Redis holds them, added up by record."""
    strings = [
        b"".join(
            [b"query number %d\thttps://site-%d.example/path\t1\n" % (n, n) for n in range(at, end)]
        )
        for at, end in _cuts(records, 250_000)
    ]

    def work() -> float:
        sums = RecordSums(columns=2)
        for rows in strings:
            sums.add(rows, 0)
        return len(sums.finish()[0])

    return work


def noise_and_choice(records: int) -> Callable[[], float]:
    """Exact noise on every count, threshold and choice."""
    counts = np.random.default_rng(1).zipf(1.8, records).clip(max=10**6)
    known, parameters = np.zeros(records, dtype=np.bool_), PrivacyParameters()
    return lambda: len(StableHistogram().select(counts, known, parameters, ExactNoise()).kept)


def reports_counted(reports: int) -> Callable[[], float]:
    """Reports of different devices judged and deduplicated, in scripts of 128 000."""
    log_state = _published(1)
    keys, seen = EpochKeys.derive(bytes(32), 0), FingerprintTable()
    rng = np.random.default_rng(2)

    def work() -> float:
        counted = 0
        for at, end in _cuts(reports, FRAME * BATCH):
            run = []
            for offset in range(max(1, (end - at) // FRAME)):
                cells = rng.integers(0, 501, size=(FRAME, 1))
                value = encode_reports(0, HEAD_LIST, rng.bytes(16 * FRAME), cells, 2)
                frame = decode(value)
                run.append(Delivery(offset, 3 * HOUR_MS // 2, frame, len(value)))  # type: ignore[arg-type]
            counted += judge_reports(0, run, log_state, {0: keys}, {0: seen}).summary()["counted"]
        return counted

    return work


def contributors_reloaded(contributors: int) -> Callable[[], float]:
    """Fingerprints of a partition read back into the worker's table."""
    stored = np.random.default_rng(3).integers(1, 2**64, contributors, dtype=np.uint64)

    def work() -> float:
        table = FingerprintTable()
        table.reserve(contributors)
        for at, end in _cuts(contributors, 1 << 18):
            table.add(stored[at:end])
        return len(table)

    return work


def _release(listed: int, known: int = 0) -> OptinRelease:
    rng = np.random.default_rng(4)
    p = 1 / np.arange(1, listed + listed // 3 + 1) ** 0.9
    p /= p.sum()
    users = 200 * listed
    s, t = rng.multinomial(users * 9 // 10, p), rng.multinomial(users // 10, p)
    records = [Record(f"query {i // 3}", f"https://example/{i}") for i in range(len(p))]
    counts = OptinCounts(records, s, t, users * 9 // 10, users // 10)
    parameters = PrivacyParameters(head_list_cells=listed, selection_share=0.9)
    return build_head_list("sharp", counts, parameters, ExactNoise(), records[:known])


def head_list(listed: int) -> Callable[[], float]:
    """Head list of `sharp` with the opt-in users' estimates."""
    _release(500)  # loads SciPy
    return lambda: _release(listed).head_list.listed


def known_records(known: int) -> Callable[[], float]:
    """Build a head list where so many records are known from the last list."""
    _release(500, 100)
    return lambda: _release(known, known).head_list.listed


def _reports_on(release: OptinRelease, devices: int) -> np.ndarray:
    randomizer = randomizer_for(release.head_list)
    truth = np.full(100_000, len(randomizer.cells) - 1)
    answers = randomizer.answer_batch(truth, np.random.default_rng(5))
    counts = np.bincount(answers.ravel(), minlength=len(randomizer.cells)).astype(np.int64)
    return counts * (devices // 100_000)


def estimates(listed: int) -> Callable[[], float]:
    """All estimates of an epoch of `sharp`, blended, with intervals and totals."""
    release, devices = _release(listed), 4_800_000
    counts = _reports_on(release, devices)
    return lambda: float(estimate_epoch(release, counts, devices).blended.cells.probability.sum())


def agreement(listed: int) -> Callable[[], float]:
    """Run the agreement test, with 999 simulated epochs."""
    release, devices = _release(listed), 4_800_000
    randomizer = randomizer_for(release.head_list)
    client = randomizer.estimate(_reports_on(release, devices), devices)

    def work() -> float:
        found = measure_agreement(
            release.head_list, release.noisy, client, randomizer, shares=release.shares,
            rng=np.random.default_rng(6),
        )  # fmt: skip
        assert found is not None
        return found.p_value

    return work


def filter_over_epochs(records: int) -> Callable[[], float]:
    """The filter's third epoch over so many remembered records, 500 of them listed."""
    rng, listed, users, reports = np.random.default_rng(7), 500, 125_000, 4_875_000
    names = tuple(Record(f"query {i // 3}", f"https://{i}.example") for i in range(records))
    p = 0.6 / np.log(records / 5.7) / (np.arange(records) + 5.7)
    variance = (p[:listed] + 0.1) / reports
    current = RecordFilter.start()

    def published(epoch: int) -> Publication:
        figures = p[:listed] + rng.normal(0, np.sqrt(variance))
        return Publication(
            epoch=epoch, records=names, users=users, noise=2 / 3, listed=listed,
            counts=rng.poisson(users * p) + rng.integers(-1, 2, records),
            clients=ClientFigures(figures, variance, reports), between_groups=0.1,
        )  # fmt: skip

    for epoch in (1, 2):
        current = current.follow(published(epoch))
    last = published(3)
    return lambda: len(current.follow(last).estimates().records)


def _published(epochs: int) -> ReleaseLogState:
    log_state = log_state_of()
    for epoch in range(epochs):
        start = epoch * HOUR_MS
        fold(
            log_state,
            opened_entry(
                epoch, window_start_ms=start, window_end_ms=start + HOUR_MS, grace_ms=0, skew_ms=0,
                shares_ppm=(900_000, 90_000, 10_000), optin_partitions=1, report_partitions=1,
            ),
            head_list_entries(
                epoch, HEAD_LIST if epoch == epochs - 1 else epoch.to_bytes(32, "big"),
                reports_until_ms=start + 2 * HOUR_MS, bounds=[0], cells=501, cells_per_answer=1,
                answers=1,
            ),
        )  # fmt: skip
        if epoch < epochs - 1:
            fold(log_state, estimates_entry(epoch))
    return log_state


def log_read_whole(epochs: int) -> Callable[[], float]:
    """The release log folded from its beginning: what `verify` does; processes use a checkpoint."""
    return lambda: len(_published(epochs).epochs)


STAGES: dict[str, tuple[Callable[[int], Callable[[], float]], tuple[int, ...]]] = {
    "opt-in rows added up, by records": (rows_added_up, (10_000, 100_000, 1_000_000, 10_000_000)),
    "noise and choice, by records": (noise_and_choice, (10_000, 100_000, 1_000_000, 10_000_000)),
    "reports judged, by reports": (reports_counted, (100_000, 1_000_000, 10_000_000, 100_000_000)),
    "table reloaded, by contributors": (
        contributors_reloaded,
        (100_000, 1_000_000, 10_000_000, 30_000_000),
    ),
    "head list and p̂_O, by M": (head_list, (500, 2_500, 10_000, 50_000)),
    "the same, by known records": (known_records, (500, 2_500, 10_000, 50_000)),
    "epoch's estimates, by M": (estimates, (500, 2_500, 10_000, 50_000)),
    "agreement, by M": (agreement, (500, 2_500, 10_000, 50_000)),
    "filter, by remembered records": (filter_over_epochs, (1_000, 5_000, 20_000, 100_000)),
    "whole log, by epochs": (log_read_whole, (10, 100, 1_000, 10_000)),
}


def _cuts(size: int, step: int) -> list[tuple[int, int]]:
    return [(at, min(at + step, size)) for at in range(0, size, step)]


@dataclass(frozen=True, slots=True)
class Row:
    """One stage at one size; memory is what it held beyond the stage's smallest size."""

    size: int
    seconds: float
    cpu_seconds: float
    memory_mib: float


def main() -> list[Table]:
    """Every stage at each of its sizes; draws the figure, too."""
    table = Table(["stage", "size", "wall clock", "processor", "memory", "time grows as",
                   "memory grows as"])  # fmt: skip
    found: dict[str, list[Row]] = {}
    for stage, (prepare, sizes) in STAGES.items():
        rows = found.setdefault(stage, [])
        for row in _measured(prepare, sizes):
            rows.append(row)
            table.add(
                stage, f"{row.size:,}", f"{row.seconds:.2f} s", f"{row.cpu_seconds:.3f} s",
                f"{row.memory_mib:.0f} MiB", time_growth(rows[-2:]) if len(rows) > 1 else "", "",
            )  # fmt: skip
        table.add(stage, ALL, "", "", "", time_growth(rows), memory_growth(rows))
    _draw(found, RESULTS.parent / "growth")
    return [table]


#: In place of a size: the line of a stage's whole range.
ALL = "all sizes"


def _measured(prepare: Callable[[int], Callable[[], float]], sizes: Sequence[int]) -> Iterator[Row]:
    smallest_mib: float | None = None
    for size in sizes:
        one = measure(prepare, size)
        again = [measure(prepare, size) for _ in range(2)] if one.cpu_seconds < 1 else []
        least = min([one, *again], key=lambda measured: measured.cpu_seconds)
        smallest_mib = least.peak_mib if smallest_mib is None else smallest_mib
        yield Row(size, least.seconds, least.cpu_seconds, least.peak_mib - smallest_mib)


def time_growth(rows: Sequence[Row]) -> str:
    """The power of processor time from the first size to the last, and that of n·log n."""
    first, last = rows[0], rows[-1]
    ratio = math.log(last.size / first.size)
    power = math.log(last.cpu_seconds / first.cpu_seconds) / ratio
    n_log_n = 1 + math.log(math.log(last.size) / math.log(first.size)) / ratio
    return f"n^{power:.2f} ({n_log_n:.2f})"


def memory_growth(rows: Sequence[Row]) -> str:
    """The power of memory from the second size on: it is counted from the first one's."""
    taken = [row for row in rows if row.memory_mib >= 1]
    if len(taken) < 2:
        return "none to speak of"
    first, last = taken[0], taken[-1]
    power = math.log(last.memory_mib / first.memory_mib) / math.log(last.size / first.size)
    return f"n^{power:.2f} from {first.size:,} on"


def _draw(found: dict[str, list[Row]], path: Path) -> None:
    """Of each stage two panels side by side: processor time, and memory."""
    panels = []
    for stage, rows in found.items():
        for unit, points in (
            ("processor s", [(row.size, row.cpu_seconds) for row in rows]),
            ("MiB", [(row.size, row.memory_mib) for row in rows if row.memory_mib >= 1]),
        ):
            sizes = [float(size) for size, _ in points]
            size, value = points[-1]
            linear = [value * each / size for each in sizes]
            lines = [
                Line(
                    Curve(stage, sizes, [Mean(v, 0.0, 1) for _, v in points]), "measured", "sharp"
                ),
                Line(
                    Curve("n", sizes, [Mean(v, 0.0, 1) for v in linear]),
                    "in proportion",
                    "plain",
                    1,
                ),
            ]
            label = f"{points[0][0]:,} to {size:,}"
            panels.append(Panel(stage, label, unit, lines, "log", "log", x_ticks=sizes))
    for drawn in draw_figure(panels, path, columns=2, kinds=["svg"]):
        print(f"   wrote {drawn}")


if __name__ == "__main__":
    main()
