"""Base class of local servers: start, pause, kill, restart and stop, for tests to use."""

import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from blendstream.agents.local.jars import Progress
from blendstream.agents.local.process_guard import Closing, ProcessGuard, Server, StackError

__all__ = ["LocalPart", "ticking"]

_TICK_S = 2.0


@contextmanager
def ticking(progress: Progress, what: str, every_s: float = _TICK_S) -> Iterator[None]:
    """Report every two seconds how long something has taken, so that it does not seem to hang."""
    began = time.monotonic()
    done = threading.Event()

    def tick() -> None:
        while not done.wait(every_s):
            progress(f"{what}: {time.monotonic() - began:.0f} s so far ...")

    ticker = threading.Thread(target=tick, daemon=True)
    ticker.start()
    try:
        yield
    finally:
        done.set()
        ticker.join()


class LocalPart(Closing):
    """One server, with a folder and a port that every restart reuses.

    The constructor starts it and waits until it is ready. A context manager: leaving it ends the
    server and removes the temporary folder. A named `folder` is kept, and the server then gets
    time to close its files.
    """

    name: str
    ready_within_s: float
    #: True if its temporary folder must not be on a disk.
    in_memory = False

    def __init__(self, folder: Path | None = None, progress: Progress = lambda _line: None) -> None:
        self._keep_files = folder is not None
        self._guard = ProcessGuard(folder, in_memory=self.in_memory)
        self.folder = self._guard.folder
        self._server: Server | None = None
        try:
            with ticking(progress, f"waiting until {self.name} answers"):
                self._prepare()
                self.start()
        except BaseException:
            self._guard.close()
            raise

    @property
    @abstractmethod
    def url(self) -> str:
        """The URL for clients."""

    @abstractmethod
    def _prepare(self) -> None:
        """Write the files that the first start needs."""

    @abstractmethod
    def _command(self) -> list[str]:
        """Return the server's command line."""

    @abstractmethod
    def _answers(self) -> bool:
        """Return True if the server responds to a real request; False while it is loading."""

    @property
    def server(self) -> Server:
        if self._server is None:
            raise StackError(f"{self.name} is not running; call start() first")
        return self._server

    def start(self) -> None:
        """Start, on the same port and data as before, and wait until it responds."""
        if self._server is not None and self._server.running:
            return
        self._server = self._guard.start(self._command(), log=self.folder / "server.log")
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until the server responds to a real request; raise `StackError` if not in time."""
        self._wait_for(self._answers, "answer")

    def pause(self) -> None:
        """Send SIGSTOP: connections stay open, but the server does not respond."""
        self.server.pause()

    def resume(self) -> None:
        """Send SIGCONT after `pause`."""
        self.server.resume()

    def kill(self) -> None:
        """Send SIGKILL: unwritten data is lost, as in a crash."""
        self.server.kill()

    def stop(self) -> None:
        """Send SIGTERM: the server closes its files and exits."""
        self.server.stop()

    def restart(self) -> None:
        """Kill if it runs, then start on the same port and data."""
        self.kill()
        self.start()

    def close(self) -> None:
        """End the server permanently, and remove the folder unless it was named."""
        if self._keep_files and self._server is not None:
            self._server.stop()
        self._guard.close()

    def _wait_for(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + self.ready_within_s
        while not condition():
            if not self.server.running:
                raise StackError(
                    f"{self.name} must keep running, but it ended while starting. "
                    f"It last printed:\n{self.server.last_words()}"
                )
            if time.monotonic() > deadline:
                raise StackError(
                    f"{self.name} must {what} within {self.ready_within_s:g} s, and did not. "
                    f"It last printed:\n{self.server.last_words()}"
                )
            time.sleep(0.05)
