"""Limit the total duration of a blocking request.

httpx limits each wait for the next bytes, never the sum of these waits: a server that sends one
byte of a header every few seconds, or endless `100 Continue`, would block the calling thread
permanently.

Promises: when the time is up the watchdog shuts the connection down, so that every call that waits
for it fails.
Assumes: a transport that reports its connections by httpcore's `trace` extension, as httpx's own
do, also through proxies. Connecting is limited by httpx, for each of the server's addresses.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

__all__ = ["Watchdog"]


class Watchdog:
    """Watches the connection of one exchange, which several requests may share."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        #: True once the time is up and the connection is shut down.
        self.ended = False

    @contextmanager
    def ends_after(self, seconds: float) -> Iterator[None]:
        """Shut the connection down unless the block is left within `seconds`."""
        timer = threading.Timer(seconds, self._end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Note the socket when httpcore reports a connection, or TLS on top of it."""
        connection: Any = info.get("return_value")
        if event.endswith(".complete") and hasattr(connection, "get_extra_info"):
            with self._lock:
                self._socket = connection.get_extra_info("socket")
                if self.ended:
                    self._shut()

    def _end(self) -> None:
        with self._lock:
            self.ended = True
            self._shut()

    def _shut(self) -> None:
        # Shut the socket down rather than close it: closing would not wake a waiting thread, and
        # another file might get the descriptor's number. Do not use an SSLSocket's own `shutdown`,
        # which discards the TLS object with which the waiting thread reads.
        if self._socket is not None:
            with suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
