"""A service of its own for `agents.process`, as a program: what it does wrong is its argument."""

from __future__ import annotations

import asyncio
import os
import sys
import time

from prometheus_client import CollectorRegistry, Counter

from blendstream.agents import process
from blendstream.streams.errors import BlenderError
from blendstream.streams.settings.sections import WorkerSettings


class SmallService:
    """Works until stopped, unless told otherwise."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self._stopping = asyncio.Event()

    @classmethod
    async def connect(cls, fault: str) -> SmallService:
        print("connecting", flush=True)
        if fault == "connect hangs":
            await asyncio.to_thread(time.sleep, 60)
        return cls(fault)

    @property
    def unready(self) -> list[str]:
        return ["the store is away", "the clock is off"] if self.fault == "unready" else []

    async def run(self) -> str | None:
        print("running", flush=True)
        if self.fault == "crash":
            os.abort()
        if self.fault == "unfit":
            return "it cannot go on"
        await self._stopping.wait()
        if self.fault == "loop hangs":
            time.sleep(60)  # noqa: ASYNC251 - the event loop itself is to hang
        return None

    def stop(self) -> None:
        self._stopping.set()

    async def close(self) -> None:
        if self.fault == "close hangs":
            await asyncio.sleep(60)
        print("closed", flush=True)


def main(fault: str, port: int) -> None:
    registry = CollectorRegistry()
    Counter("steps", "Steps.", registry=registry).inc()
    settings = WorkerSettings(metrics_port=port, stop_deadline_s=1.0)
    try:
        asyncio.run(
            process.run(
                lambda: SmallService.connect(fault), "small", settings, "127.0.0.1", registry
            )
        )
    except BlenderError as error:
        print(error)
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
