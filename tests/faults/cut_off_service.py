"""A whole service on three brokers, of which the one that leads the release log is cut off.

Jobs, workers and their clients are left running: they go on reaching the broker that was cut off,
and it goes on answering from the copy it had. The test itself asks the others.

What the test sent and Kafka acknowledged in time was accepted, and must be published.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from blendstream.agents.local import LocalRedis
from blendstream.streams.errors import StoreUnavailable
from blendstream.streams.names import InputStream, OptinSubgroup
from blendstream.streams.releases.epoch_state import EpochState, Stage
from tests.faults.modelled_service import ModelledService, People, now_ms, urls_of_people
from tests.faults.peer_links import LinkedCluster
from tests.service.epochs import epoch_service
from tests.service.settings import GRAPHS, REPLICATED

#: Every cut begins within seconds of a window's begin. Others lead 10 to 20 seconds later; what
#: they accept before the window's end is sealed while the cut lasts.
WINDOW_S = 30
CUT_S = 45.0
NEW_LEADERS_WITHIN_S = 40.0
#: So many send at once, every other second, but not shortly before they would be late.
PEOPLE = 300
MARGIN_MS = 3_000

THREE_BROKERS = {
    **REPLICATED,
    "kafka__request_timeout_s": "5",
    "epoch__window_s": str(WINDOW_S),
    "epoch__grace_s": "3",
    "epoch__allowed_skew_s": "0.1",
    # No epoch goes on without what was accepted, however long a broker is away.
    "epoch__counting_deadline_s": "600",
    "gateway__delivery_deadline_s": "0.9",
    "gateway__linger_s": "0.01",
    # Longer than jobs wait before they try again, as in production: who has a lease keeps it, and
    # goes on with the clients that know the old leader.
    "jobs__lease_s": "15",
    "jobs__lease_renew_s": "1",
    "worker__session_timeout_s": "6",
    **GRAPHS,
}


@dataclass(kw_only=True)
class CutOffService(ModelledService):
    """The service, its brokers, and the accepted entries.

    In doubt is what was acknowledged so late that it may count or not; only where the machine is
    very busy.
    """

    cluster: LinkedCluster
    #: Of what was accepted: while a broker was cut off.
    accepted_while_cut: People = field(default_factory=Counter)
    _cut_at_s: float = 0.0
    _rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(21))
    #: Held while something is sent, and while a cut has left partitions without a leader.
    _sending: asyncio.Lock = field(default_factory=asyncio.Lock)

    # --- what people do -------------------------------------------------------------------------

    async def feed(self) -> None:
        """Send records into every window and reports on every head list, until cancelled."""
        while True:
            async with self._sending:
                with contextlib.suppress(StoreUnavailable):
                    for state in list((await self.made.log_state()).epochs.values()):
                        await self._send_records(state)
                        await self._send_reports(state)
            await asyncio.sleep(2.0)

    async def _send_records(self, state: EpochState) -> None:
        epoch, sent = state.epoch, self.made.sent
        begin, end = state.parameters.window_start_ms, state.parameters.window_end_ms
        if begin <= now_ms() < end - MARGIN_MS:
            before = {share: sent.get((epoch, share), Counter()).total() for share in OptinSubgroup}
            await asyncio.to_thread(self.made.send_optin, state, PEOPLE, self._rng)
            new = {share: sent.get((epoch, share), Counter()).total() for share in OptinSubgroup}
            people = Counter({(epoch, share): new[share] - before[share] for share in new})
            self._note(InputStream.OPTIN_RECORDS, epoch, people, end)

    async def _send_reports(self, state: EpochState) -> None:
        if state.stage is not Stage.REPORTING or state.head_list is None:
            return
        end = state.head_list.reports_until_ms
        head_list, _ = await self.made.head_list(state)
        if now_ms() < end - MARGIN_MS:
            await asyncio.to_thread(self.made.send_reports, state, head_list, PEOPLE, self._rng)
            self._note(
                InputStream.CLIENT_REPORTS, state.epoch, Counter({(state.epoch, None): PEOPLE}), end
            )

    def _note(self, stem: InputStream, epoch: int, people: People, end_ms: int) -> None:
        """All of them were acknowledged just now."""
        if now_ms() >= end_ms:
            self.doubtful += people
            return
        self.accepted += people
        self.accepted_upto[stem, epoch] = dict(self.made.last_offsets[stem, epoch])
        if self.cluster.cut_off is not None:
            self.accepted_while_cut += people

    # --- the cut --------------------------------------------------------------------------------

    async def cut_off_at(self, step: str) -> None:
        """Cut the release log's leader off while a job is at this step, and let that job go on.

        On return other brokers lead, and accept what is sent from now on.
        """
        made, cluster = self.made, self.cluster
        victim = cluster.view(1).partitions[made.topics.releases.name, 0].leader
        made.order(step, "pause")
        job = await made.disturbed(2 * WINDOW_S + 30)
        async with self._sending:
            cluster.cut(victim)
            self._cut_at_s = time.monotonic()
            job.resume()
            await made.until(cluster.others_lead, NEW_LEADERS_WITHIN_S, f"others than {victim}")
            await made.look_from(f"kafka://{cluster.bootstrap_of(cluster.others)}")
        still = cluster.view(victim).partitions[made.topics.releases.name, 0]
        assert still.leader == victim, "cut off, it must believe that it leads: else this is easy"

    async def heal(self) -> None:
        """End the cut when it has lasted long enough."""
        await asyncio.sleep(max(0.0, self._cut_at_s + CUT_S - time.monotonic()))
        self.cluster.heal()
        await asyncio.to_thread(self.cluster.wait_until_whole)


@contextlib.asynccontextmanager
async def service_to_cut_off(
    cluster: LinkedCluster, redis: LocalRedis, folder: Path
) -> AsyncIterator[CutOffService]:
    """The service on three brokers, with people who send; the first window is a short one."""
    settings = THREE_BROKERS | urls_of_people(folder)
    async with epoch_service(cluster.url, redis.url, partitions=3, **settings) as made:
        # Long enough that the jobs have started and people have sent.
        made.change(epoch__origin_unix_s=str(int(time.time()) - WINDOW_S + 18))
        made.start_worker()
        made.start_jobs()
        made.start_jobs()
        running = CutOffService(made=made, window_s=WINDOW_S, cluster=cluster)
        feeding = asyncio.create_task(running.feed())
        try:
            yield running
        finally:
            feeding.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await feeding
