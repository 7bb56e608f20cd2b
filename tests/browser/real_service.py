"""The real gateway, Kafka, worker and Redis, for devices in a browser."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from blendstream.blender.values.cells import RandomizerSpec
from blendstream.streams.names import InputStream, OptinSubgroup
from blendstream.streams.tables.batch_verdict import SEPARATOR
from tests.counted_records import record_counts
from tests.service.builder import Service, in_thread, running_service
from tests.service.processes import Gateway
from tests.service.written_log import head_list_document

#: So sure that the device's own cell is what is counted: another has a chance of 50·e^-20.
SURE = RandomizerSpec("randomized-response", 20.0)
#: What the tests search for and open: a record of `head_list_document`.
QUERY, URL, CELL = "query 1", "https://r1.example/", 1


class RealService(Service):
    """With a release log that the test writes."""

    gateway: Gateway

    @property
    def url(self) -> str:
        return self.gateway.url

    def publish_head_list(self, epoch: int) -> None:
        """A list about a window that ends with this second."""
        time.sleep(1.1 - time.time() % 1)  # Later than everything that was noted.
        document = head_list_document(epoch, randomizer=SURE)
        self.releases.open_epoch(epoch, start_ms=document.window_start_s * 1000)
        self.releases.seal_records(epoch)
        self.releases.publish_head_list(document)

    def open_epoch_that_ends_soon(self, epoch: int) -> None:
        """Opting in happens in the last quarter of a window."""
        ends_s = int(time.time()) + 8
        self.releases.open_epoch(epoch, start_ms=(ends_s - 3600) * 1000)

    def cells(self, epoch: int, reports: int) -> list[int]:
        """Counts of an epoch's cells, once so many reports were counted."""

        async def read() -> list[int]:
            tables = await self.until_total(InputStream.CLIENT_REPORTS, epoch, reports)
            found = await tables.cell_counts(epoch, range(self.partitions), 51)
            await tables.close()
            return [int(count) for count in found]

        return in_thread(read())

    def optin_records(self, epoch: int, records: int) -> dict[tuple[str, str], int]:
        """Counts of an epoch's opt-in records, once so many were counted."""

        async def read() -> dict[tuple[str, str], int]:
            tables = await self.until_total(InputStream.OPTIN_RECORDS, epoch, records)
            found: dict[tuple[str, str], int] = {}
            for share in OptinSubgroup:
                counts = await record_counts(tables, epoch, share, range(self.partitions))
                for text, count in counts.items():
                    query, _, url = text.partition(SEPARATOR)
                    found[query.decode(), url.decode()] = count
            await tables.close()
            return found

        return in_thread(read())

    def said(self, *texts: str) -> list[str]:
        """Which of these texts are in a log or a metric."""
        said = "".join(part.output() for part in self.parts) + self.gateway.metrics()
        return [text for text in texts if text in said]


@contextmanager
def real_service(kafka_url: str, redis_url: str, **settings: str) -> Iterator[RealService]:
    """Started, and ready to take reports."""
    with running_service(kafka_url, redis_url, of=RealService, **settings) as made:
        made.gateway = made.start_gateway().wait_ready()
        made.start_worker()
        yield made
