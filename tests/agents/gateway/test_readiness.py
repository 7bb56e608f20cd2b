"""When a gateway says that it cannot do its work."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import cast

from blendstream.agents.gateway.gateway_process import GatewayProcess
from blendstream.agents.gateway.state.publications import Publications
from blendstream.agents.gateway.state.release_follower import ReleaseFold, ReleaseFollower
from blendstream.streams.epoch_keys import KeyRing
from blendstream.streams.kafka.kafka_clients import KafkaInspector
from blendstream.streams.kafka.topics import Topics
from blendstream.streams.releases.blocked import OpenTransaction
from tests.listed_log import listed_log

__all__ = ["listed_log"]


async def test_an_error_nobody_thought_of_is_a_failure_and_not_silence(
    make_settings, caplog, listed_log
):
    """The task that follows the log would end, and the gateway stay ready with what it had."""
    listed_log.failure = TypeError("something of the data")
    settings = make_settings()
    fold = ReleaseFold(
        Publications(),
        keys=KeyRing(settings.keys.masters()),
        topics=Topics(settings),
        history_epochs=5,
    )
    reader = ReleaseFollower(
        settings.kafka,
        fold,
        cast(KafkaInspector, None),
        Topics(settings).releases.name,
        patience_s=1,
    )

    await reader.run()

    assert reader.failure is not None
    assert "TypeError" in reader.failure
    assert "something of the data" not in reader.failure
    assert "release_log_failed" in caplog.text


async def test_a_release_log_that_is_no_longer_read_to_its_end_makes_it_unready(make_settings):
    """Kafka answers, but what is published is not seen: devices would report on an old list."""
    process = GatewayProcess(make_settings())
    process._reader = cast(ReleaseFollower, SimpleNamespace(failure=None))
    process._caught_up_at = time.monotonic() - 60
    assert process._unready() == [], "an open transaction may hide the end for so long"

    process._caught_up_at = time.monotonic() - 600
    [reason] = process._unready()
    assert "not read to its end for 600 s" in reason


async def test_a_release_log_that_a_transaction_blocks_is_not_called_something_that_passes(
    make_settings,
):
    """It never passed by itself, and whoever read that waited for hours."""
    process = GatewayProcess(make_settings())
    process._reader = cast(ReleaseFollower, SimpleNamespace(failure=None))
    assert "nothing needs repair" in process._unready()[0]

    process._blocked = OpenTransaction("blender.releases", 248, 249, open_s=95, limit_s=90)
    for caught_up_at in (None, time.monotonic() - 600):
        process._caught_up_at = caught_up_at
        [reason] = process._unready()
        assert "nothing needs repair" not in reason
        assert "stop at offset 248" in reason
        assert "ReleaseLogBlocked in docs/runbook.md" in reason
