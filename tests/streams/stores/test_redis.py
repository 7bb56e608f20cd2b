"""Which of Redis's errors pass, and which need somebody to look."""

from __future__ import annotations

import pytest
from redis.exceptions import ReadOnlyError, ResponseError

from streams.errors import StoreMismatch, StoreUnavailable
from streams.stores.redis import answered

SCRIPT = "Error running script (call to f_0123abcd): @user_script:62: @user_script: 62: "


async def told(error: Exception) -> None:
    async def call() -> None:
        raise error

    await answered(call())


@pytest.mark.parametrize(
    "text",
    [
        "MISCONF Errors writing to the AOF file: No space left on device",
        "BUSY Redis is busy running a script.",
        SCRIPT + "-OOM command not allowed when used memory > 'maxmemory'.",
        f"ERR {SCRIPT}-OOM command not allowed when used memory > 'maxmemory'. ",
        SCRIPT + "-READONLY You can't write against a read only replica.",
        SCRIPT + "-MISCONF Redis is configured to save RDB snapshots, but it is unable to.",
        SCRIPT + "-NOREPLICAS Not enough good replicas to write.",
    ],
)
async def test_a_full_or_failing_server_is_tried_again(text: str) -> None:
    """Taken for a broken key, a full Redis would stop every partition until somebody rebuilds."""
    with pytest.raises(StoreUnavailable):
        await told(ResponseError(text))


async def test_a_server_that_fails_over_is_tried_again() -> None:
    with pytest.raises(StoreUnavailable):
        await told(ReadOnlyError("You can't write against a read only replica."))


@pytest.mark.parametrize(
    "text",
    [
        SCRIPT + "WRONGKEY x-OOM:{t/0}:totals must be a hash, found a string",
        SCRIPT + "-WRONGTYPE Operation against a key holding the wrong kind of value",
        SCRIPT + "-NOPERM this user has no permissions to run the 'hset' command",
        "NOPERM this user has no permissions to run the 'hset' command",
    ],
)
async def test_what_will_be_answered_again_is_not_repeated_for_ever(text: str) -> None:
    with pytest.raises(StoreMismatch):
        await told(ResponseError(text))
