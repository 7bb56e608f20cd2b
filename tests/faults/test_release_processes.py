"""Real jobs processes, ended by SIGKILL or stopped by SIGSTOP at each step of a release.

Two processes run all the time; whichever holds the lease of a kind reaches the step and is
disturbed there, the other one takes over when the lease runs out. A stopped one is let go on only
after that. Head lists and estimates in turn, an epoch for each step; click graphs by themselves.

Not a failure: a draw that was thrown away before anyone could see it; a job that gives way.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from blendstream.streams.names import InputStream
from blendstream.streams.releases.entries import EpochOutcome, Kind
from blendstream.streams.releases.epoch_state import Stage
from tests.service.epochs import EpochService, epoch_service
from tests.service.jobs import count_records, count_reports, some_records, url_table, with_graph
from tests.service.processes import Part
from tests.service.released import RELEASES, STEPS, releases, same_bytes_everywhere
from tests.service.settings import GRAPHS

#: Steps at which the log has the release: whoever sleeps there wakes up to nothing.
SEEN = ("committed", "published")


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("action", "steps"),
    [
        pytest.param("kill", ("drawn",), id="killed while it draws"),
        pytest.param("kill", STEPS, marks=pytest.mark.more, id="killed at every step"),
        pytest.param("pause", ("drawn", "sent"), marks=pytest.mark.more, id="paused at two steps"),
        pytest.param("pause", STEPS, marks=pytest.mark.slow, id="paused at every step"),
    ],
)
async def test_disturbed_at_a_step_another_process_releases_once(
    kafka, redis_server, action: str, steps: tuple[str, ...]
):
    """Before drawing, after drawing, between send and commit, after commit, after publishing.

    The two steps are those that are hardest to survive.
    """
    rng = np.random.default_rng(11)
    origin = str(int(time.time()) - 5)
    async with epoch_service(kafka.url, redis_server.url, epoch__origin_unix_s=origin) as made:
        made.start_jobs()
        made.start_jobs()
        opened = await made.until_stage(0, Stage.COLLECTING)
        await made.until_stage(1, Stage.COLLECTING)
        # An epoch's head list waits for a record that the test has not "counted" yet, so that one
        # kind of job is disturbed at a time.
        made.send_raw(InputStream.OPTIN_RECORDS, 0, b"not read by anyone")
        _let_time_pass(made, opened.parameters.records_sealable_at_ms)
        for epoch, step in enumerate(steps):
            await made.until_stage(epoch, Stage.SEALED)
            disturbance = Disturbance(made, Kind.HEAD_LISTS, step, action)
            await count_records(made, epoch, some_records(epoch, rng))
            await disturbance.passes(epoch)
            state = await made.until_stage(epoch, Stage.REPORTING)

            assert state.head_list is not None
            await count_reports(made, epoch, state.head_list.cells, 500, rng)
            made.send_raw(InputStream.OPTIN_RECORDS, 0, b"of the next epoch")
            # Open before its window: one that nobody opened in time would be passed over.
            await made.until_stage(epoch + 1, Stage.COLLECTING)
            await made.until_stage(epoch + 2, Stage.COLLECTING)
            disturbance = Disturbance(made, Kind.ESTIMATES, step, action)
            _let_time_pass(made, state.head_list.reports_until_ms)
            await disturbance.passes(epoch)
            await made.until_stage(epoch, Stage.PUBLISHED)

        everyone = Counter(dict.fromkeys(range(len(steps)), 1))
        assert releases(made, "head_list_released") == everyone
        assert releases(made, "estimate_released") == everyone
        await same_bytes_everywhere(made, range(len(steps)))
        _end(made)


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("action", "steps"),
    [
        pytest.param("kill", ("sent",), marks=pytest.mark.more, id="killed at the hardest step"),
        pytest.param("kill", STEPS, marks=pytest.mark.slow, id="killed at every step"),
        pytest.param("pause", STEPS, marks=pytest.mark.slow, id="paused at every step"),
    ],
)
async def test_click_graphs_disturbed_at_a_step_are_released_once(
    kafka, redis_server, action: str, steps: tuple[str, ...], tmp_path: Path
):
    """The same for the graph, which comes first: the head list waits for it, and follows.

    The hardest step is between send and commit.
    """
    rng = np.random.default_rng(12)
    settings = {
        "epoch__origin_unix_s": str(int(time.time()) - 5), **GRAPHS, **url_table(tmp_path),
    }  # fmt: skip
    async with epoch_service(kafka.url, redis_server.url, **settings) as made:
        made.start_jobs()
        made.start_jobs()
        opened = await made.until_stage(0, Stage.COLLECTING)
        await made.until_stage(1, Stage.COLLECTING)
        made.send_raw(InputStream.OPTIN_RECORDS, 0, b"not read by anyone")
        _let_time_pass(made, opened.parameters.records_sealable_at_ms)
        for epoch, step in enumerate(steps):
            await made.until_stage(epoch, Stage.SEALED)
            disturbance = Disturbance(made, Kind.CLICK_GRAPHS, step, action)
            await count_records(made, epoch, with_graph(some_records(epoch, rng)))
            await disturbance.passes(epoch)
            state = await made.until_stage(epoch, Stage.REPORTING)
            assert state.click_graph is not None
            assert state.click_graph.outcome is EpochOutcome.COMPLETE
            assert state.head_list is not None
            made.send_raw(InputStream.OPTIN_RECORDS, 0, b"of the next epoch")
            await made.until_stage(epoch + 1, Stage.COLLECTING)
            await made.until_stage(epoch + 2, Stage.COLLECTING)
            _let_time_pass(made, state.head_list.reports_until_ms)
            await made.until_stage(epoch, Stage.PUBLISHED)

        everyone = Counter(dict.fromkeys(range(len(steps)), 1))
        for name in RELEASES:
            assert releases(made, name) == everyone, name
        await same_bytes_everywhere(made, range(len(steps)))
        _end(made)


def _end(made: EpochService) -> None:
    for part in made.parts:
        part.terminate()
    ended = {part.wait(20) for part in made.parts}
    assert ended <= {0, -signal.SIGKILL}


class Disturbance:
    """An order to one process, and what must follow from it."""

    def __init__(self, made: EpochService, kind: Kind, step: str, action: str) -> None:
        self._made, self._kind, self._step, self._action = made, kind, step, action
        self._taken = f"lease_taken kind={kind.name.lower()} "
        self._leases = {part.pid: part.output().count(self._taken) for part in made.parts}
        made.order(f"{kind.value}.{step}", action)

    async def passes(self, epoch: int) -> None:
        """Wait for the victim, for another to take over, and for the release to be out."""
        made = self._made
        victim = await made.disturbed()
        if self._action == "kill":
            assert victim.exit_code == -signal.SIGKILL, victim.output()
            made.start_jobs()
        await made.until(
            lambda: self._taken_over(victim), what=f"another with the lease of {self._kind.value}"
        )
        topics = {
            Kind.CLICK_GRAPHS: made.topics.click_graphs,
            Kind.HEAD_LISTS: made.topics.head_lists,
            Kind.ESTIMATES: made.topics.estimates,
        }
        topic = topics[self._kind].name

        async def out() -> bool:
            return epoch in await made.published(topic)

        await made.until(out, what=f"epoch {epoch} in {topic}")
        if self._action == "pause":
            assert victim.paused
            waits = victim.output().count("job_waits")
            victim.resume()
            if self._step not in SEEN:
                await made.until(
                    lambda: victim.output().count("job_waits") > waits,
                    what="the sleeper to find itself replaced",
                )

    def _taken_over(self, victim: Part) -> bool:
        return any(
            part.output().count(self._taken) > self._leases.get(part.pid, 0)
            for part in self._made.parts
            if part is not victim
        )


def _let_time_pass(made: EpochService, until_ms: int) -> None:
    """To well after a window's end and its grace."""
    made.run_ahead(until_ms + 120_000 - time.time_ns() // 1_000_000)
