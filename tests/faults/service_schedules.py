"""Random schedules of faults for a whole service that people send to over HTTP.

A schedule breaks servers (`breakable_servers`) and kills and pauses workers, gateways and jobs, the
latter also at the steps of a release. Schedules follow each other on one service; each epoch is
checked when it has been published for a while, the last ones by `finish`.

What must never happen: a person who was accepted and is not in the publication, or twice; a second
release of anything; an epoch published incomplete although nothing was lost; other bytes in one
place than in another.

What is *not* a failure: a person who is told to try again, or hears nothing; an epoch that is
published late, or empty because too few were accepted; a gap in the windows while no jobs could
open one; a draw that was thrown away; processes that exit and are started again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import numpy as np

from blendstream.streams.names import OptinSubgroup
from blendstream.streams.releases.entries import IncompleteReason
from blendstream.streams.releases.epoch_state import EpochState, Stage
from blendstream.streams.wire.estimates_document import EstimatesDocument
from tests.faults.breakable_servers import BreakableServers, Step, pick
from tests.faults.modelled_service import now_ms
from tests.faults.replicated_service import ReplicatedService, replicated_service
from tests.service.processes import Part
from tests.service.released import STEPS, same_bytes_everywhere

#: The steps of a release and of a seal at which jobs are killed or paused.
JOB_STEPS = (
    *(f"{kind}.{step}" for kind in ("click-graphs", "head-lists", "estimates") for step in STEPS),
    "keeper.marked",
)
#: What no fault excuses, since nothing was lost.
INEXCUSABLE = {
    IncompleteReason.RECORDS_LOST,
    IncompleteReason.NOT_ALL_COUNTED,
    IncompleteReason.COMMIT_REFUSED,
    IncompleteReason.DRAW_FAILED,
    IncompleteReason.JOB_FAILED,
}
#: After this time nobody sends into an epoch that is over, and every answer has come.
SETTLED_MS = 8_000
#: With room for a machine that does ten other things.
ANSWERED_WITHIN_S = 300.0
PUBLISHED_WITHIN_S = 400.0


class ServiceWorld:
    """A running service and the steps that break and mend it.

    `spare_oldest`: the first process of each kind is never killed, so that its memory can be
    watched for as long as the service runs.
    """

    def __init__(
        self, running: ReplicatedService, servers: BreakableServers, *, spare_oldest: bool = False
    ) -> None:
        self.running, self.servers = running, servers
        self.steps: list[str] = []
        self.checked: dict[int, EpochState] = {}
        self._spared = int(spare_oldest)
        self._paused: set[Part] = set()
        self._resuming: set[asyncio.Task[None]] = set()

    async def run(self, seed: int) -> None:
        """Run one schedule, and check that everything published by its end is right."""
        self.rng = self.servers.rng = np.random.default_rng(seed)
        self.steps = []
        steps: list[tuple[float, Step]] = [
            (1, self.kill_a_worker), (1, self.pause_a_worker), (1, self.kill_a_gateway),
            (1, self.pause_a_gateway), (1, self.kill_jobs), (1, self.pause_jobs),
            (3, self.disturb_jobs_at_a_step), *self.servers.steps(),
        ]  # fmt: skip
        for _ in range(int(self.rng.integers(3, 7))):
            step = pick(self.rng, steps)
            self.steps.append(step.__name__)
            await step()
            await asyncio.sleep(float(self.rng.uniform(0, 2)))
        await self.mend()
        await self.check()

    # --- processes ------------------------------------------------------------------------------

    async def kill_a_worker(self) -> None:
        self._kill("worker")

    async def kill_a_gateway(self) -> None:
        self._kill("gateway")

    async def kill_jobs(self) -> None:
        self._kill("jobs")

    async def pause_a_worker(self) -> None:
        self._pause("worker")

    async def pause_a_gateway(self) -> None:
        self._pause("gateway")

    async def pause_jobs(self) -> None:
        self._pause("jobs")

    def _kill(self, kind: str) -> None:
        if parts := self._whole(kind)[self._spared :]:
            parts[self.rng.integers(len(parts))].kill()

    def _pause(self, kind: str) -> None:
        """For longer than a lease or a session lasts, or not as long."""
        if parts := self._whole(kind):
            part = parts[self.rng.integers(len(parts))]
            part.pause()
            self._resume_later(part, self.rng.uniform(0.3, 12))

    def _whole(self, kind: str) -> list[Part]:
        live = self.running.live(kind)
        return [part for part in live if part.running and part not in self._paused]

    def _resume_later(self, part: Part, after_s: float) -> None:
        self._paused.add(part)

        async def later() -> None:
            await asyncio.sleep(float(after_s))
            part.resume()
            self._paused.discard(part)

        self._resuming.add(asyncio.create_task(later()))

    async def disturb_jobs_at_a_step(self) -> None:
        """Order the next process at this step, if one arrives before the schedule ends."""
        step = JOB_STEPS[self.rng.integers(len(JOB_STEPS))]
        kill = not self._spared and self.rng.random() < 0.5
        after_s = float(self.rng.uniform(0.3, 12))
        self.steps[-1] += f"({step} {'kill' if kill else 'pause'})"
        self.running.made.order(step, "kill" if kill else "pause")
        if not kill:
            self._resuming.add(asyncio.create_task(self._resume_taker(after_s)))

    async def _resume_taker(self, after_s: float) -> None:
        made = self.running.made
        while True:
            waits = made.order_waits
            for part in self.running.live("jobs"):
                if made.took_order(part):
                    self._paused.add(part)
                    await asyncio.sleep(after_s)
                    part.resume()
                    self._paused.discard(part)
                    return
            if not waits:
                return
            await asyncio.sleep(0.1)

    async def mend(self) -> None:
        """Everything runs; an order that nobody took is taken back."""
        self.running.made.take_order_back()
        waiting, self._resuming = self._resuming, set()
        await asyncio.gather(*waiting)
        await self.servers.mend()

    # --- what must hold -------------------------------------------------------------------------

    async def check(self) -> None:
        """Every epoch that was published long enough ago, and not checked before."""
        made = self.running.made
        epochs = (await made.until(self._log_state, ANSWERED_WITHIN_S, "an answer of Kafka")).epochs
        for epoch, state in sorted(epochs.items()):
            settled = state.over_at_ms is not None and now_ms() > state.over_at_ms + SETTLED_MS
            if epoch not in self.checked and settled:
                await self._check(epoch, state)

    async def _log_state(self) -> object:
        return await self.running.made.log_state()

    async def _check(self, epoch: int, state: EpochState) -> None:
        made = self.running.made
        wrong = await made.until(
            lambda: self._wrong_with(epoch, state), ANSWERED_WITHIN_S, f"what epoch {epoch} holds"
        )
        assert wrong == ["nothing"], "\n".join([made.logs(), *wrong])
        if state.estimates is not None and state.head_list is not None:
            await made.until(
                lambda: self._same_bytes(epoch), ANSWERED_WITHIN_S, f"epoch {epoch} in its topics"
            )
        self.checked[epoch] = state

    async def _same_bytes(self, epoch: int) -> bool:
        with contextlib.suppress(KeyError):  # Published in a moment, by who takes over.
            await same_bytes_everywhere(self.running.made, range(epoch, epoch + 1))
            return True
        return False

    async def _wrong_with(self, epoch: int, state: EpochState) -> list[str]:
        """Return the faults of a publication; `["nothing"]` if there is none."""
        running = self.running
        assert state.stage is Stage.PUBLISHED, f"epoch {epoch}: {state.abandoned}"
        releases = [state.estimates, state.click_graph]
        reasons = {reason for release in releases if release for reason in release.reasons}
        reasons |= set(state.head_list.reasons) if state.head_list else set()
        # Whether too few truly were too few is seen below.
        wrong = [f"epoch {epoch}: {reason}" for reason in reasons & INEXCUSABLE]
        if state.head_list is not None:
            wrong += await running.lacks_records(epoch)
            wrong += await running.lacks_reports(epoch)
        else:  # Too few, or too late to report: what was counted is in the empty publication.
            assert state.estimates is not None
            data = await running.made.document(state.estimates.document)
            people = EstimatesDocument.from_bytes(data).participants
            wrong += running._differs(epoch, OptinSubgroup.S, people.selection)
            wrong += running._differs(epoch, OptinSubgroup.T, people.estimation)
            wrong += running._differs(epoch, None, people.clients)
        return wrong or ["nothing"]

    async def finish(self) -> None:
        """Nobody sends any more: every epoch that anyone was accepted in is published and right."""
        running = self.running
        last = await running.stop_people()
        await running.made.until(
            lambda: self._over(last), PUBLISHED_WITHIN_S, f"epoch {last} published"
        )
        await asyncio.sleep(SETTLED_MS / 1000)
        await self.check()
        accepted = {epoch for epoch, _ in running.accepted}
        assert accepted <= self.checked.keys(), f"never published: {accepted - self.checked.keys()}"
        assert not running.twice(), running.twice()

    async def _over(self, last: int) -> bool:
        epochs = (await self.running.made.log_state()).epochs
        return all(state.stage.over for epoch, state in epochs.items() if epoch <= last)


@contextlib.asynccontextmanager
async def service_world(
    servers: BreakableServers,
    folder: Path,
    *,
    spare_oldest: bool = False,
    settings: Mapping[str, str] | None = None,
) -> AsyncIterator[ServiceWorld]:
    """A whole service on these servers; on leaving without an error, all of it was right."""
    more = {**servers.settings, **(settings or {})}
    async with replicated_service(servers.kafka, servers.redis, folder, **more) as running:
        world = ServiceWorld(running, servers, spare_oldest=spare_oldest)
        yield world
        await world.finish()
