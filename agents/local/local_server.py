"""What the local Kafka and Redis share: start, pause, kill, restart and stop, for tests to use."""

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
    """Say every other second how long something has taken, so that it does not seem to hang."""
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
    """One server with its folder and its port, which it keeps through every restart.

    Built means started and ready. A context manager: leaving it ends the server and removes the
    temporary folder. A named `folder` is kept, and the server is given time to close its files.
    """

    name: str
    ready_within_s: float
    #: Its temporary folder must not reach a disk.
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
        """Where clients connect."""

    @abstractmethod
    def _prepare(self) -> None:
        """Write what the first start needs."""

    @abstractmethod
    def _command(self) -> list[str]:
        """The server's command line."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether a real request is answered; False for a server that is still loading."""

    @property
    def server(self) -> Server:
        if self._server is None:
            raise StackError(f"{self.name} is not running; call start() first")
        return self._server

    def start(self) -> None:
        """Start, on the same port and data as before, and wait until it truly answers."""
        if self._server is not None and self._server.running:
            return
        self._server = self._guard.start(self._command(), log=self.folder / "server.log")
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Return when a real request is answered; raise with the reason if none is in time."""
        self._wait_for(self._answers, "answer")

    def pause(self) -> None:
        """SIGSTOP: connections stay open, nothing answers."""
        self.server.pause()

    def resume(self) -> None:
        self.server.resume()

    def kill(self) -> None:
        """SIGKILL: what was not written is lost, as in a crash."""
        self.server.kill()

    def stop(self) -> None:
        """SIGTERM: files are closed in order."""
        self.server.stop()

    def restart(self) -> None:
        """Kill if it runs, then start on the same port and data."""
        self.kill()
        self.start()

    def close(self) -> None:
        """End the server for good, and remove the folder unless it was named."""
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
