"""Leases on a real Redis: one holder, until it is silent for too long."""

from __future__ import annotations

import asyncio

import pytest

from blendstream.agents.jobs.leases import Lease
from blendstream.streams.errors import StoreUnavailable


async def test_one_holds_a_lease_until_it_is_silent_for_too_long(redis_client, name_prefix):
    """Work is not done twice at once; nor left undone because somebody died."""
    first = Lease(redis_client, name_prefix, "estimates", 0.6)
    second = Lease(redis_client, name_prefix, "estimates", 0.6)
    other_kind = Lease(redis_client, name_prefix, "head-lists", 0.6)

    assert await first.hold()
    assert not await second.hold()
    assert await other_kind.hold()
    for _ in range(4):
        await asyncio.sleep(0.2)
        assert await first.hold(), "a lease that is renewed is kept"
    assert not await second.hold()
    await asyncio.sleep(1.0)
    assert await second.hold()
    assert not await first.hold()
    assert not first.held

    # Leaving what is no longer ours takes nothing from the other.
    first.held = True
    await first.leave()
    assert await second.hold()
    await second.leave()
    assert await first.hold()


async def test_a_lost_lease_is_not_taken_again_by_renewing_it(redis_client, name_prefix):
    """A process paused in a step lost its lease and, when the new holder died, had it again without
    having settled the log, or having said so."""
    sleeper = Lease(redis_client, name_prefix, "estimates", 0.3)
    other = Lease(redis_client, name_prefix, "estimates", 0.3)
    assert await sleeper.hold()
    assert await sleeper.renew()
    await asyncio.sleep(0.5)
    assert await other.hold()
    assert not await sleeper.renew()
    await asyncio.sleep(0.5)

    assert not await sleeper.renew(), "free, and not ours"
    assert not sleeper.held
    assert await sleeper.hold()


async def test_a_redis_that_is_away_means_not_held(own_redis):
    """Whoever cannot ask must not believe that it may."""
    import redis.asyncio

    client = redis.asyncio.Redis.from_url(own_redis.url, socket_timeout=0.5)
    lease = Lease(client, "test", "keeper", 5)
    assert await lease.hold()
    own_redis.pause()
    try:
        with pytest.raises(StoreUnavailable):
            await lease.hold()
        assert not lease.held
    finally:
        own_redis.resume()
    assert await lease.hold()
    await client.aclose()
