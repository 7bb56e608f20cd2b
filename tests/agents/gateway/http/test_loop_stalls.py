"""Whoever operates a gateway sees when it keeps its senders waiting."""

from __future__ import annotations

import asyncio
import time

from blendstream.agents.gateway.http.loop_stalls import watch_stalls
from blendstream.agents.gateway.state import metrics


def stalls_beyond(bound: float) -> float:
    [family] = metrics.GATEWAY_LOOP_LAG.collect()
    total = next(s.value for s in family.samples if s.name.endswith("_count"))
    return total - next(s.value for s in family.samples if s.labels.get("le") == str(bound))


async def test_a_loop_that_was_kept_is_seen_in_the_metric():
    """A gateway that composed text for 23 s answered nobody, and no metric told why."""
    before = stalls_beyond(0.25)
    watching = asyncio.create_task(watch_stalls(metrics.GATEWAY_LOOP_LAG.observe))
    await asyncio.sleep(0.01)

    time.sleep(0.4)  # noqa: ASYNC251 - what must not happen
    await asyncio.sleep(0.1)

    watching.cancel()
    assert stalls_beyond(0.25) >= before + 1
