"""Remove released text from Redis's disks in the background, so that no release waits for it.

The keeper requests one round after each removal of released opt-in counts, and after each start,
since it repeats the removal then. If a server does not respond or cannot write its file, the
rewriter retries it with growing intervals. If a server refuses, the rewriter retries it after the
next release.

Promises: at most one round runs in a process, and a round sends no second request to a server that
has rewritten its files. The metric and the log report servers whose files may still contain text.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Collection, Mapping

from blendstream.agents.jobs import metrics
from blendstream.streams.errors import StoreUnavailable
from blendstream.streams.tables.redis import Client
from blendstream.streams.tables.redis_files import NotRewritten, rewrite_files
from blendstream.streams.telemetry.structured_logs import SafeText

__all__ = ["FileRewriting"]

log = logging.getLogger(__name__)

#: Deadline for all servers of a round. A rewrite of 10 GB takes some minutes; a longer deadline
#: would only delay the alert.
_DEADLINE_S = 900.0
_FIRST_RETRY_S = 60.0
_LAST_RETRY_S = 3600.0


class FileRewriting:
    """Runs the rounds that one jobs process requests."""

    def __init__(self, redis: Client) -> None:
        self._redis = redis
        self._requested = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._remaining: dict[str, NotRewritten] = {}

    def request(self) -> None:
        """Start a round now, or after the running one, which may have started too early."""
        self._requested.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop waiting for servers, which finish the rewrites that they have started."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        only: Collection[str] | None = None
        retry_s = _FIRST_RETRY_S
        while True:
            if self._requested.is_set():
                self._requested.clear()
                only, retry_s = None, _FIRST_RETRY_S
            only = await self._round(only)
            if only is not None and not only:
                if self._requested.is_set():
                    continue
                return
            try:
                await asyncio.wait_for(self._requested.wait(), retry_s)
            except TimeoutError:
                retry_s = min(2 * retry_s, _LAST_RETRY_S)

    async def _round(self, only: Collection[str] | None) -> Collection[str] | None:
        """Request one rewrite per server; return the servers to retry, None for all of them."""
        began = time.monotonic()
        try:
            report = await rewrite_files(self._redis, _DEADLINE_S, only)
        except StoreUnavailable:
            return only  # Other metrics show that Redis is unavailable.
        except Exception as error:
            log.error("redis_files_not_rewritten", exc_info=error)
            return only
        not_asked = (
            {} if only is None else {a: w for a, w in self._remaining.items() if a not in only}
        )
        self._remaining = not_asked | dict(report.remaining)
        _show(report.servers, self._remaining, time.monotonic() - began)
        return [at for at, why in report.remaining.items() if why is not NotRewritten.REFUSED]


def _show(servers: int, remaining: Mapping[str, NotRewritten], seconds: float) -> None:
    reasons = Counter(remaining.values())
    for reason in NotRewritten:
        metrics.FILES_WITH_TEXT.labels(reason).set(reasons[reason])
    if not remaining:
        log.info("redis_files_rewritten", extra={"servers": servers, "seconds": seconds})
        return
    listing = ", ".join(f"{at} ({why.value})" for at, why in remaining.items())
    advice = (
        f"opt-in text may remain in files of {listing}; see RawTextMayRemain in docs/runbook.md"
    )
    log.warning("redis_files_not_rewritten", extra={"advice": SafeText(advice)})
