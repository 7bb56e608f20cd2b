"""The populations of the evaluation: shaped like the paper's two data sets, or read from a file.

The paper's search logs are not public, so two generators replace them:

- A proportion of the people (`common`) holds a query drawn ∝ rank^−1.05, and clicks one of ten URLs
  ∝ rank^−2. The first exponent is that of a public table of the same kind (votes by subreddit and
  site).
- The others hold queries that hardly anyone shares.

The number of different queries is the paper's (abstract). `common` is fitted to the paper's
*head-list sizes*, its only statements about the shape:

- first data set: lists reach 50 records from 4.5 % opt-in on at ε = 4, and from ε = 3 on at 5 %
  (Section 4.2.3), so about 3 people in 10 000 hold the fiftieth record;
- second: 500 and more at 2.5 % and ε = 4, while at ε = 1 the two largest lists are not reached.

Experiments over many epochs use a third generator (`STEADY`), in which many more records have
enough holders to be listed: settings A and B, which differ in size.

Promises: everyone draws independently from `probability`, which is the truth of every comparison. A
row of a table stands for `count` people with one record each. Only a search log's users are drawn
without replacement (`evaluation.log_people`).

Decision: docs/decisions/0080-populations-of-the-evaluation.md
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import numpy as np

from blendstream.blender.profiles import PROFILES, SELECTION_SHARES
from blendstream.blender.values.arrays import IntArray
from blendstream.blender.values.errors import ParameterError, require
from blendstream.blender.values.record import Record
from blendstream.evaluation.distributions import People, TablePeople, ZipfPeople
from blendstream.evaluation.log_people import LogPeople
from blendstream.evaluation.search_logs import LogColumns, LogTally, draw_records_of_users
from blendstream.evaluation.tables import read_table, table_name

__all__ = [
    "AOL",
    "SETTING_A",
    "SETTING_B",
    "STEADY",
    "YANDEX",
    "People",
    "Setting",
    "TablePeople",
    "ZipfPeople",
    "log_setting",
    "table_setting",
]


@dataclass(frozen=True, slots=True)
class Setting:
    """A population with the sizes and privacy parameters of its experiments.

    `list_sizes` are the head-list sizes (M) of the figures; `list_size` is the usual one. An axis
    of a figure replaces the parameter that it shows. `source` distinguishes two populations of one
    name.
    Symbols: ε = epsilon, δ = delta, f_O = selection_share (None: the profile's own),
    f_C = query_budget_share, m_O = records_per_optin_user, m_C = records_per_client.
    """

    name: str
    label: str
    people: People
    users: int
    optin_share: float
    delta: float
    list_size: int
    list_sizes: tuple[int, ...]
    is_table: bool = False
    source: str = "generated"
    epsilon: float = 4.0
    selection_share: float | None = None
    query_budget_share: float = 0.85
    records_per_optin_user: int = 1
    records_per_client: int = 1
    profiles: tuple[str, ...] = PROFILES

    @property
    def title(self) -> str:
        """Return the label with the number of people, as figures and tables show it."""
        return f"{self.label}, {_short(self.users)} people"

    @property
    def is_large(self) -> bool:
        """Return True if a point takes so long to compute that experiments repeat it less often."""
        return self.users > 2_000_000

    @property
    def coarse(self) -> bool:
        """Return True if axes have fewer points for this population."""
        return self.is_large or self.is_table

    @property
    def is_log(self) -> bool:
        """Return True if the people are the users of a search log."""
        return isinstance(self.people, LogPeople)

    def selection_share_of(self, profile: str) -> float:
        """Return f_O: the proportion of the opt-in users who build the head list."""
        own = self.selection_share
        return SELECTION_SHARES[profile] if own is None else own

    def scaled(self, scale: float, seed: int = 1) -> Setting:
        """Return this setting with `scale` times the users; for a search log at most all."""
        if isinstance(self.people, LogPeople):
            require(scale <= 1, f"scale must be at most 1 for a log, got {scale}")
            users = max(1, round(self.people.users * scale))
            fewer = self.people.sample(users, np.random.default_rng([seed, 0x5A]))
            return replace(self, people=fewer, users=users)
        return replace(self, users=max(1_000, round(self.users * scale)))


AOL = Setting(
    name="aol",
    label="AOL-shaped",
    people=ZipfPeople(queries=4_800_000, common=0.2),
    users=657_000,
    optin_share=0.05,
    delta=1e-5,
    list_size=50,
    list_sizes=(10, 25, 50),
)

YANDEX = Setting(
    name="yandex",
    label="Yandex-shaped",
    people=ZipfPeople(queries=13_200_000, common=0.7),
    users=5_000_000,
    optin_share=0.025,
    delta=1e-7,
    list_size=500,
    list_sizes=(10, 100, 250, 500),
)

#: Fitted to figures of the paper's algorithm that were fixed before ours existed
#: (`bench/_sharp_settings.py` has them), never to results of ours.
STEADY = ZipfPeople(
    queries=600_000, query_exponent=1.0, offset=5.7, urls=10, url_exponent=3.0, common=1.0
)

SETTING_A = replace(AOL, name="setting-a", label="Setting A", people=STEADY)
SETTING_B = replace(YANDEX, name="setting-b", label="Setting B", people=STEADY)


def table_setting(path: Path, columns: Sequence[str], *, users: int | None = None) -> Setting:
    """Make a setting of a table's people, with the parameters of the first data set.

    The population is `users` draws from the table: by default as many as the first data set has
    people, or the table's total if that is less. The table's counts need not be of people; they may
    be votes or births.
    """
    name = _name_of(path)
    records, counts = read_table(path, columns)
    total = int(counts.sum())
    chosen = users or min(AOL.users, total)
    return Setting(
        name=name,
        label=name,
        people=TablePeople(records, counts),
        users=chosen,
        optin_share=AOL.optin_share,
        delta=AOL.delta,
        list_size=AOL.list_size,
        list_sizes=AOL.list_sizes,
        is_table=True,
        source=f"columns {','.join(columns)}, sha256 {_digest(records, counts)}",
    )


def log_setting(
    path: Path, columns: LogColumns | None = None, *, records_per_user: int = 1, seed: int = 1
) -> tuple[Setting, LogTally]:
    """Read a log's users under the first data set's parameters, and count the log's rows."""
    name = _name_of(path)
    log = draw_records_of_users(path, columns, records_per_user=records_per_user, seed=seed)
    people = LogPeople.of(log.texts)
    setting = replace(
        AOL,
        name=name,
        label=name,
        people=people,
        users=people.users,
        source=f"log, m_O {records_per_user}, sha256 {people.digest()}",
    )
    return setting, log.tally


def _name_of(path: Path) -> str:
    name = table_name(path)
    if name in (s.name for s in (AOL, YANDEX, SETTING_A, SETTING_B)):
        raise ParameterError(
            f"a file cannot be called {name}, which is the name of a generated population; "
            f"rename {path}"
        )
    return name


def _digest(records: Sequence[Record], counts: IntArray) -> str:
    """Hash the parsed rows, so that a table compressed again keeps its digest."""
    digest = sha256()
    for record, count in zip(records, counts.tolist(), strict=True):
        digest.update(f"{record.query}\t{record.url}\t{count}\n".encode())
    return digest.hexdigest()[:16]


def _short(number: int) -> str:
    return f"{number / 1e6:g} million" if number >= 1_000_000 else f"{number:,}".replace(",", " ")
