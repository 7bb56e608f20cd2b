"""Start server processes that cannot outlive the program that started them.

Promises: when this program ends, by return, exception, Ctrl-C or SIGKILL, every server started here
is killed and the guard's temporary folder is removed, within about a second.
Mechanism: a small process in its own session (`process_guard_main`) starts the servers and reads a
pipe from this program. PR_SET_PDEATHSIG would need no such process, but works only on Linux and for
the starting thread, and removes no folder.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from blendstream.blender.values.errors import BlenderError

__all__ = ["Closing", "ProcessGuard", "Server", "StackError"]

PROCESS = Path(__file__).with_name("process_guard_main.py")
TMPFS = Path("/dev/shm")  # noqa: S108 - Linux's own; the folder in it gets a random name


class StackError(BlenderError):
    """Raised when a part of the local stack cannot be found, started or used."""


class Closing(ABC):
    """Base class of context managers that call `close` at the end."""

    @abstractmethod
    def close(self) -> None:
        """End everything that was started, and wait for it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ProcessGuard(Closing):
    """Owns a folder and the server processes that work in it.

    `folder` names a folder to keep; without it the guard creates a temporary folder and removes it
    at the end. `in_memory` creates it on a tmpfs, if the system has one.
    """

    def __init__(self, folder: Path | None = None, *, in_memory: bool = False) -> None:
        named = [str(folder.absolute())] if folder else []
        tmpfs = {"TMPDIR": str(TMPFS)} if in_memory and TMPFS.is_dir() else {}
        self._lock = threading.Lock()
        self._process = subprocess.Popen(  # noqa: S603 - our own script
            [sys.executable, "-I", "-S", str(PROCESS), str(os.getpid()), *named],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | tmpfs,
            start_new_session=True,  # Ctrl-C in the terminal must not reach the servers first.
        )
        self.folder = Path(self._answer()["folder"])

    def start(
        self, command: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None
    ) -> "Server":
        """Start one server; its output is appended to `log`."""
        answer = self._ask(
            do="start",
            command=list(command),
            log=str(log),
            folder=str(self.folder),
            environment=dict(environment or {}),
        )
        return Server(self, answer["pid"], log)

    def close(self) -> None:
        """Kill the servers that still run, remove the temporary folder, and wait for both."""
        with self._lock:
            if self._process.stdin and not self._process.stdin.closed:
                self._process.stdin.close()
            self._process.wait()
            if self._process.stdout:
                self._process.stdout.close()

    def _ask(self, **request: Any) -> dict[str, Any]:
        with self._lock:
            if self._process.stdin is None or self._process.stdin.closed:
                raise StackError("this part of the stack was closed; start a new one")
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            return self._answer()

    def _answer(self) -> dict[str, Any]:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise StackError("the guard process ended unexpectedly; start the stack again")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise StackError(f"a server could not be started: {answer['error']}")
        return answer


class Server:
    """One running process of the stack."""

    def __init__(self, guard: ProcessGuard, pid: int, log: Path) -> None:
        self._guard = guard
        self.pid = pid
        self.log = log

    def pause(self) -> None:
        """Send SIGSTOP: connections stay open, but the server does not respond."""
        self._guard._ask(do="signal", pid=self.pid, signal=int(signal.SIGSTOP))

    def resume(self) -> None:
        """Send SIGCONT after `pause`."""
        self._guard._ask(do="signal", pid=self.pid, signal=int(signal.SIGCONT))

    def kill(self) -> None:
        """Send SIGKILL, and wait until the process has ended."""
        self._guard._ask(do="kill", pid=self.pid)

    def stop(self, patience_s: float = 10) -> None:
        """Send SIGTERM, and SIGKILL if it has not ended within `patience_s`."""
        self._guard._ask(do="stop", pid=self.pid, patience_s=patience_s)

    @property
    def status(self) -> int | None:
        """The exit code, negative for the signal that ended it; None while the process exists."""
        status: int | None = self._guard._ask(do="poll", pid=self.pid)["status"]
        return status

    @property
    def running(self) -> bool:
        """True if the process exists, even if it is paused."""
        return self.status is None

    def printed(self) -> str:
        """Return everything that it printed."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def last_words(self, lines: int = 12) -> str:
        """Return the last lines of its output, for an error message."""
        return "\n".join(self.printed().splitlines()[-lines:]) or "(it printed nothing)"
