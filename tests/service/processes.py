"""Processes of a service that a test can disturb."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx

from tests.service.settings import ROOT
from tests.service.waiting import wait_for

__all__ = ["Gateway", "Jobs", "Part", "Program", "verb"]

#: A verb of `blendstream` on a machine whose clock is wrong.
_WRONG_CLOCK = """
import sys, time
right = time.time
time.time = lambda: right() + {off_s}
from blendstream.agents.cli import main
sys.exit(main(["{name}"]))
"""


def verb(name: str, clock_off_s: float = 0.0) -> list[str]:
    """The command `blendstream NAME`."""
    if clock_off_s:
        return [sys.executable, "-c", _WRONG_CLOCK.format(off_s=clock_off_s, name=name)]
    return [sys.executable, "-m", "blendstream.agents.cli", name]


class Part:
    """A process; its output is kept. `kind`: worker, jobs or gateway."""

    pid: int
    url = ""

    def __init__(self, kind: str, environment: Mapping[str, str], log: Path) -> None:
        self.kind = kind
        self.name = f"{kind} ({log.name})"
        self.log = log
        self.metrics_port = int(environment[f"BLENDSTREAM_{kind.upper()}_METRICS_PORT"])

    @property
    def exit_code(self) -> int | None:
        """None while it runs; minus the signal's number when one ended it."""
        raise NotImplementedError

    @property
    def running(self) -> bool:
        return self.exit_code is None

    @property
    def paused(self) -> bool:
        with contextlib.suppress(OSError):
            stat = Path(f"/proc/{self.pid}/stat").read_text()
            return stat.rpartition(")")[2].split()[0] == "T"
        return False

    def _signal(self, number: int) -> None:
        if self.running:
            with contextlib.suppress(ProcessLookupError):  # It may end in this moment.
                os.kill(self.pid, number)

    def kill(self) -> None:
        """In the middle of whatever it does, paused or not."""
        self._signal(signal.SIGKILL)
        self.wait(10)

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def wait(self, timeout_s: float = 20) -> int:
        """The exit code, once it has ended."""
        wait_for(lambda: not self.running, f"the end of {self.name}", timeout_s, about=self.tail)
        assert self.exit_code is not None
        return self.exit_code

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        self.terminate()
        return self.wait()

    def output(self) -> str:
        """All that it wrote."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def tail(self) -> str:
        """The end of it, for a failure."""
        return f"--- {self.name}\n{self.output()[-4000:]}"

    def metrics(self) -> str:
        """Return its Prometheus metrics."""
        return httpx.get(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=5).text


class Program(Part):
    """A program of its own."""

    def __init__(
        self, kind: str, environment: Mapping[str, str], log: Path, *, clock_off_s: float = 0.0
    ) -> None:
        super().__init__(kind, environment, log)
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                verb(kind, clock_off_s),
                cwd=ROOT,
                env=environment,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        self.pid = self._process.pid

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()


class Gateway(Program):
    """A gateway, and where people reach it."""

    def __init__(
        self, environment: Mapping[str, str], log: Path, *, clock_off_s: float = 0.0
    ) -> None:
        self.port = int(environment["BLENDSTREAM_GATEWAY_PORT"])
        self.url = f"http://127.0.0.1:{self.port}"
        self._unix_socket = environment.get("BLENDSTREAM_GATEWAY_UNIX_SOCKET")
        super().__init__("gateway", environment, log, clock_off_s=clock_off_s)

    def wait_ready(self, timeout_s: float = 60) -> Gateway:
        """Return when /readyz reports ready."""

        def ready() -> bool:
            with httpx.Client(transport=httpx.HTTPTransport(uds=self._unix_socket)) as client:
                answer = client.get(f"{self.url}/readyz", timeout=5)
            return answer.status_code == 200 or not self.running

        wait_for(ready, "readiness", timeout_s, forgive=httpx.TransportError, about=self.tail)
        assert self.running, self.tail()
        return self


class Jobs(Part):
    """Jobs, forked from a process that has their libraries loaded."""

    _server = multiprocessing.get_context("forkserver")

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        super().__init__("jobs", environment, log)
        from tests.service.job_main import begin

        self._server.set_forkserver_preload(["tests.service.job_main"])
        self._process = self._server.Process(target=begin, args=(words, environment, log))
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def exit_code(self) -> int | None:
        return self._process.exitcode
