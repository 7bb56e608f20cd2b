"""The jobs process: one loop per kind of job, each under its own lease.

    keeper        opens and seals epochs, pauses the service, deletes raw data
    click-graphs  the graph subgroup's click graph, before the head list
    head-lists    the head list with the opt-in estimates
    estimates     the publication

Any number of these processes may run; the one that holds a lease does its work. A process whose
clock differs too much from the brokers' releases its leases and does nothing until the clock is
right. A head list takes seconds, so a thread computes it. While Kafka or Redis is unavailable the
jobs wait; the process can still stop within its deadline.
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
from blendstream.agents.jobs.finalisation import FinalisationMetrics
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

_MAX_BACK_OFF_S = 10.0
_POLL_EVERY_S = 5.0


@dataclass(slots=True)
class _Job:
    """One kind of job: `publish` repeats unfinished publications, `step` does one unit of work."""

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
        self._finalisation = FinalisationMetrics(context)
        self._stopping = asyncio.Event()
        self._responding: dict[Kind, bool] = {job.kind: False for job in self._jobs}
        settings, topic = context.settings, context.topics.releases.name
        self._blocked: OpenTransaction | None = None
        self._servers = ServerWatch(
            context.kafka,
            topic,
            context.redis,
            prefix=settings.topics.prefix,
            every_s=_POLL_EVERY_S,
        )

    @classmethod
    async def connect(cls, settings: Settings, **overrides: Unpack[ContextOverrides]) -> Jobs:
        """Connect to Kafka and Redis and check or create the topics; raise one clear error."""
        _, topics, redis = await reach_servers(settings)
        context = JobContext.build(settings, topics, redis, **overrides)
        # Refuse here, at start, settings with which an epoch would cost more than its limit.
        plan, limit = plan_from(settings), limit_from(settings)
        fresh = Ledger()
        _, period = await asyncio.to_thread(next_period, None, None, plan, 0)
        fresh.check_charge(plan.charge(fresh, limit, 0, 0, period), limit)
        return cls(context)

    @property
    def unready(self) -> list[str]:
        """Reasons why no epoch can continue; empty while clock, Kafka and Redis are all right."""
        if self._blocked is not None:
            return [f"the release log is blocked: {self._blocked.sentence()}"]
        if self._servers.write_refusal is not None:
            return [self._servers.write_refusal]
        if self.clocks.ok and all(self._responding.values()):
            return []
        return [self.clocks.trouble or "Redis or Kafka does not answer, or a job fails"]

    async def watch_log(self, every_s: float) -> None:
        """Check forever whether a transaction blocks readers of the release log; log and count."""
        kafka, topic = self.context.kafka, self.context.topics.releases.name
        timeout_s = self.context.settings.jobs.transaction_timeout_s
        while True:
            was = self._blocked
            try:
                self._blocked = await find_blocked(kafka, topic, timeout_s)
            except StoreUnavailable:
                pass  # Other metrics show that Kafka is unavailable.
            except Exception as error:
                log.error("release_log_not_watched", exc_info=error)
            blocked = self._blocked
            if (was is None) != (blocked is None):
                event = "release_log_unblocked" if blocked is None else "release_log_blocked"
                log.error(event, extra={"advice": SafeText(blocked.sentence() if blocked else "")})
            metrics.set_log_blocked(blocked)
            await asyncio.sleep(every_s)

    async def run(self) -> None:
        """Run every kind of job until `stop`."""
        log.info("jobs_started")
        metrics.CLOCK_SKEW_SECONDS.set_function(lambda: self.clocks.skew_s)
        metrics.CLOCK_SKEW_LIMIT.set(self.clocks.allowed_s)
        watches = [
            asyncio.create_task(ClockComparison(self.context, self.clocks).run()),
            asyncio.create_task(self._servers.run()),
            asyncio.create_task(self.watch_log(_POLL_EVERY_S)),
        ]
        try:
            async with asyncio.TaskGroup() as group:
                for job in self._jobs:
                    group.create_task(self._loop(job))
        finally:
            for watch in watches:
                watch.cancel()

    def stop(self) -> None:
        """Let `run` return after the current steps."""
        if not self._stopping.is_set():
            log.info("jobs_stopping")
        self._stopping.set()

    async def close(self) -> None:
        """Leave the leases, so that another process continues immediately, and disconnect."""
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
                    await self._leave_lease(job.kind, lease)
                self._responding[job.kind] = True
                back_off_s = settings.jobs.poll_s
            except StoreUnavailable as error:
                self._responding[job.kind] = False
                metrics.FAILURES.labels(job.kind).inc()
                log.warning(
                    "job_waits", extra={"kind": job.kind, "retry_in_s": back_off_s}, exc_info=error
                )
                back_off_s = min(2 * back_off_s, _MAX_BACK_OFF_S)
            except ReleaseFailed:
                # `release_step` has logged the cause; the next epoch continues.
                metrics.FAILURES.labels(job.kind).inc()
            except Exception as error:
                # Damaged stored data, too little memory, a defect. The other kinds of jobs
                # continue in any case, and no release was drawn.
                self._responding[job.kind] = False
                metrics.FAILURES.labels(job.kind).inc()
                log.error("job_failed", extra={"kind": job.kind}, exc_info=error)
                back_off_s = _MAX_BACK_OFF_S
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

    async def _leave_lease(self, kind: Kind, lease: Lease) -> None:
        """Leave the lease, for a process whose clock is right."""
        if lease.held:
            log.error("lease_released", extra={"kind": kind, "reason": SafeText("clock")})
        await lease.leave()

    async def _show(self) -> None:
        """Update the metrics from the log. Reads each of the newest publications once."""
        context, log_state = self.context, self.context.log.log_state
        published = [
            s.estimates.document for s in log_state.epochs.values() if s.estimates is not None
        ]
        newest = sorted(published, key=lambda document: -document.entry_offset)[:2]
        if newest != self._shown:
            metrics.show_publications([await self._publication(each) for each in newest])
            self._shown = newest
        await self._finalisation.update(log_state)
        metrics.show(log_state, limit_from(context.settings), context.now_ms())

    async def _publication(self, reference: DocumentReference) -> EstimatesDocument | None:
        """Return a publication, or None if it is unreadable: the keeper must continue anyway."""
        try:
            return EstimatesDocument.from_bytes(await self.context.log.read_document(reference))
        except StoreUnavailable:
            raise
        except Exception as error:
            log.error("publication_not_shown", exc_info=error)
            return None

    async def _renew(self, kind: Kind, lease: Lease) -> None:
        """Renew the lease during a long step, until it is lost. An outage of Redis is not a loss.

        Only the job's next step takes a lost lease again; that step fences and reads the log.
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


def run_jobs(settings: Settings, **overrides: Unpack[ContextOverrides]) -> NoReturn:
    """Run the jobs until SIGTERM or SIGINT, and end the process.

    `dice` is for programs that prefer a different implementation of exact noise
    (`blender.noise.opendp_noise`); the other overrides are for tests.
    """

    async def connect() -> Jobs:
        # Refuse parameters without a matching noise now, not after an epoch was charged.
        privacy = settings.privacy
        await asyncio.to_thread(prepare_head_list, privacy.profile, privacy.parameters())
        return await Jobs.connect(settings, **overrides)

    host = settings.metrics.host
    asyncio.run(process.run(connect, "jobs", settings.jobs, host, metrics.JOBS))
