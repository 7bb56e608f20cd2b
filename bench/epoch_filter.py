"""Time of the filter over epochs for 50 000 known records, 500 of them listed.

python -m bench epoch_filter

Processor seconds of one process: processing a publication, and computing the estimates of all shown
records and queries from it. In the first epoch every record is new; in the next few many
combinations of staying and drifting are still likely, and each updates every record.

Then the worst case of one publication: 30 are remembered, and the 31st moves τ to another point of
its grid, so that all of them are processed again. A service does this when it publishes.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from bench._page import Table
from blendstream.blender.over_time.groups_over_time import pooled_difference
from blendstream.blender.over_time.publication_filter import (
    ClientFigures,
    Publication,
    RecordFilter,
)
from blendstream.blender.values.record import Record
from blendstream.streams.releases.filtered_estimates import FilterMemory

TITLE = "The filter over epochs"
TEXT = """
The processor time that one process needs to filter a publication of 50 000 known records, 500 of
them listed, and to compute the estimates of all shown records and queries. The second epoch takes
longest, because many modes (combinations of retention and drift) are still likely then.

The last rows are the worst case of one publication. If τ moves to another point of its grid, which
is rare after the first epochs, the filter processes all remembered publications again.
"""

RECORDS, LISTED, OPTIN, REPORTS, EPOCHS = 50_000, 500, 125_000, 4_875_000, 8
#: The most that are remembered (`memory_start`).
REMEMBERED = 31


def main() -> list[Table]:
    """Follow some publications, then all that are remembered."""
    table = Table(["work", "processor", "of it to follow", "wall clock", "records shown"])
    publications = _publications()
    current = RecordFilter.start()
    for publication in publications[:EPOCHS]:
        wall, cpu = time.perf_counter(), time.process_time()
        current = current.follow(replace(publication, between_groups=0.1))
        follow = time.process_time() - cpu
        shown = len(current.estimates().records)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        epoch = f"epoch {publication.epoch}"
        table.add(epoch, f"{cpu:.2f} s", f"{follow:.2f} s", f"{wall:.2f} s", f"{shown:,}")
    # As if all but the last had been followed with another τ: what is followed again is the same.
    before = FilterMemory(tuple(publications[:-1]), between_groups=-1.0)
    wall, cpu = time.perf_counter(), time.process_time()
    after = before.follow(publications[-1], clients_rotate=False)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    table.add(f"all {REMEMBERED} again", f"{cpu:.2f} s", "", f"{wall:.2f} s", "")
    cpu = time.process_time()
    assert pooled_difference(publications) == after.between_groups
    table.add("of which τ", f"{time.process_time() - cpu:.2f} s", "", "", "")
    return [table]


def _publications() -> list[Publication]:
    rng = np.random.default_rng(1)
    records = tuple(Record(f"query {i // 3}", f"https://{i}.example") for i in range(RECORDS))
    p = 0.6 / np.log(RECORDS / 5.7) / (np.arange(RECORDS) + 5.7)
    listed = p[:LISTED]
    variance = (listed + 0.1) / REPORTS
    return [
        Publication(
            epoch=epoch,
            records=records,
            counts=rng.poisson(OPTIN * p) + rng.integers(-1, 2, RECORDS),
            users=OPTIN,
            noise=2 / 3,
            listed=LISTED,
            clients=ClientFigures(listed + rng.normal(0, np.sqrt(variance)), variance, REPORTS),
        )
        for epoch in range(1, REMEMBERED + 1)
    ]


if __name__ == "__main__":
    main()
