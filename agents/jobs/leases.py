"""One lease per kind of job, in Redis, with a token that identifies its holder.

A lease prevents two jobs from doing the same work concurrently. It does not make a release unique,
because a paused job may act on a lease that it has lost, and Redis may lose its newest writes.
Kafka's fencing makes releases unique (`streams.releases.log`), so a lost lease only causes a log
line.
"""

from __future__ import annotations

import contextlib
import secrets
from typing import Any

from blendstream.blender.values.errors import BlenderError
from blendstream.streams.tables.redis import Client, answered

__all__ = ["Lease"]

_RENEW = """
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0
"""
_LEAVE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""


class Lease:
    """The exclusive right to do one kind of work, until it is lost or expires."""

    def __init__(self, client: Client, prefix: str, kind: str, seconds: float) -> None:
        self._client = client
        self._key = f"{prefix}:lease:{kind}"
        self._token = secrets.token_hex(8)
        self._milliseconds = round(seconds * 1000)
        self.held = False

    async def hold(self) -> bool:
        """Renew the lease, or take it if it is free. Return True if this process holds it."""
        if not await self.renew():
            await self._ask(
                self._client.set(self._key, self._token, nx=True, px=self._milliseconds)
            )
        return self.held

    async def renew(self) -> bool:
        """Renew the lease without taking a lost one. Return True if this process still holds it."""
        return await self._ask(
            self._client.eval(_RENEW, 1, self._key, self._token, self._milliseconds)
        )

    async def _ask(self, call: Any) -> bool:
        self.held = False  # Redis may not answer: then this process must not act as the holder.
        self.held = bool(await answered(call))
        return self.held

    async def taken(self) -> bool:
        """Return True if any process holds the lease."""
        return await answered(self._client.get(self._key)) is not None

    async def leave(self) -> None:
        """Delete the lease, so that another process can take it immediately."""
        if self.held:
            self.held = False
            # If that fails, the lease expires.
            with contextlib.suppress(BlenderError):
                await answered(self._client.eval(_LEAVE, 1, self._key, self._token))
