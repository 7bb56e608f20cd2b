"""The two settings in which `sharp` is compared with `paper`, and their population.

The population was fixed without looking at `sharp`, by figures of the *paper's* algorithm on a Zipf
population that were stated before `sharp` was written (ε = 4; 657 000 people, 5 % opt-in, M = 50,
δ = 1e-5, and 5 000 000, 2.5 %, M = 500, δ = 1e-7):

    figure                                                  stated              here
    records that pass the paper's threshold                 361 and 1113        362 and 1113
    people who hold one of 50 records, ranked by S          15.9 %              15.9 %
    such people, ranked by T, and their queries             14.4 % and 16.9 %   14.2 % and 16.9 %
    paper's L1 over the M records                           0.0250 and 0.101    0.0257 and 0.101
    L1 without privacy in the first                         0.0026              0.0026

The probability of queries is proportional to (rank + offset)^−s, that of the URLs of each to
rank^−a, ten per query. For any a, the first two lines (three figures) determine s, offset and the
number of queries. The proportion of the listed queries then requires a near 3 (0.169; a = 2 gives
0.200, a = 1 gives 0.232); with a = 3 they are s = 0.997, offset = 5.6 and 573 000 queries, rounded
below. The last two lines are checks; nothing was fitted to them. `python -m bench
sharp_population` measures all of them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from blendstream.evaluation.populations import AOL, STEADY, YANDEX, Setting, TablePeople
from blendstream.evaluation.tables import read_table

PEOPLE = STEADY

SETTINGS = {
    "aol": replace(AOL, people=PEOPLE, label="Zipf"),
    "yandex": replace(YANDEX, people=PEOPLE, label="Zipf"),
}


def settings_on_table(path: Path, columns: str) -> dict[str, Setting]:
    """Both settings with the people of a table of (query, url, count)."""
    people = TablePeople(*read_table(path, [c.strip() for c in columns.split(",")]))
    label = path.name.split(".")[0]
    return {name: replace(s, people=people, label=label) for name, s in SETTINGS.items()}
