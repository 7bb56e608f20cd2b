"""Filters over publications, as the jobs advance them."""

from __future__ import annotations

from blendstream.agents.jobs.filter_memory import _follow_publications
from blendstream.agents.jobs.job_context import FilterProgress
from blendstream.agents.jobs.metrics import JOBS
from blendstream.blender.values.errors import NotFinite
from blendstream.streams.releases.entries import Kind


async def test_a_publication_that_the_filter_rejects_costs_its_own_epoch_alone(caplog):
    """Before, all epochs went without a filtered figure until the publication was no longer
    remembered, 16 to 31 epochs later."""
    asked: list[int] = []

    async def read(number: int, _: object) -> int:
        asked.append(number)
        return number

    def follow(state: tuple[int, ...], number: int) -> tuple[int, ...]:
        if number == 5:
            raise NotFinite("a filter's mean", 12)
        return (*state, number)

    def failures() -> float:
        found = JOBS.get_sample_value("blender_filter_failures_total", {"kind": "head-lists"})
        assert found is not None
        return found

    before = failures()
    start: FilterProgress[tuple[int, ...]] = FilterProgress(())
    published = [(number, f"id {number}", None) for number in (4, 5, 6)]
    done = await _follow_publications(Kind.HEAD_LISTS, start, start, published, read, follow)

    assert done.state == (4, 6)
    assert [(r.message, r.epoch, r.record) for r in caplog.records] == [("filter_failed", 5, 12)]
    assert failures() == before + 1

    more = [*published, (7, "id 7", None)]
    assert (await _follow_publications(Kind.HEAD_LISTS, done, start, more, read, follow)).state == (
        4,
        6,
        7,
    )
    assert asked == [4, 5, 6, 7], "a rejected one is not read again"
    assert failures() == before + 1
