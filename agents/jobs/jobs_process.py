"""The jobs process: one loop for each kind of job, each under its own lease.

    keeper        opens, seals, pauses, ends raw data
    click-graphs  the graph share's click graph, before
    head-lists    the head list with the opt-in estimates
    estimates     the publication

Any number of these processes may run; one holds each lease and does the work. One whose clock is
off the brokers' gives its leases up and does nothing until it is right again. A head list takes
seconds and is made in a thread. While Kafka or Redis is away the jobs wait, and a stop still ends
within its deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, Unpack

from blendstream.agents import process
from blendstream.agents.jobs import metrics
from blendstream.agents.jobs.broker_clocks import BrokerClocks, ClockComparison
from blendstream.agents.jobs.click_graphs import CLICK_GRAPHS
from blendstream.agents.jobs.epoch_lifecycle import Keeper
from blendstream.agents.jobs.epoch_schedule import next_period
from blendstream.agents.jobs.estimates import ESTIMATES
from blendstream.agents.jobs.head_lists import HEAD_LISTS
from blendstream.agents.jobs.job_context import ContextOverrides, JobContext, limit_from
from blendstream.agents.jobs.leases import Lease
from blendstream.agents.jobs.release_failures import ReleaseFailed
from blendstream.agents.jobs.release_step import ReleaseSpec, publish_committed, release_step
from blendstream.agents.process import reach_servers
from blendstream.agents.server_probe import ServerWatch
from blendstream.blender.profiles import prepare_head_list
from blendstream.streams.budget.epoch_plan import plan_from
from blendstream.streams.budget.ledger import Ledger
from blendstream.streams.errors import StoreUnavailable
from blendstream.streams.releases.blocked import OpenTransaction, find_blocked
from blendstream.streams.releases.documents import DocumentReference
from blendstream.streams.releases.entries import Kind
from blendstream.streams.settings import Settings
from blendstream.streams.telemetry.structured_logs import SafeText
from blendstream.streams.wire.estimates_document import EstimatesDocument

__all__ = ["Jobs", "run_jobs"]

log = logging.getLogger(__name__)

_MOST_BACK_OFF_S = 10.0
_ASK_EVERY_S = 5.0


@dataclass(slots=True)
class _Job:
    """One kind of job: what to publish first, and one step of work."""

    kind: Kind
    publish: Callable[[], Awaitable[bool]]
    step: Callable[[], Awaitable[bool]]


class Jobs:
    """All kinds of jobs of one process."""

    def __init__(self, context: JobContext) -> None:
        self.context = context
        self.clocks = BrokerClocks(allowed_s=context.settings.epoch.allowed_skew_s)
        keeper = Keeper(context)
        releases: tuple[ReleaseSpec[Any, Any], ...] = (CLICK_GRAPHS, HEAD_LISTS, ESTIMATES)
        self._jobs = (
            _Job(Kind.KEEPER, _nothing, keeper.step),
            *(
                _Job(
                    release.kind,
                    partial(publish_committed, context, release),
                    partial(release_step, context, release),
                )
                for release in releases
            ),
        )
        self._leases: dict[Kind, Lease] = {}
        self._shown: list[DocumentReference] = []
        self._stopping = asyncio.Event()
        self._answered: dict[Kind, bool] = {job.kind: False for job in self._jobs}
        settings, topic = context.settings, context.topics.releases.name
        self._blocked: OpenTransaction | None = None
        self._servers = ServerWatch(
            context.kafka,
            topic,
            context.redis,
            prefix=settings.topics.prefix,
            every_s=_ASK_EVERY_S,
        )

    @classmethod
    async def connect(cls, settings: Settings, **instead: Unpack[ContextOverrides]) -> Jobs:
        """Reach Kafka and Redis, check or create the topics; one clear error if that fails."""
        _, topics, redis = await reach_servers(settings)
        context = JobContext.build(settings, topics, redis, **instead)
        # An epoch dearer than its limit is refused here, not in the middle of the night.
        plan, limit = plan_from(settings), limit_from(settings)
        fresh = Ledger()
        _, period = await asyncio.to_thread(next_period, None, None, plan, 0)
        fresh.check_charge(plan.charge(fresh, limit, 0, 0, period), limit)
        return cls(context)

    @property
    def unready(self) -> list[str]:
        """Why no epoch can continue; empty while the clock is right, and Kafka and Redis answer."""
        if self._blocked is not None:
            return [f"the release log is blocked: {self._blocked.sentence()}"]
        if self._servers.write_refusal is not None:
            return [self._servers.write_refusal]
        if self.clocks.ok and all(self._answered.values()):
            return []
        return [self.clocks.trouble or "Redis or Kafka does not answer, or a job fails"]

    async def watch_log(self, every_s: float) -> None:
        """For ever: show whether a transaction blocks the release log, and where."""
        kafka, topic = self.context.kafka, self.context.topics.releases.name
        timeout_s = self.context.settings.jobs.transaction_timeout_s
        while True:
            was = self._blocked
            try:
                self._blocked = await find_blocked(kafka, topic, timeout_s)
            except StoreUnavailable:
                pass  # Other metrics show that Kafka is away.
            except Exception as error:
                log.error("release_log_not_watched", exc_info=error)
            blocked = self._blocked
            if (was is None) != (blocked is None):
                event = "release_log_unblocked" if blocked is None else "release_log_blocked"
                log.error(event, extra={"advice": SafeText(blocked.sentence() if blocked else "")})
            metrics.tell_blocked(blocked)
            await asyncio.sleep(every_s)

    async def run(self) -> None:
        log.info("jobs_started")
        metrics.CLOCK_SKEW_SECONDS.set_function(lambda: self.clocks.skew_s)
        metrics.CLOCK_SKEW_LIMIT.set(self.clocks.allowed_s)
        watches = [
            asyncio.create_task(ClockComparison(self.context, self.clocks).run()),
            asyncio.create_task(self._servers.run()),
            asyncio.create_task(self.watch_log(_ASK_EVERY_S)),
        ]
        try:
            async with asyncio.TaskGroup() as group:
                for job in self._jobs:
                    group.create_task(self._loop(job))
        finally:
            for watch in watches:
                watch.cancel()

    def stop(self) -> None:
        """Finish the current step, begin no other."""
        if not self._stopping.is_set():
            log.info("jobs_stopping")
        self._stopping.set()

    async def close(self) -> None:
        for lease in self._leases.values():
            await lease.leave()
        with contextlib.suppress(StoreUnavailable, OSError):
            await self.context.close()
        log.info("jobs_stopped")

    async def _loop(self, job: _Job) -> None:
        settings = self.context.settings
        lease = Lease(
            self.context.redis, settings.topics.prefix, job.kind.value, settings.jobs.lease_s
        )
        self._leases[job.kind] = lease
        back_off_s = settings.jobs.poll_s
        while not self._stopping.is_set():
            try:
                if self.clocks.ok:
                    await self._work(job, lease)
                else:
                    await self._give_up(job.kind, lease)
                self._answered[job.kind] = True
                back_off_s = settings.jobs.poll_s
            except StoreUnavailable as error:
                self._answered[job.kind] = False
                metrics.FAILURES.labels(job.kind).inc()
                log.warning(
                    "job_waits", extra={"kind": job.kind, "retry_in_s": back_off_s}, exc_info=error
                )
                back_off_s = min(2 * back_off_s, _MOST_BACK_OFF_S)
            except ReleaseFailed:
                # Logged in full where it was given up; the next epoch continues.
                metrics.FAILURES.labels(job.kind).inc()
            except Exception as error:
                # What is stored is not what we wrote, too little memory, a defect. In any case
                # it is no reason to end the other kinds of jobs, and no release was drawn.
                self._answered[job.kind] = False
                metrics.FAILURES.labels(job.kind).inc()
                log.error("job_failed", extra={"kind": job.kind}, exc_info=error)
                back_off_s = _MOST_BACK_OFF_S
            metrics.set_lease_gauge(job.kind, held=lease.held)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), back_off_s)

    async def _work(self, job: _Job, lease: Lease) -> None:
        had_it = lease.held
        if not await lease.hold():
            return
        metrics.set_lease_gauge(job.kind, held=True)
        renewing = asyncio.create_task(self._renew(job.kind, lease))
        try:
            if not had_it:
                log.info("lease_taken", extra={"kind": job.kind})
                await self.context.log.fence_and_read(job.kind)
            await job.publish()
            while not self._stopping.is_set() and self.clocks.ok and await job.step():
                metrics.STEPS.labels(job.kind).inc()
            if job.kind is Kind.KEEPER:
                await self._show()
        except (StoreUnavailable, ReleaseFailed, asyncio.CancelledError):
            lease.held = False  # The next attempt begins as if the lease were new.
            raise
        except Exception:
            # Another process may succeed: one of a newer version, whose entries this one rejects.
            await lease.leave()
            raise
        finally:
            renewing.cancel()

    async def _give_up(self, kind: Kind, lease: Lease) -> None:
        """Leave the lease to a process whose clock is right."""
        if lease.held:
            log.error("lease_given_up", extra={"kind": kind, "reason": SafeText("clock")})
        await lease.leave()

    async def _show(self) -> None:
        """Tell what the log says; the newest publications are read once."""
        context, log_state = self.context, self.context.log.log_state
        published = [
            s.estimates.document for s in log_state.epochs.values() if s.estimates is not None
        ]
        newest = sorted(published, key=lambda document: -document.entry_offset)[:2]
        if newest != self._shown:
            metrics.show_publications([await self._publication(each) for each in newest])
            self._shown = newest
        metrics.show(log_state, limit_from(context.settings), context.now_ms())

    async def _publication(self, reference: DocumentReference) -> EstimatesDocument | None:
        """A publication, or None if it cannot be read: no reason to keep epochs no longer."""
        try:
            return EstimatesDocument.from_bytes(await self.context.log.read_document(reference))
        except StoreUnavailable:
            raise
        except Exception as error:
            log.error("publication_not_shown", exc_info=error)
            return None

    async def _renew(self, kind: Kind, lease: Lease) -> None:
        """Keep the lease through a long step, until it is lost. An outage of Redis does not end it.

        A lost lease is taken again by the next step only, which first settles the log.
        """
        lost = False
        while not lost:
            await asyncio.sleep(self.context.settings.jobs.lease_renew_s)
            try:
                lost = not await lease.renew()
                if lost:
                    log.warning("lease_lost", extra={"kind": kind})
            except Exception as error:
                log.warning("lease_not_renewed", extra={"kind": kind}, exc_info=error)
            metrics.set_lease_gauge(kind, held=lease.held)


async def _nothing() -> bool:
    return False


def run_jobs(settings: Settings, **instead: Unpack[ContextOverrides]) -> NoReturn:
    """Run the jobs until SIGTERM or SIGINT, and end the process.

    `dice` is for a program of your own that prefers another exact noise
    (`blender.noise.opendp_noise`); the rest of `instead` is for tests.
    """

    async def connect() -> Jobs:
        # Parameters that no noise can be found for are refused now, not after an epoch was charged.
        privacy = settings.privacy
        await asyncio.to_thread(prepare_head_list, privacy.profile, privacy.parameters())
        return await Jobs.connect(settings, **instead)

    host = settings.metrics.host
    asyncio.run(process.run(connect, "jobs", settings.jobs, host, metrics.JOBS))
