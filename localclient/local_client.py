"""The client that an application embeds, with and without asyncio.

    client = LocalClient("https://gateway.example", "/var/lib/app/searches", limits)
    client.record("weather tomorrow", "https://weather.example/")    # after each search
    outcome = client.maybe_report()                                  # every now and then

Promises: see `localclient.reporting`, `localclient.opting_in` and `localclient.budget`, which make
all decisions, and `localclient.http_transport`, which sends requests and is imported with the first
one. No text that a person types makes a call raise.
Assumes: a server that may be hostile, slow or unavailable. Several threads and processes may call
clients of one folder.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from blendstream.blender.values.errors import ParameterError
from blendstream.blender.values.random_source import RandomSource, SystemRandomSource
from blendstream.blender.values.record import normalise
from blendstream.localclient.budget import total_spent
from blendstream.localclient.errors import ClientRefused, ClockWrong, HeadListRefused, LimitReached
from blendstream.localclient.exchange import (
    BackOff,
    Context,
    DeviceRequest,
    Exchange,
    Outcome,
    RecordResult,
    Response,
    ResultCode,
)
from blendstream.localclient.files import Files
from blendstream.localclient.limits import Limits
from blendstream.localclient.opting_in import OptIn, opt_in_exchange
from blendstream.localclient.reporting import report_exchange
from blendstream.localclient.sent_log import SentLog, read_sent_log
from blendstream.localclient.state import State
from blendstream.localclient.store import Store

if TYPE_CHECKING:
    import httpx

__all__ = ["AsyncLocalClient", "LocalClient", "Status", "forget"]

log = logging.getLogger("blendstream.localclient")

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Status:
    """The device's stored searches, spent budget and next send, as numbers for its owner."""

    records_held: int
    epsilon_spent: float
    delta_spent: float
    windows_answered: int
    last_epoch: int | None
    waiting_until_s: int | None
    unsent_epoch: int | None


class _Parts(NamedTuple):
    """Clock, random source and disk. Only tests replace them; no setting of an application does."""

    clock: Callable[[], float] = time.time
    dice: RandomSource = SystemRandomSource()
    files: Callable[[Path], Files] = Files


_REAL = _Parts()


class _Pause(NamedTuple):
    """The last exchange's result, and the period in which a repetition would have the same one."""

    from_s: int
    until_s: int
    result: Outcome | ClientRefused


class _Core:
    """Base of both clients: owns the folder and selects the next exchange."""

    def __init__(
        self,
        server: str,
        folder: str | Path,
        limits: Limits,
        *,
        opt_in: OptIn | None = None,
        _parts: _Parts = _REAL,
    ) -> None:
        self._server = _checked_server(server)
        self._opt_in = opt_in
        files = _parts.files(Path(folder))
        store = Store(files, limits.max_record_bytes)
        back_off = BackOff(_parts.dice, limits)
        self._context = Context(store, limits, _parts.clock, _parts.dice, back_off)
        self._pause: _Pause | None = None
        with store.locked():  # refuse a damaged folder now, not at the first report
            pass

    def record(self, query: str, url: str) -> RecordResult:
        """Store a search and its clicked result on this device until its window is answered.

        *Text refused*: the text cannot be a record (empty, too long, control characters).
        """
        try:
            record = normalise(query, url)
        except ParameterError as refusal:
            return RecordResult(ResultCode.TEXT_REFUSED, str(refusal))
        self._context.store.keep(self._context.now_s(), record)
        return RecordResult(ResultCode.KEPT, "kept on this device")

    def forget(self) -> None:
        """Delete all raw records, opt-in records not yet sent, and the text of answers sent.

        Spent budget stays spent.
        """
        self._context.store.forget_all()

    def status(self) -> Status:
        """Return counts of what is stored, and the budget spent in the period that ends now."""
        context = self._context
        with context.store.locked() as state:
            epsilon, delta = total_spent(state, context.limits, context.now_s())
            return _status(state, context.store.count_records(), float(epsilon), float(delta))

    def sent_log(self) -> SentLog:
        """Return what was sent, what that can reveal at most, and the next send. Offline."""
        context = self._context
        with context.store.locked() as state:
            return read_sent_log(state, context.limits, context.now_s())

    def _exchange(self, *, at_once: bool) -> Exchange | Outcome:
        pause = self._pause
        if pause and not at_once and pause.from_s <= self._context.now_s() < pause.until_s:
            # A request during the pause would change nothing, and reveal that this device is on.
            if isinstance(pause.result, ClientRefused):
                raise pause.result.with_traceback(None)
            return pause.result
        if self._opt_in is not None:
            return opt_in_exchange(self._context, self._opt_in, at_once=at_once)
        return report_exchange(self._context, at_once=at_once)

    def _advance(self, exchange: Exchange, response: Response | None) -> DeviceRequest | Outcome:
        """Return the exchange's next request, or its outcome."""
        now_s = self._context.now_s()
        try:
            return exchange.send(response)
        except StopIteration as end:
            outcome: Outcome = end.value
        except (HeadListRefused, ClockWrong, LimitReached) as refusal:
            until_s = self._context.back_off.after_answer(now_s)
            self._pause = _Pause(now_s, until_s, refusal)
            raise
        self._pause = _Pause(now_s, outcome.next_call_at_s, outcome)
        log.info("localclient_%s", outcome.code.replace(" ", "_"), extra={"epoch": outcome.epoch})
        return outcome


