"""The client that an application embeds, with and without asyncio.

    client = LocalClient("https://gateway.example", "/var/lib/app/searches", limits)
    client.record("weather tomorrow", "https://weather.example/")    # after each search
    outcome = client.maybe_report()                                  # every now and then

Promises: see `localclient.reporting`, `localclient.opting_in` and `localclient.budget`, which make
all decisions, and `localclient.http_transport`, which carries requests and is loaded with the
first. What a person typed never makes a call raise.
Assumes: a server that may be hostile, slow or away. Calls may come from several threads and
processes on one folder.
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

from blendstream.blender.values.dice import RandomSource, SystemDice
from blendstream.blender.values.errors import ParameterError
from blendstream.blender.values.record import normalise
from blendstream.localclient.budget import spent
from blendstream.localclient.conversation import (
    BackOff,
    Context,
    DeviceRequest,
    Outcome,
    Recorded,
    Response,
    Talk,
    What,
)
from blendstream.localclient.errors import ClientRefused, ClockWrong, HeadListRefused, LimitReached
from blendstream.localclient.files import Files
from blendstream.localclient.limits import Limits
from blendstream.localclient.opting_in import OptIn, opt_in_talk
from blendstream.localclient.reporting import report_talk
from blendstream.localclient.state import State
from blendstream.localclient.store import Store

if TYPE_CHECKING:
    import httpx

__all__ = ["AsyncLocalClient", "LocalClient", "Status", "forget"]

log = logging.getLogger("blendstream.localclient")

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Status:
    """What is on the device, in numbers; for the person it belongs to."""

    records_held: int
    epsilon_spent: float
    delta_spent: float
    windows_answered: int
    last_epoch: int | None
    waiting_until_s: int | None
    unsent_epoch: int | None


class _Parts(NamedTuple):
    """Parts that tests replace. Nothing in an application's settings reaches these."""

    clock: Callable[[], float] = time.time
    dice: RandomSource = SystemDice()
    files: Callable[[Path], Files] = Files


_REAL = _Parts()


class _Pause(NamedTuple):
    """The result of the last talk, and until when another would have the same result."""

    from_s: int
    until_s: int
    result: Outcome | ClientRefused


class _Core:
    """What both clients share: the folder, and which talk comes next."""

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
        with store.locked():  # refuses a damaged folder now, not at the first report
            pass

    def record(self, query: str, url: str) -> Recorded:
        """Keep what was searched for and clicked, on this device, until its window is answered.

        Text that cannot be a record (empty, too long, control characters) is *text refused*.
        """
        try:
            record = normalise(query, url)
        except ParameterError as refusal:
            return Recorded(What.TEXT_REFUSED, str(refusal))
        self._context.store.keep(self._context.now_s(), record)
        return Recorded(What.KEPT, "kept on this device")

    def forget(self) -> None:
        """Remove all raw records, and opt-in records not yet sent. What was spent stays spent."""
        self._context.store.forget_all()

    def status(self) -> Status:
        """What is on the device and what was spent in the period that ends now."""
        context = self._context
        with context.store.locked() as state:
            epsilon, delta = spent(state, context.limits, context.now_s())
            return _status(state, context.store.held(), float(epsilon), float(delta))

    def _talk(self, *, at_once: bool) -> Talk | Outcome:
        pause = self._pause
        if pause and not at_once and pause.from_s <= self._context.now_s() < pause.until_s:
            # Asking earlier would change nothing, and show the server that this device is on.
            if isinstance(pause.result, ClientRefused):
                raise pause.result.with_traceback(None)
            return pause.result
        if self._opt_in is not None:
            return opt_in_talk(self._context, self._opt_in, at_once=at_once)
        return report_talk(self._context, at_once=at_once)

    def _advance(self, talk: Talk, response: Response | None) -> DeviceRequest | Outcome:
        """The talk's next request, or its result."""
        now_s = self._context.now_s()
        try:
            return talk.send(response)
        except StopIteration as end:
            outcome: Outcome = end.value
        except (HeadListRefused, ClockWrong, LimitReached) as refusal:
            until_s = self._context.back_off.after_answer(now_s)
            self._pause = _Pause(now_s, until_s, refusal)
            raise
        self._pause = _Pause(now_s, outcome.again_at_s, outcome)
        log.info("localclient_%s", outcome.what.replace(" ", "_"), extra={"epoch": outcome.epoch})
        return outcome


class LocalClient(_Core):
    """Keeps searches on the device and answers each head list once, privately.

    `http` makes the connection for one talk: hand in your own for proxies or certificates.
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
        """Do what is due, if anything. Call it at times that do not depend on searches."""
        return self._run(self._talk(at_once=False))

    def report_now(self) -> Outcome:
        """Report without waiting for the appointed time: for trying it out by hand."""
        return self._run(self._talk(at_once=True))

    def _run(self, talk: Talk | Outcome) -> Outcome:
        if isinstance(talk, Outcome):
            return talk
        from blendstream.localclient.http_transport import carry  # noqa: PLC0415

        return carry(self._server, partial(self._advance, talk), self._http)


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
        """Do what is due, if anything. Call it at times that do not depend on searches."""
        return await self._run(self._talk(at_once=False))

    async def report_now(self) -> Outcome:
        """Report without waiting for the appointed time: for trying it out by hand."""
        return await self._run(self._talk(at_once=True))

    async def run(self) -> None:
        """Report whenever it is due, for ever; a refusal is logged and tried again later."""
        import asyncio  # noqa: PLC0415

        while True:
            try:
                again_at_s = (await self.maybe_report()).again_at_s
            except ClientRefused as refusal:
                log.warning("localclient_refused: %s", refusal)
                again_at_s = self._context.back_off.after_answer(self._context.now_s())
                if self._pause and self._pause.result is refusal:
                    again_at_s = self._pause.until_s
            await asyncio.sleep(max(1, again_at_s - self._context.now_s()))

    async def _run(self, talk: Talk | Outcome) -> Outcome:
        if isinstance(talk, Outcome):
            return talk
        from blendstream.localclient.http_transport import carry_async  # noqa: PLC0415

        return await carry_async(self._server, partial(self._advance, talk), self._http)


def forget(folder: str | Path) -> None:
    """As a client's `forget`, also on a folder whose state cannot be read: no client opens it."""
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
        windows_answered=len(state.claims),
        last_epoch=state.claims[-1].epoch if state.claims else None,
        waiting_until_s=state.appointment.act_at_s if state.appointment else None,
        unsent_epoch=state.outgoing.epoch if state.outgoing else None,
    )
