"""A whole service as in production, on one machine: three brokers, replicated Redis, two of each
process, people who send over HTTP, and a supervisor that restarts what exits.

    async with replicated_service(cluster, redis, folder) as running:
        outcome = await running.disturb("leader killed", at="head-lists.drawn")
        await running.assert_right()

`disturb` returns the seconds until the service accepts, counts and releases again. `assert_right`
compares everything that was ever published with everyone's fate. Between them a test may do what it
likes, as often as it likes.
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

from blendstream.agents.local.replicated_redis import LocalRedisCluster, LocalSentinels
from blendstream.blender.values.errors import BlenderError
from blendstream.streams.names import OptinSubgroup
from blendstream.streams.releases.entries import IncompleteReason
from blendstream.streams.releases.epoch_state import EpochState, Stage
from tests.faults.cut_off_service import THREE_BROKERS
from tests.faults.modelled_service import ModelledService, now_ms, urls_of_people
from tests.faults.node_faults import FAULTS
from tests.faults.peer_links import LinkedCluster
from tests.faults.people_over_http import PeopleOverHttp
from tests.faults.recovery_times import Recovery, RecoveryTimes
from tests.service.epochs import epoch_service
from tests.service.processes import Part
from tests.service.released import same_bytes_everywhere
from tests.service.waiting import until

WINDOW_S = 20
#: How long all processes may take to start, and a service to be itself again, on a machine that
#: does ten other things.
STARTED_WITHIN_S = 300.0
RECOVERED_WITHIN_S = 150.0
#: A fault shows within this time, or never.
SHOWS_WITHIN_S = 5.0
#: The moments of an epoch at which a fault is worst: while it is sealed, drawn, committed.
MOMENTS = {
    "under load": None,
    "sealing": "keeper.marked",
    "drawing": "head-lists.drawn",
    "commit": "head-lists.sent",
}
#: With fewer people than this, settings say, nothing is published of them.
FEW = 20
KINDS = ("worker", "jobs", "gateway")

Replicated = LocalRedisCluster | LocalSentinels


@dataclass(kw_only=True)
class ReplicatedService(ModelledService):
    """The service and all that may be done to it."""

    cluster: LinkedCluster
    redis: Replicated
    people: PeopleOverHttp = field(init=False)
    times: RecoveryTimes = field(init=False)
    #: How often each kind of process ended by itself and was started again.
    restarts: Counter[str] = field(default_factory=Counter)
    _epochs: dict[int, EpochState] = field(default_factory=dict)
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _live: dict[str, list[Part]] = field(default_factory=dict)
    _ahead_ms: int = 0
    _look_from: str | None = None

    # --- processes ------------------------------------------------------------------------------

    def start(self, kind: str) -> Part:
        """One more worker, jobs or gateway."""
        made = self.made
        part = {
            "worker": made.start_worker,
            "jobs": made.start_jobs,
            "gateway": made.start_gateway,
        }[kind]()
        self._live.setdefault(kind, []).append(part)
        return part

    def pick(self, kind: str) -> Part:
        """One that runs: the one that has run longest."""
        return next(part for part in self._live[kind] if part.running)

    def live(self, kind: str) -> list[Part]:
        """Those of a kind that run, or have only just ended; the oldest first."""
        return list(self._live.get(kind, ()))

    def gateway_urls(self) -> list[str]:
        return [part.url for part in self._live.get("gateway", ()) if part.running]

    async def supervise(self) -> None:
        """Start another for each that ended, as an operator's supervisor does."""
        while True:
            for kind, parts in self._live.items():
                for part in [part for part in parts if not part.running]:
                    parts.remove(part)
                    self.restarts[kind] += 1
                    self.start(kind)
            await asyncio.sleep(0.5)

    async def follow_log(self) -> None:
        """Keep the newest state of every epoch, and every head list."""
        while True:
            with contextlib.suppress(BlenderError):
                if self._look_from is not None:
                    url, self._look_from = self._look_from, None
                    await self.made.look_from(url)
                self._epochs = dict((await self.made.log_state()).epochs)
                for epoch, state in self._epochs.items():
                    if state.stage is Stage.REPORTING and epoch not in self.people.head_lists:
                        self.people.head_lists[epoch] = await self.made.head_list(state)
            await asyncio.sleep(0.2)

    def look_from(self, kafka: str) -> None:
        """Let the test's own clients ask these brokers from now on, by new connections."""
        self._look_from = kafka

    async def counts_more(self, seconds: float) -> None:
        """Wait until Redis has counted something new, and for so long."""
        begun, seen = time.monotonic(), self.times.counted[-1][1]
        await self.made.until(
            lambda: self.times.counted[-1][1] != seen and time.monotonic() > begun + seconds,
            30,
            "anything counted",
        )

    # --- faults ---------------------------------------------------------------------------------

    async def disturb(self, *faults: str, at: str | None = None) -> Recovery:
        """Faults of `node_faults.FAULTS`, all at once, while a job is at this step.

        Waits for the service to recover, then for the nodes.
        """
        held: Part | None = None
        if at is not None:
            self.made.order(at, "pause")
            held = await self.made.disturbed(RECOVERED_WITHIN_S)

        def go_on() -> None:
            if held is not None:
                held.resume()

        async with contextlib.AsyncExitStack() as lasting:
            *first, last = (FAULTS[name] for name in faults)
            for fault in first:
                await lasting.enter_async_context(fault(self, lambda: None))
            fault_s = await lasting.enter_async_context(last(self, go_on))
            return await self._recovered(fault_s)

    async def _recovered(self, fault_s: float) -> Recovery:
        def recovered() -> Recovery | None:
            recovery = self.times.since(fault_s)
            passed = time.monotonic() - fault_s
            over = (recovery.whole and passed > SHOWS_WITHIN_S) or passed > RECOVERED_WITHIN_S
            return recovery if over else None

        found: Recovery = await until(recovered, "recovery", 2 * RECOVERED_WITHIN_S, every_s=0.25)
        return found

    # --- what must hold -------------------------------------------------------------------------

    async def stop_people(self) -> int:
        """Nobody sends any more; the last epoch that anyone was accepted in."""
        self._stop.set()
        await self.made.until(lambda: self.people.done, 60, "the last answers")
        return max(epoch for epoch, _ in self.accepted)

    async def assert_right(self) -> None:
        """Accepted = counted, one release each, nothing incomplete, the same bytes everywhere."""
        last = await self.stop_people()
        first = min(epoch for epoch, _ in self.accepted)
        await self._finish(last)
        wrong = self.twice()
        for epoch in range(first, last + 1):
            wrong += await self._wrong_with(epoch)
        # First, and last: a log of a run may be cut at either end.
        assert not wrong, "\n".join([*wrong, self.made.logs(), *wrong])

        async def all_out() -> bool:
            out = await self.made.published(self.made.topics.estimates.name)
            return set(range(first, last + 1)) <= out.keys()

        await self.made.until(all_out, 30, "the estimates in their topic")
        await same_bytes_everywhere(self.made, range(first, last + 1))

    async def _finish(self, last: int) -> None:
        """Let the jobs' time run ahead until this epoch is over; nobody sends any more.

        To the first thing that any of them waits for, and not while one only waits for its work:
        else the epoch after it would be late, by no fault of the service.
        """

        async def over() -> bool:
            log_state = await self.made.log_state()
            open_now = [
                state
                for epoch, state in sorted(log_state.epochs.items())
                if epoch <= last and not state.stage.over
            ]
            if not open_now:
                return True
            # An epoch whose reports are sealed is next when those before it are out.
            waiting = [state for state in open_now if state.stage is not Stage.REPORTS_SEALED]
            ahead_ms = min(map(_due_ms, waiting), default=0) - now_ms() + 200
            if ahead_ms > self._ahead_ms:
                self._ahead_ms = ahead_ms
                self.made.run_ahead(ahead_ms)
            return False

        await self.made.until(over, RECOVERED_WITHIN_S, f"epoch {last} published")

    async def _wrong_with(self, epoch: int) -> list[str]:
        state = (await self.made.log_state()).epochs.get(epoch)
        if state is None:
            return []  # A gap in the windows while nobody led: nothing was accepted in it.
        reasons = {
            reason
            for release in (state.head_list, state.click_graph, state.estimates)
            if release is not None
            for reason in release.reasons
        }
        wrong = [f"epoch {epoch}: {why}" for why in reasons - self._excused(state)]
        if any(n for (of, _), n in self.accepted.items() if of == epoch):
            wrong += await self.lacks_records(epoch)
            wrong += await self.lacks_reports(epoch)
        return wrong

    def _excused(self, state: EpochState) -> set[IncompleteReason]:
        """Return the reasons of an epoch that is empty or incomplete although nothing was lost."""
        reports = self.accepted[state.epoch, None]
        users = min(self.accepted[state.epoch, share] for share in OptinSubgroup)
        excused = {IncompleteReason.TOO_FEW_REPORTS} if reports < FEW else set()
        if users < 2 * FEW:
            excused |= {IncompleteReason.TOO_FEW_OPTIN_USERS, IncompleteReason.EMPTY_HEAD_LIST}
        late_ms = state.parameters.head_list_deadline_ms
        if state.head_list is not None and state.head_list.at_ms >= late_ms:
            excused |= {IncompleteReason.HEAD_LIST_TOO_LATE, IncompleteReason.TOO_FEW_REPORTS}
        return excused


