"""A process that cannot listen where it should says so in one line."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

from streams.errors import SettingsError

__all__ = ["listening"]


@contextlib.contextmanager
def listening(names: str, host: str, port: int) -> Iterator[None]:
    """Around what begins to listen; `names` are the settings that say where."""
    try:
        yield
    except OSError as error:
        # asyncio puts a sentence and the address where the system's word should be.
        named = isinstance(error, socket.gaierror) or error.errno is None
        why = error.strerror if named else os.strerror(error.errno or 0)
        raise SettingsError(
            [
                f"{names} must be an address that this process may listen on, got {host}:{port} "
                f"({why}); stop what listens there, or choose another"
            ]
        ) from error
