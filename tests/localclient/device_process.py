"""Devices in processes of their own, to be killed with SIGKILL at the n-th thing they do.

`python -m tests.localclient.device_process` reads one JSON order a line, forks a device for it,
waits for its end and prints how it ended. Forking from a process that has imported everything
makes a device cheap enough to be killed at every step.

A step is a moment before, in the middle of or after something that another process or the server
could see: bytes written (also half of them), synced, renamed, a request sent, an answer received.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from blendstream.blender.values.random_source import SystemRandomSource
from blendstream.localclient import LocalClient, OptIn
from blendstream.localclient.files import Files
from blendstream.localclient.local_client import _Parts
from blendstream.localclient.randomizer_check import build_randomizer
from tests.localclient.support import LISTED, ManualClock, head_list, limits


class Death:
    """Counts steps and kills this process at one of them."""

    def __init__(self, at_step: int | None) -> None:
        self.steps = 0
        self.at_step = at_step

    def step(self) -> None:
        if self.steps == self.at_step:
            os.kill(os.getpid(), signal.SIGKILL)
        self.steps += 1


class MortalFiles(Files):
    """A real disk, under a process that may die at each step."""

    def __init__(self, folder: Path, death: Death) -> None:
        super().__init__(folder)
        self.death = death

    def _write(self, handle: int, data: bytes) -> None:
        self.death.step()
        super()._write(handle, data[: len(data) // 2])
        self.death.step()
        super()._write(handle, data[len(data) // 2 :])
        self.death.step()

    def _sync(self, handle: int) -> None:
        super()._sync(handle)
        self.death.step()

    def _rename(self, old: Path, new: Path) -> None:
        super()._rename(old, new)
        self.death.step()

    def sync_parents(self) -> None:
        # One step for all: a process that dies between them leaves the same files behind.
        self.death.step()


class ForgetfulFiles(MortalFiles):
    """A broken device: it sends without having written its report down."""

    def replace(self, name: str, data: bytes) -> None:
        if b'"pending": {' not in data:
            super().replace(name, data)


class MortalTransport(httpx.HTTPTransport):
    """A real network, under a process that may die before sending and after being answered."""

    def __init__(self, death: Death) -> None:
        super().__init__(verify=False)  # plain HTTP to this machine; certificates take long to read
        self.death = death

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.death.step()
        response = super().handle_request(request)
        self.death.step()
        return response


def run(order: dict[str, Any]) -> None:
    """Live one device's life: search at some times, then call at others."""
    death = Death(order["die_at"])
    clock = ManualClock()
    disk = ForgetfulFiles if order.get("forgetful") else MortalFiles
    client = LocalClient(
        order["server"],
        order["folder"],
        limits(**order.get("limits", {})),
        opt_in=OptIn("sonja", "token") if order.get("opt_in") else None,
        http=lambda: httpx.Client(transport=MortalTransport(death)),
        _parts=_Parts(clock, SystemRandomSource(), lambda folder: disk(folder, death)),
    )
    for at_s in order["search_at"]:
        clock.now_s = at_s
        client.record(*LISTED[0])
    for at_s in order["call_at"]:
        clock.now_s = at_s
        client.maybe_report()
    if order.get("forget"):
        client.forget()


@dataclass
class Devices:
    """The process that forks devices."""

    process: subprocess.Popen[str]

    @classmethod
    def start(cls) -> Devices:
        command = [sys.executable, "-m", "tests.localclient.device_process"]
        pipe = subprocess.PIPE
        return cls(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True))

    def live(self, **order: Any) -> int:
        """Run one device; 0 when it lived to the end, −9 when it was killed."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps({"die_at": None, **order}) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def stop(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(10)


def main() -> None:
    """Fork a device for each order on standard input."""
    # Whatever is imported at first use is imported here, once, and not in every child.
    MortalTransport(Death(None)).close()
    build_randomizer(head_list().head_list, SystemRandomSource())
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                run(json.loads(line))
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
