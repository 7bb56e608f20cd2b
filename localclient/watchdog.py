"""A limit on how long a blocking request may take in all.

httpx limits each wait for the next bytes, never their sum: a server that sends one byte of a
header every few seconds, or `100 Continue` for ever, would block the calling thread for ever.

Promises: when the time is up the connection is shut down, so that every call that waits for it
fails.
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
    """Watches over the connection of one talk, which several requests may share."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        #: Time ran out; nothing more comes from this connection.
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
        """Take note of a connection when it is made, and of TLS when that is put around it."""
        made: Any = info.get("return_value")
        if event.endswith(".complete") and hasattr(made, "get_extra_info"):
            with self._lock:
                self._socket = made.get_extra_info("socket")
                if self.ended:
                    self._shut()

    def _end(self) -> None:
        with self._lock:
            self.ended = True
            self._shut()

    def _shut(self) -> None:
        # Not closed: that would not wake a thread which waits, and another file might get its
        # number. Nor by an SSLSocket's own method, which drops what the waiting thread reads with.
        if self._socket is not None:
            with suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
