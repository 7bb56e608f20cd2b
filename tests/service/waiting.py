"""Wait for something that must come; what did not come is named, with the last answer."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

__all__ = ["until", "wait_for"]

T = TypeVar("T")
Errors = type[Exception] | tuple[type[Exception], ...]

#: Also on a machine that does ten other things.
WITHIN_S = 60.0
EVERY_S = 0.05


def wait_for(
    condition: Callable[[], T],
    what: str,
    timeout_s: float = WITHIN_S,
    *,
    every_s: float = EVERY_S,
    forgive: Errors = (),
    about: Callable[[], str] = str,
) -> T:
    """The first answer that is true. `forgive`: errors that count as no; `about`: what a failure
    tells besides."""
    deadline = time.monotonic() + timeout_s
    while True:
        last: object
        try:
            if last := condition():
                return last
        except forgive as error:
            last = error
        _check(deadline, what, timeout_s, last, about)
        time.sleep(every_s)


async def until(
    condition: Callable[[], Awaitable[T] | T],
    what: str,
    timeout_s: float = WITHIN_S,
    *,
    every_s: float = EVERY_S,
    forgive: Errors = (),
    about: Callable[[], str] = str,
) -> T:
    """Wait in an event loop; the condition may be a coroutine function."""
    deadline = time.monotonic() + timeout_s
    while True:
        last: Any
        try:
            last = condition()
            if inspect.isawaitable(last):
                last = await last
            if last:
                return last  # type: ignore[no-any-return]
        except forgive as error:
            last = error
        _check(deadline, what, timeout_s, last, about)
        await asyncio.sleep(every_s)


def _check(
    deadline: float, what: str, timeout_s: float, last: object, about: Callable[[], str]
) -> None:
    if time.monotonic() > deadline:
        text = f"{what} did not come within {timeout_s:g} s; the last answer was {last!r}"
        raise AssertionError(f"{text}\n{about()}".rstrip())
