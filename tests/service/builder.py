"""Builds a whole service: topics on a real Kafka, a real Redis, and its processes.

    async with service(kafka.url, redis.url, epoch__window_s="60") as made:
        made.start_worker()
        made.start_jobs()
        gateway = made.start_gateway().wait_ready()

Servers are the caller's: one broker or three, a Redis of any kind, through proxies or not, by their
URLs. Every process keeps its output, and every wait that fails shows it. Jobs run in a main program
of the tests' own (`job_main`), which may kill or pause itself at a step and run its clock ahead;
production has no such switch.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import Producer

from blendstream.agents.local.ports import free_port
from blendstream.agents.tokens import add_token
from blendstream.blender.values.cells import HeadList
from blendstream.streams.errors import StoreUnavailable
from blendstream.streams.kafka.kafka_clients import KafkaInspector, producer_settings
from blendstream.streams.kafka.topics import Topics, ensure_topics
from blendstream.streams.names import InputStream
from blendstream.streams.releases.compacted_topics import read_publications
from blendstream.streams.releases.epoch_state import EpochState, ReleaseLogState, Stage
from blendstream.streams.releases.log import ReleaseLog
from blendstream.streams.settings import Settings
from blendstream.streams.tables.redis import connect_redis
from blendstream.streams.tables.stage_tables import StageTable, stage_table
from blendstream.streams.wire.head_list_document import HeadListDocument
from tests.service.processes import Gateway, Jobs, Part, Program
from tests.service.settings import NO_REDIS, dotted, environment_of, service_values
from tests.service.waiting import until
from tests.service.written_log import WrittenLog

__all__ = ["APPLICATION", "STARTED_S", "Service", "in_thread", "running_service", "service"]

T = TypeVar("T")
S = TypeVar("S", bound="Service")

#: A process has started by then, also on a machine that does ten other things.
STARTED_S = 90.0
#: The application that has tokens.
APPLICATION = "test-app"


class Service:
    """One installation and its processes."""

    def __init__(
        self,
        kafka: str,
        redis: str = NO_REDIS,
        prefix: str = "",
        *,
        partitions: int = 2,
        **changes: str,
    ) -> None:
        self.partitions = partitions
        self._folder = tempfile.TemporaryDirectory(prefix="service-")
        self.folder = Path(self._folder.name)
        self.tokens = self.folder / "tokens"
        self.token = add_token(self.tokens, APPLICATION)
        self.signing_key = add_token(self.tokens, APPLICATION, for_users=True)
        self._orders = self.folder / "orders"
        self._orders.mkdir()
        prefix = prefix or f"test-{secrets.token_hex(6)}"
        self.values = service_values(kafka, redis, prefix, partitions)
        self.change(gateway__token_file=str(self.tokens), **changes)
        self.topics = Topics(self.settings)
        self.parts: list[Part] = []
        self.run_ahead(0)
        self.skew_jobs(0)

    # --- life -----------------------------------------------------------------------------------

    def change(self, **changes: str) -> None:
        """Change settings for processes started from now on: `epoch__window_s="4"`."""
        self.values |= dotted(changes)
        self.settings = Settings.from_values(self.values)

    async def look_from(self, kafka: str) -> None:
        """Let the test's own clients ask these brokers from now on, by new connections: the old
        ones may still believe a broker that was cut off. Processes keep the settings they had."""
        self.settings = Settings.from_values(self.values | {"kafka.url": kafka})
        log: ReleaseLog | None = vars(self).get("log")
        for name in ("kafka", "producer", "log"):
            vars(self).pop(name, None)
        if log is not None:
            await log.close()

    async def create(self) -> None:
        """Make the topics."""
        await ensure_topics(self.settings, self.kafka)

        async def every_partition_has_a_leader() -> bool:
            # A topic just made may have none for a moment; real jobs wait that out.
            for topic in self.topics.all():
                await self.kafka.ends(topic.name, range(topic.partitions))
            return True

        await self.until(every_partition_has_a_leader, 30, "leaders of all partitions")

    def end(self) -> None:
        """End every process and remove its files."""
        for part in self.parts:
            part.kill()
        with contextlib.suppress(FileNotFoundError):
            self._folder.cleanup()

    async def close(self) -> None:
        """End everything."""
        self.end()
        if "log" in vars(self):
            await self.log.close()

    # --- processes ------------------------------------------------------------------------------

    def environment(self, **changes: str) -> dict[str, str]:
        """Return the environment of a process, with free ports."""
        ports = ("worker.metrics_port", "jobs.metrics_port", "gateway.metrics_port", "gateway.port")
        free = {name: str(free_port()) for name in ports}
        return environment_of(self.values | free | dotted(changes))

    def _add(self, start: Callable[[Path], Any]) -> Any:
        part = start(self.folder / f"{len(self.parts)}.log")
        self.parts.append(part)
        return part

    def start_worker(self, **changes: str) -> Part:
        """A worker; settings of its own by `log__level="warning"`."""
        found: Part = self._add(lambda log: Program("worker", self.environment(**changes), log))
        return found

    def start_jobs(self, *options: str) -> Part:
        """Options as in `job_main`: `--seed N`, `--at KIND.STEP kill|pause`."""
        words = ["--orders", str(self._orders), *options]
        found: Part = self._add(lambda log: Jobs(words, self.environment(), log))
        return found

    def start_gateway(self, *, clock_off_s: float = 0.0, **changes: str) -> Gateway:
        """A gateway, on a clock that is off by so much; `wait_ready` waits for it."""
        environment = self.environment(**changes)
        found: Gateway = self._add(lambda log: Gateway(environment, log, clock_off_s=clock_off_s))
        return found

    def of_kind(self, kind: str) -> list[Any]:
        """Every process of a kind that was started: worker, jobs or gateway."""
        return [part for part in self.parts if part.kind == kind]

    def logs(self) -> str:
        """The end of what each process wrote."""
        return "\n".join(part.tail() for part in self.parts)

    # --- orders to jobs -------------------------------------------------------------------------

    def run_ahead(self, ms: int) -> None:
        """Let time run ahead by this much for every jobs process, the brokers' too."""
        self._write_order("clock", str(ms))

    def skew_jobs(self, ms: int) -> None:
        """Let the clock of every jobs process be off the brokers' by this much."""
        self._write_order("skew", str(ms))

    def _write_order(self, name: str, text: str) -> None:
        new = self._orders / f"{name}.new"
        new.write_text(text)
        new.rename(self._orders / name)

    def order(self, step: str, action: str) -> None:
        """Order the next jobs process at this step to `kill` or `pause` itself."""
        self._write_order("at", f"{step} {action}")

    @property
    def order_waits(self) -> bool:
        """Return True if no process has taken the last order yet."""
        return (self._orders / "at").exists()

    def take_order_back(self) -> None:
        """Withdraw the order: processes at the step continue."""
        (self._orders / "at").unlink(missing_ok=True)

    def took_order(self, part: Part) -> bool:
        """Return True if this process has taken an order; call it once per order."""
        try:
            (self._orders / f"taken.{part.pid}").unlink()
        except FileNotFoundError:
            return False
        return True

    async def disturbed(self, timeout_s: float = 60) -> Part:
        """The process that took the last order, once it is dead or paused."""

        def taker() -> Part | None:
            still = (part for part in self.parts if part.paused or not part.running)
            return next(filter(self.took_order, still), None)

        found: Part = await self.until(taker, timeout_s, "a process at the step that was ordered")
        return found

    # --- looking --------------------------------------------------------------------------------

    async def until(
        self,
        condition: Callable[[], Any],
        timeout_s: float = STARTED_S,
        what: str = "the condition",
    ) -> Any:
        """Wait until a condition holds; a server that does not respond counts as not yet."""
        return await until(condition, what, timeout_s, forgive=StoreUnavailable, about=self.logs)

    @cached_property
    def kafka(self) -> KafkaInspector:
        return KafkaInspector(self.settings.kafka)

    @cached_property
    def producer(self) -> Producer:
        return Producer(producer_settings(self.settings.kafka) | {"linger.ms": 5})

    @cached_property
    def releases(self) -> WrittenLog:
        """Writes the release log in the jobs' place."""
        topic = self.topics.releases.name
        return WrittenLog(self.settings.kafka.bootstrap, topic, self.partitions)

    @cached_property
    def log(self) -> ReleaseLog:
        """A reader of its own, kept for the whole test: connecting takes longer than reading."""
        return ReleaseLog(self.settings.kafka, self.topics.releases.name)

    async def log_state(self) -> ReleaseLogState:
        return await self.log.catch_up()

    async def until_stage(self, epoch: int, *stages: Stage, timeout_s: float = 60) -> EpochState:
        """Wait until the log has this stage; return the epoch's state."""

        async def there() -> EpochState | None:
            state = (await self.log_state()).epochs.get(epoch)
            return state if state is not None and state.stage in stages else None

        found: EpochState = await self.until(
            there, timeout_s, f"epoch {epoch} in {[s.value for s in stages]}"
        )
        return found

    async def document(self, reference: Any) -> bytes:
        return await self.log.read_document(reference)

    async def head_list(self, state: EpochState) -> tuple[HeadList, str]:
        assert state.head_list is not None
        reference = state.head_list.head_list
        data = await self.document(reference)
        return HeadListDocument.from_bytes(data).head_list, reference.id

    async def published(self, topic: str) -> dict[int, bytes]:
        return await read_publications(self.settings.kafka, topic)

    async def tables(self, stem: InputStream, timeout_s: float = 20.0) -> StageTable:
        """Open a stem's tables, with a timeout for busy machines."""
        client = await connect_redis(replace(self.settings.redis, timeout_s=timeout_s))
        topic, prefix = self.topics.of(stem).name, self.settings.topics.prefix
        return stage_table(stem, client, topic, prefix=prefix)

    async def until_total(
        self, stem: InputStream, epoch: int, expected: int, total: str = "counted"
    ) -> StageTable:
        """Wait until workers have counted (or received) so many entries; tables to look into."""
        tables = await self.tables(stem)

        async def counted() -> bool:
            totals = [await tables.totals(p, epoch) for p in range(self.partitions)]
            return sum(t.get(total, 0) for t in totals) >= expected

        await self.until(counted, STARTED_S, f"{expected} {stem} {total}")
        return tables


@contextlib.asynccontextmanager
async def service(
    kafka: str, redis: str = NO_REDIS, prefix: str = "", *, of: type[S] = Service, **options: Any
) -> AsyncIterator[S]:
    """A service whose topics are there and whose processes end with it."""
    made = of(kafka, redis, prefix, **options)
    try:
        await made.create()
        yield made
    finally:
        await made.close()


@contextlib.contextmanager
def running_service(*where: str, of: type[S] = Service, **options: Any) -> Iterator[S]:
    """Run it for a test without an event loop."""
    made = of(*where, **options)
    try:
        in_thread(made.create())
        yield made
    finally:
        made.end()


def in_thread(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, also beside an event loop of somebody else."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()