def _due_ms(state: EpochState) -> int:
    """Until when this epoch waits for the clock; 0 if it waits for its head list."""
    if state.stage is Stage.COLLECTING:
        return state.parameters.records_sealable_at_ms
    if state.stage is Stage.REPORTING and state.head_list is not None:
        plan = state.parameters.plan
        return state.head_list.reports_until_ms + plan.grace_ms + plan.skew_ms
    return 0


@contextlib.asynccontextmanager
async def replicated_service(
    cluster: LinkedCluster,
    redis: Replicated,
    folder: Path,
    *,
    seed: int = 19,
    each: int = 2,
    window_s: int = WINDOW_S,
    **more: str,
) -> AsyncIterator[ReplicatedService]:
    """Everything running, and people sending. `each`: how many processes of a kind."""
    settings = THREE_BROKERS | {
        "epoch__window_s": str(window_s),
        **urls_of_people(folder),
        # As long as the grace allows: else a busy machine alone makes gateways answer 503.
        "gateway__delivery_deadline_s": "2.5",
        **more,
    }
    async with epoch_service(cluster.url, redis.url, partitions=3, **settings) as made:
        # The first window ends when the processes have started and people have sent.
        made.change(epoch__origin_unix_s=str(int(time.time()) - window_s + min(14, window_s)))
        running = ReplicatedService(made=made, window_s=window_s, cluster=cluster, redis=redis)
        running.people = PeopleOverHttp(
            running,
            made.token,
            running.gateway_urls,
            np.random.default_rng(seed),
            lambda: list(running._epochs.values()),
        )
        running.times = RecoveryTimes(made, lambda: running.people.rounds, lambda: running._epochs)
        for kind in KINDS:
            for _ in range(each):
                running.start(kind)
        tasks = [
            asyncio.create_task(work)
            for work in (
                running.follow_log(),
                running.supervise(),
                running.times.watch(),
                running.people.feed(running._stop),
            )
        ]
        try:
            await _all_at_work(running)
            yield running
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        for end in ended:
            if isinstance(end, Exception):
                raise end


async def _all_at_work(running: ReplicatedService) -> None:
    """Return when people are accepted and counted, and an epoch has a head list."""

    def at_work() -> bool:
        counted = running.times.counted
        return bool(
            running.people.head_lists and counted and all(n > 0 for n in counted[-1][1].values())
        )

    await running.made.until(at_work, STARTED_WITHIN_S, "records and reports counted")
