"""One lease for each kind of job, in Redis, with a token that says whose it is.

A lease keeps two jobs from doing the same work at once; it does not make a release unique, because
a paused job may believe in a lease it has lost, and Redis may forget. Kafka's fencing does that
(`streams.releases.log`). So a lost lease is worth a log line, and no more.
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
    """The right to do one kind of work, as long as it is renewed."""

    def __init__(self, client: Client, prefix: str, kind: str, seconds: float) -> None:
        self._client = client
        self._key = f"{prefix}:lease:{kind}"
        self._token = secrets.token_hex(8)
        self._milliseconds = round(seconds * 1000)
        self.held = False

    async def hold(self) -> bool:
        """Renew the lease, or take it if it is free; whether it is ours now."""
        if not await self.renew():
            await self._ask(
                self._client.set(self._key, self._token, nx=True, px=self._milliseconds)
            )
        return self.held

    async def renew(self) -> bool:
        """Renew the lease; whether it is still ours. One that was lost is not taken again."""
        return await self._ask(
            self._client.eval(_RENEW, 1, self._key, self._token, self._milliseconds)
        )

    async def _ask(self, call: Any) -> bool:
        self.held = False  # A process that cannot ask must not believe that it holds a lease.
        self.held = bool(await answered(call))
        return self.held

    async def taken(self) -> bool:
        return await answered(self._client.get(self._key)) is not None

    async def leave(self) -> None:
        """Let another take it at once."""
        if self.held:
            self.held = False
            # If that fails it runs out by itself.
            with contextlib.suppress(BlenderError):
                await answered(self._client.eval(_LEAVE, 1, self._key, self._token))
