"""Provide a Kafka and a Redis: start them, or use those that KAFKA_URL and REDIS_URL name."""

import asyncio
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NoReturn, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from blendstream.agents.local.jars import Progress
from blendstream.agents.local.local_cluster import LocalCluster
from blendstream.agents.local.local_kafka import LocalKafka, Member
from blendstream.agents.local.local_redis import LocalRedis
from blendstream.agents.local.local_server import LocalPart, ticking
from blendstream.agents.local.private_folder import claim_folder
from blendstream.agents.local.process_guard import Closing, StackError
from blendstream.agents.local.replicated_redis import LocalRedisCluster, LocalSentinels
from blendstream.streams.errors import StoreMismatch, StoreUnavailable
from blendstream.streams.kafka.kafka_clients import librdkafka_settings
from blendstream.streams.settings import load_kafka, load_redis
from blendstream.streams.tables.redis import connect_redis

__all__ = ["GivenServer", "Stack"]


@dataclass(frozen=True, slots=True)
class GivenServer:
    """A Kafka or Redis that the stack did not start and must not pause, kill or restart."""

    url: str

    @property
    def bootstrap(self) -> str:
        """Hosts and ports, for Kafka clients."""
        return self.url.rpartition("://")[2].rstrip("/")

    def close(self) -> None:
        """Do nothing: the stack did not start it."""

    def _refuse(self) -> NoReturn:
        raise StackError(
            "only a server that the stack started may be disturbed; this one was given by "
            "KAFKA_URL or REDIS_URL. Unset the variable to let the stack start its own."
        )

    def pause(self) -> None:
        """Raise `StackError`."""
        self._refuse()

    resume = kill = stop = restart = pause


#: One server, six nodes of a cluster, or a primary with a replica that Sentinels watch.
RedisKind = Literal["single", "cluster", "sentinel"]
LocalRedisKind = LocalRedis | LocalRedisCluster | LocalSentinels
_REPLICATED: Final[Mapping[RedisKind, Callable[[], LocalRedisKind]]] = {
    "cluster": LocalRedisCluster,
    "sentinel": LocalSentinels,
}


class Stack(Closing):
    """A Kafka and a Redis to use; closing it ends the servers that it started."""

    def __init__(
        self, kafka: LocalKafka | LocalCluster | GivenServer, redis: LocalRedisKind | GivenServer
    ) -> None:
        self.kafka = kafka
        self.redis = redis

    @property
    def started(self) -> list[LocalPart]:
        """The servers that the stack started."""
        parts: list[LocalPart] = []
        for server in (self.kafka, self.redis):
            if isinstance(server, LocalCluster):
                parts += server.nodes.values()
            elif isinstance(server, LocalRedisCluster | LocalSentinels):
                parts += server.nodes
                parts += getattr(server, "sentinels", [])
            elif not isinstance(server, GivenServer):
                parts.append(server)
        return parts

    @classmethod
    def start(
        cls,
        folder: Path | None = None,
        *,
        environment: Mapping[str, str] = os.environ,
        ports: tuple[int | None, int | None] = (None, None),
        progress: Progress = lambda _line: None,
        archive_option: str | None = None,
        brokers: Literal[1, 3] = 1,
        redis_kind: RedisKind = "single",
    ) -> Self:
        """Start the servers that KAFKA_URL and REDIS_URL do not name; return when both respond.

        `folder` stores the data of both for the next start; without it the data ends with the
        stack. It must belong to this user alone and have no links. A replicated Redis accepts no
        folder, because its data always ends with the stack.
        `ports` are those of Kafka and Redis, if they must be constant.
        `archive_option` is `LocalKafka`'s, for a caller that starts Kafka only once.
        """
        if folder:
            claim_folder(folder, "kafka", "redis")
        with ExitStack() as undo:
            redis: LocalRedisKind | GivenServer
            if url := environment.get("REDIS_URL"):
                redis = GivenServer(url)
                with ticking(progress, "waiting until Redis answers"):
                    _ask_redis(environment)
            else:
                progress("starting Redis ...")
                redis = _start_redis(redis_kind, folder, ports[1])
            undo.callback(redis.close)
            kafka: LocalKafka | LocalCluster | GivenServer
            if url := environment.get("KAFKA_URL"):
                kafka = GivenServer(url)
                with ticking(progress, "waiting until Kafka answers"):
                    _ask_kafka(environment)
            elif brokers > 1:
                kafka = LocalCluster(folder / "kafka" if folder else None, progress=progress)
            else:
                progress("starting Kafka ...")
                kafka = LocalKafka(
                    folder / "kafka" if folder else None,
                    progress=progress,
                    archive_option=archive_option,
                    member=None if ports[0] is None else Member(ports[0]),
                )
            undo.pop_all()
        return cls(kafka, redis)

    def close(self) -> None:
        """End the servers that the stack started."""
        try:
            self.kafka.close()
        finally:
            self.redis.close()


def _start_redis(kind: RedisKind, folder: Path | None, port: int | None) -> LocalRedisKind:
    if kind == "single":
        return LocalRedis(folder / "redis" if folder else None, port=port)
    if folder:
        raise StackError(
            "a folder keeps the data of a single Redis for the next start, and a replicated one "
            f"was asked for ({kind}); leave --folder out, or take --redis single"
        )
    return _REPLICATED[kind]()


def _ask_kafka(environment: Mapping[str, str]) -> None:
    """Raise immediately if the given Kafka does not respond."""
    settings = load_kafka({**environment, "BLENDSTREAM_KAFKA_URL": environment["KAFKA_URL"]})
    try:
        AdminClient(librdkafka_settings(settings)).list_topics(timeout=settings.request_timeout_s)
    except KafkaException as error:
        raise _unavailable(
            "Kafka", settings.bootstrap, "KAFKA_URL", error.args[0].name()
        ) from error


def _ask_redis(environment: Mapping[str, str]) -> None:
    settings = load_redis({**environment, "BLENDSTREAM_REDIS_URL": environment["REDIS_URL"]})

    async def ask() -> None:
        await (await connect_redis(settings)).aclose()

    try:
        # In a separate thread, because the caller may be inside a running event loop.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, ask()).result()
    except (StoreMismatch, StoreUnavailable) as error:
        raise _unavailable("Redis", settings.url.hosts, "REDIS_URL", str(error)) from error


def _unavailable(name: str, hosts: str, variable: str, why: str) -> StackError:
    return StackError(
        f"{name} must answer at {hosts}, which {variable} names, and did not ({why}); start it, "
        f"correct {variable}, or unset it to let one be started here"
    )
