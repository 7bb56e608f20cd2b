"""A model of the accepted entries of a service, and comparisons of its publications with it.

The model that fault tests on three brokers share: people of an epoch by the share that they are
in, or by their reports. Accepted must be published, refused must not, and what nobody was told for
certain may be either. Participants are published exactly, so the comparison is exact too.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from blendstream.streams.names import InputStream, OptinSubgroup
from blendstream.streams.releases.entries import IncompleteReason
from blendstream.streams.releases.epoch_state import Seal, Stage
from blendstream.streams.releases.optin_release import read_optin_release
from blendstream.streams.wire.estimates_document import EstimatesDocument
from tests.service.epochs import EpochService
from tests.service.released import all_entries

#: What the log holds once for each epoch.
ONCE = (
    "epoch_opened", "records_sealed", "click_graph_released", "head_list_released",
    "reports_sealed", "estimate_released",
)  # fmt: skip
WITH_HEAD_LIST = (Stage.REPORTING, Stage.REPORTS_SEALED, Stage.PUBLISHED)

#: People of an epoch by what they sent: a share of the opt-in users, or None for a report.
People = Counter[tuple[int, OptinSubgroup | None]]


@dataclass
class ModelledService:
    """The service, and everyone's fate."""

    made: EpochService
    window_s: float
    accepted: People = field(default_factory=Counter)
    #: Nobody was told for certain: it may count, once, or not.
    doubtful: People = field(default_factory=Counter)
    #: Offsets of the last accepted frames, by partition, where the test knows them.
    accepted_upto: dict[tuple[InputStream, int], dict[int, int]] = field(default_factory=dict)

    async def first_epoch(self) -> int:
        """The first epoch that anything was accepted in: on a slow machine not 0, whose window may
        be over before the jobs have started."""
        await self.made.until(lambda: self.accepted, 2 * self.window_s, "anything accepted")
        return min(epoch for epoch, _ in self.accepted)

    def once(self) -> list[tuple[str, int]]:
        """Return the log's entries that must be unique, in order."""
        found = all_entries(self.made)
        return [(entry["entry"], entry["epoch"]) for entry in found if entry["entry"] in ONCE]

    def twice(self) -> list[str]:
        """Return the log's entries that are there more than once although they must be unique."""
        return [f"{entry}: {n} times" for entry, n in Counter(self.once()).items() if n > 1]

    async def lacks_records(self, epoch: int) -> list[str]:
        """What the epoch's head list and click graph lack, or have too much, of what was accepted;
        waits for them."""
        made = self.made
        state = await made.until_stage(epoch, *WITH_HEAD_LIST, timeout_s=4 * self.window_s)
        assert state.head_list is not None
        assert state.click_graph is not None
        head_list, _ = await made.head_list(state)
        release = read_optin_release(await made.document(state.head_list.optin), head_list)
        graph = json.loads(await made.document(state.click_graph.document))
        return [
            *self._sealed_below(InputStream.OPTIN_RECORDS, epoch, state.records_sealed),
            *self._differs(epoch, OptinSubgroup.S, release.selection_users),
            *self._differs(epoch, OptinSubgroup.T, release.noisy.users),
            *self._differs(epoch, OptinSubgroup.GRAPH, graph["participants"]),
        ]

    async def lacks_reports(self, epoch: int) -> list[str]:
        """The same for the epoch's estimates, and the reports that they are made of."""
        state = await self.made.until_stage(epoch, Stage.PUBLISHED, timeout_s=4 * self.window_s)
        assert state.estimates is not None
        data = await self.made.document(state.estimates.document)
        clients = EstimatesDocument.from_bytes(data).participants.clients
        wrong = self._differs(epoch, None, clients)
        # A list without a record is published with its empty estimates: nobody is asked.
        if IncompleteReason.EMPTY_HEAD_LIST not in state.estimates.reasons:
            wrong += self._sealed_below(InputStream.CLIENT_REPORTS, epoch, state.reports_sealed)
        return wrong

    def _sealed_below(self, stem: InputStream, epoch: int, seal: Seal | None) -> list[str]:
        """Accepted frames beyond the seal. A worker that read them before may have counted them,
        and a recount would not."""
        assert seal is not None
        return [
            f"epoch {epoch}, {stem}: partition {partition} sealed at {seal.bounds[partition]}, "
            f"accepted up to {offset}"
            for partition, offset in self.accepted_upto.get((stem, epoch), {}).items()
            if offset >= seal.bounds[partition]
        ]

    def _differs(self, epoch: int, share: OptinSubgroup | None, people: int) -> list[str]:
        least = self.accepted[epoch, share]
        most = least + self.doubtful[epoch, share]
        if least <= people <= most:
            return []
        what = f"epoch {epoch}, {'reports' if share is None else share}"
        return [f"{what}: {people} published of {least} accepted and {most - least} in doubt"]


def urls_of_people(folder: Path, epochs: int = 400) -> dict[str, str]:
    """The setting that names a file with the URLs of everyone's records."""
    path = folder / "urls.tsv"
    pairs = [(epoch, n) for epoch in range(epochs) for n in range(41)]
    path.write_text(
        "".join(f"query {e} {n:03}\thttps://site-{n:03}.example/{e}\n" for e, n in pairs)
    )
    return {"click_graph__url_table_file": str(path)}


def now_ms() -> int:
    """The machine's clock, which is the brokers' too."""
    return time.time_ns() // 1_000_000
