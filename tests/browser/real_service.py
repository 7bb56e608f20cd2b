"""The real gateway, Kafka, worker and Redis, for devices in a browser."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from blendstream.blender.values.cells import RandomizerSpec
from blendstream.streams.names import Share, Stem
from blendstream.streams.tables.batch_verdict import SEPARATOR
from tests.counted_records import record_counts
from tests.gateway_service import (
    GatewayService,
    GatewayUnderTest,
    counted,
    head_list_document,
    running,
)

T = TypeVar("T")

#: So sure that the device's own cell is what is counted: another has a chance of 50·e^-20.
SURE = RandomizerSpec("randomized-response", 20.0)
#: What the tests search for and open: a record of `head_list_document`.
QUERY, URL, CELL = "query 1", "https://r1.example/", 1


def in_thread(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end beside Playwright's own event loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


class RealService:
    """A gateway and a worker, with a release log that the test writes."""

    def __init__(self, service: GatewayService, gateway: GatewayUnderTest) -> None:
        self._service = service
        self._gateway = gateway
        self.url = gateway.url
        self.token = service.token
        self.signing_key = service.signing_key
        self.log = service.log

    def publish_head_list(self, epoch: int) -> None:
        """A list about a window that ends with this second."""
        time.sleep(1.1 - time.time() % 1)  # Later than everything that was noted.
        document = head_list_document(epoch, randomizer=SURE)
        self.log.open_epoch(epoch, start_ms=document.window_start_s * 1000)
        self.log.seal_records(epoch)
        self.log.publish_head_list(document)

    def open_epoch_that_ends_soon(self, epoch: int) -> None:
        """Opting in happens in the last quarter of a window."""
        ends_s = int(time.time()) + 8
        self.log.open_epoch(epoch, start_ms=(ends_s - 3600) * 1000)

    def cells(self, epoch: int, reports: int) -> list[int]:
        """Counts of an epoch's cells, once so many reports were counted."""

        async def read() -> list[int]:
            tables = await counted(self._service, Stem.CLIENT_REPORTS, epoch, reports)
            found = await tables.cell_counts(epoch, range(self._service.partitions), 51)
            await tables.close()
            return [int(count) for count in found]

        return in_thread(read())

    def optin_records(self, epoch: int, records: int) -> dict[tuple[str, str], int]:
        """Counts of an epoch's opt-in records, once so many were counted."""

        async def read() -> dict[tuple[str, str], int]:
            tables = await counted(self._service, Stem.OPTIN_RECORDS, epoch, records)
            found: dict[tuple[str, str], int] = {}
            for share in Share:
                counts = await record_counts(tables, epoch, share, range(self._service.partitions))
                for text, count in counts.items():
                    query, _, url = text.partition(SEPARATOR)
                    found[query.decode(), url.decode()] = count
            await tables.close()
            return found

        return in_thread(read())

    def said(self, *texts: str) -> list[str]:
        """Which of these texts are in a log or a metric."""
        said = self._gateway.output() + self._service.worker_output() + self._gateway.metrics()
        return [text for text in texts if text in said]


@contextmanager
def real_service(kafka_url: str, redis_url: str, **settings: str) -> Iterator[RealService]:
    """Started, and ready to take reports."""
    service = GatewayService(
        kafka_url,
        f"test-{secrets.token_hex(6)}",
        redis__url=redis_url,
        worker__session_timeout_s="6",
        worker__stop_deadline_s="5",
        **settings,
    )
    with running(service):
        in_thread(service.create())
        gateway = service.start().wait_ready()
        service.start_worker()
        yield RealService(service, gateway)