class LocalClient(_Core):
    """Stores searches on the device and answers each head list once, with randomised numbers.

    `http` creates the connection of one exchange: pass your own for proxies or certificates.
    """

    def __init__(
        self,
        server: str,
        folder: str | Path,
        limits: Limits,
        *,
        opt_in: OptIn | None = None,
        http: Callable[[], httpx.Client] | None = None,
        _parts: _Parts = _REAL,
    ) -> None:
        super().__init__(server, folder, limits, opt_in=opt_in, _parts=_parts)
        self._http = http

    def maybe_report(self) -> Outcome:
        """Run the step that is due, if any. Call it at times that do not depend on searches."""
        return self._run(self._exchange(at_once=False))

    def report_now(self) -> Outcome:
        """Report without waiting for the scheduled time: for tests by hand."""
        return self._run(self._exchange(at_once=True))

    def _run(self, exchange: Exchange | Outcome) -> Outcome:
        if isinstance(exchange, Outcome):
            return exchange
        from blendstream.localclient.http_transport import run_exchange  # noqa: PLC0415

        return run_exchange(self._server, partial(self._advance, exchange), self._http)


class AsyncLocalClient(_Core):
    """`LocalClient` for applications that run on asyncio."""

    def __init__(
        self,
        server: str,
        folder: str | Path,
        limits: Limits,
        *,
        opt_in: OptIn | None = None,
        http: Callable[[], httpx.AsyncClient] | None = None,
        _parts: _Parts = _REAL,
    ) -> None:
        super().__init__(server, folder, limits, opt_in=opt_in, _parts=_parts)
        self._http = http

    async def maybe_report(self) -> Outcome:
        """Run the step that is due, if any. Call it at times that do not depend on searches."""
        return await self._run(self._exchange(at_once=False))

    async def report_now(self) -> Outcome:
        """Report without waiting for the scheduled time: for tests by hand."""
        return await self._run(self._exchange(at_once=True))

    async def run(self) -> None:
        """Report whenever it is due, until cancelled; log refusals and retry later."""
        import asyncio  # noqa: PLC0415

        while True:
            try:
                next_call_at_s = (await self.maybe_report()).next_call_at_s
            except ClientRefused as refusal:
                log.warning("localclient_refused: %s", refusal)
                next_call_at_s = self._context.back_off.after_answer(self._context.now_s())
                if self._pause and self._pause.result is refusal:
                    next_call_at_s = self._pause.until_s
            await asyncio.sleep(max(1, next_call_at_s - self._context.now_s()))

    async def _run(self, exchange: Exchange | Outcome) -> Outcome:
        if isinstance(exchange, Outcome):
            return exchange
        from blendstream.localclient.http_transport import run_exchange_async  # noqa: PLC0415

        return await run_exchange_async(self._server, partial(self._advance, exchange), self._http)


def forget(folder: str | Path) -> None:
    """Delete all raw records in a folder, also in one whose state no client can read."""
    Store(Files(Path(folder)), max_record_bytes=0).forget_all()


def _checked_server(server: str) -> str:
    parts = urlsplit(server)
    if not (
        parts.hostname
        and (parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK))
        and not parts.query
        and not parts.fragment
    ):
        raise ParameterError(
            "server must be an https:// address (http:// only for this machine itself) without "
            "query or fragment"
        )
    return server.rstrip("/")


def _status(state: State, records: int, epsilon: float, delta: float) -> Status:
    return Status(
        records_held=records,
        epsilon_spent=epsilon,
        delta_spent=delta,
        windows_answered=len(state.budget_entries),
        last_epoch=state.budget_entries[-1].epoch if state.budget_entries else None,
        waiting_until_s=state.scheduled_send.send_at_s if state.scheduled_send else None,
        unsent_epoch=state.pending.epoch if state.pending else None,
    )
