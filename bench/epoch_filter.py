"""How long the filter over epochs takes for 50 000 known records, 500 of them listed.

python -m bench epoch_filter

Processor seconds of one process: following a publication, and making the estimates of all shown
records and queries from it. The first epoch sees every record for the first time; in the next few
many ways of staying and drifting are still likely, and each moves every record.
"""

from __future__ import annotations

import time

import numpy as np

from blender.publication_filter import ClientFigures, Publication, RecordFilter
from blender.record import Record

RECORDS, LISTED, OPTIN, REPORTS, EPOCHS = 50_000, 500, 125_000, 4_875_000, 8


def main() -> None:
    """Run and print."""
    rng = np.random.default_rng(1)
    records = tuple(Record(f"query {i // 3}", f"https://{i}.example") for i in range(RECORDS))
    p = 0.6 / np.log(RECORDS / 5.7) / (np.arange(RECORDS) + 5.7)
    listed = p[:LISTED]
    variance = (listed + 0.1) / REPORTS
    current = RecordFilter.start()
    for epoch in range(1, EPOCHS + 1):
        publication = Publication(
            epoch=epoch,
            records=records,
            counts=rng.poisson(OPTIN * p) + rng.integers(-1, 2, RECORDS),
            users=OPTIN,
            noise=2 / 3,
            listed=LISTED,
            clients=ClientFigures(listed + rng.normal(0, np.sqrt(variance)), variance, REPORTS),
            between_groups=0.1,
        )
        wall, cpu = time.perf_counter(), time.process_time()
        current = current.follow(publication)
        follow = time.process_time() - cpu
        shown = len(current.estimates().records)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print(
            f"epoch {epoch}: {cpu:.2f} s of processor time ({follow:.2f} s to follow), "
            f"{wall:.2f} s in all, {shown} records shown",
            flush=True,
        )


if __name__ == "__main__":
    main()
