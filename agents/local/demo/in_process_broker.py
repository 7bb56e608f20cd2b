"""Run a broker inside a Python process, for the demo where Kafka's jars cannot be downloaded.

It is librdkafka's mock of Kafka, which implements Kafka's protocol on 127.0.0.1 in memory. Only the
demo uses it, and only this file refers to it: the demo starts the service's processes with
`python -m blendstream.agents.local.demo.in_process_broker SUBCOMMAND`, which replaces the calls
that this broker does not support. No setting selects it.

Promises: sufficient for a demo on one machine, and nothing else: see `WARNING`.
Assumes: one process of each kind, as the demo starts them.

It uses private parts of confluent-kafka: the location and the C functions of the librdkafka inside
it. Tested with confluent-kafka>=2.6,<2.17; raise the bound only when tests/agents/local/demo
passes.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka

from blendstream.agents.local.jars import cached_jars
from blendstream.agents.local.local_server import LocalPart
from blendstream.agents.local.process_guard import StackError
from blendstream.streams.kafka.kafka_clients import KafkaInspector, TopicDescription

if TYPE_CHECKING:
    from blendstream.agents.gateway.gateway_process import GatewayProcess
    from blendstream.agents.jobs.broker_clocks import ClockComparison

__all__ = ["InProcessBroker"]

_MODULE = "blendstream.agents.local.demo.in_process_broker"
_PARTITIONS = 4


class InProcessBroker(LocalPart):
    """A broker for one demo: the constructor starts it, `close` ends it. Writes no data to disk."""

    name = "the in-process broker"
    ready_within_s = 60.0
    prefix = "blender"

    WARNING = (
        "Maven is not here to fetch Kafka: going on with librdkafka's in-process broker, which "
        'promises neither durability nor transactions (so not "released once"), keeps the '
        "senders' times and deletes no raw records. Good for a look, never for data that matters."
    )

    @staticmethod
    def needed(environment: Mapping[str, str] = os.environ) -> bool:
        """Return True if there is neither a Kafka to use nor a way to download one."""
        given = environment.get("KAFKA_URL")
        return not given and cached_jars() is None and shutil.which("mvn") is None

    @staticmethod
    def command(subcommand: str) -> list[str]:
        """Return the command that starts the gateway, the worker or the jobs on this broker."""
        return [sys.executable, "-m", _MODULE, subcommand]

    @property
    def url(self) -> str:
        return f"kafka://{self._address.read_text()}"

    @property
    def _address(self) -> Path:
        return self.folder / "address"

    def _prepare(self) -> None:
        """Do nothing: its only file is its address, which `serve` writes."""

    def _command(self) -> list[str]:
        return self.command("serve")

    def _answers(self) -> bool:
        return self._address.exists()

    # --- the broker's own process ---------------------------------------------------------------

    @classmethod
    def serve(cls) -> int:
        """Run the broker until the process is ended; write its address to the working folder."""
        library = _library()
        error = ctypes.create_string_buffer(512)
        owner = library.rd_kafka_new(0, library.rd_kafka_conf_new(), error, len(error))
        if not owner:
            raise StackError(f"librdkafka did not start: {error.value.decode()}")
        cluster = library.rd_kafka_mock_cluster_new(owner, 1)
        for name, partitions in cls._topics().items():
            library.rd_kafka_mock_topic_create(cluster, name.encode(), partitions, 1)
        address = library.rd_kafka_mock_cluster_bootstraps(cluster).decode()
        # Renamed when complete, because the parent waits for the file.
        Path("address.unfinished").write_text(address)
        Path("address.unfinished").rename("address")
        while True:
            signal.pause()

    @classmethod
    def _topics(cls) -> dict[str, int]:
        from blendstream.streams.kafka.topics import Topics  # noqa: PLC0415
        from blendstream.streams.settings import Settings  # noqa: PLC0415 - only the broker needs them

        settings = Settings.from_values(
            {
                "kafka.url": "kafka://127.0.0.1:1",
                "redis.url": "redis://127.0.0.1:1/0",
                "topics.prefix": cls.prefix,
                "topics.partitions": _PARTITIONS,
                "keys.master_secrets": {"none": "00" * 32},
                "keys.current_id": "none",
                "budget.period_s": 86_400,
                "budget.optin_epsilon_limit": 100.0,
                "budget.optin_delta_limit": 1.0,
                "budget.client_epsilon_limit": 100.0,
                "budget.client_delta_limit": 1.0,
            }
        )
        return {topic.name: topic.partitions for topic in Topics(settings).all()}

    # --- in the service's processes -------------------------------------------------------------

    @classmethod
    def stand_in(cls) -> None:
        """Replace, in this process, the calls to Kafka that this broker does not support."""
        for module, name, stand_in in (
            (
                "blendstream.streams.kafka.topics",
                "_create",
                _nothing,
            ),  # Its topics were created when it started.
            (
                "blendstream.streams.kafka.topics",
                "_problems",
                _no_problems,
            ),  # It has no topic settings to check.
            (
                "blendstream.streams.kafka.kafka_clients:KafkaInspector",
                "describe",
                _describe,
            ),  # It has no topic ids.
            (
                "blendstream.streams.releases.retention:LogTrimmer",
                "bounds_before",
                _from_the_beginning,
            ),
            # Its transactions are not real.
            ("blendstream.streams.releases.log", "Producer", _PlainProducer),
            # It stores the senders' times, and its acknowledgements have a constant as append time.
            ("blendstream.agents.gateway.state.frame_writer", "append_time_ms", _now_ms),
            ("blendstream.streams.releases.seal_markers", "append_time_ms", _now_ms),
            (
                "blendstream.agents.gateway.gateway_process:GatewayProcess",
                "_compare_clocks",
                _look_away,
            ),
            (
                "blendstream.agents.jobs.broker_clocks:ClockComparison",
                "compare",
                _compare_with_no_broker,
            ),
        ):
            where, _, inside = module.partition(":")
            owner: Any = importlib.import_module(where)
            if inside:
                owner = getattr(owner, inside)
            if not hasattr(owner, name):
                raise StackError(
                    f"{module} has no {name} any more; correct the demo's replacements"
                )
            setattr(owner, name, stand_in)


async def _nothing(*_: object, **__: object) -> None:
    """Do nothing."""


async def _no_problems(*_: object) -> list[str]:
    return []


async def _from_the_beginning(
    _trimmer: object, _topic: str, _time_ms: int | None, at_most: Sequence[int]
) -> list[int]:
    """Return bounds that delete nothing, because this broker cannot delete records."""
    return [0] * len(at_most)


def _now_ms(*_: object) -> int:
    """Return the sender's own time."""
    return int(time.time() * 1000)


def _look_away(gateway: GatewayProcess, *_: object) -> None:
    """Accept this machine's clock in the gateway: there is no other to compare it with."""
    gateway._clock.appended(sent_s=0.0, append_s=0.0, acknowledged_s=0.0)


async def _compare_with_no_broker(comparison: ClockComparison) -> None:
    """Accept this machine's clock, in the jobs."""
    comparison._clocks.appended(0, sent_s=0.0, append_s=0.0, acknowledged_s=0.0)


async def _describe(
    log: KafkaInspector, topics: Sequence[str]
) -> dict[str, TopicDescription | None]:
    cluster = await asyncio.to_thread(log._admin.list_topics, timeout=10)
    return {
        name: TopicDescription("in-process", len(cluster.topics[name].partitions), copies=1)
        if name in cluster.topics
        else None
        for name in topics
    }


class _PlainProducer(confluent_kafka.Producer):
    """A producer without transactions: it writes each record immediately."""

    def __init__(self, options: Mapping[str, Any], **more: Any) -> None:
        plain = {k: v for k, v in options.items() if not k.startswith("transaction")}
        super().__init__(plain, **more)

    def init_transactions(self, *_: Any) -> None:
        """Do nothing; no other producer is fenced."""

    def begin_transaction(self, *_: Any) -> None:
        """Do nothing."""

    def commit_transaction(self, *_: Any) -> None:
        """Do nothing: the records are already delivered."""


def _library() -> Any:
    """Load the librdkafka inside confluent-kafka, with its C functions."""
    package = Path(confluent_kafka.__file__).parent
    folders = (package.parent / "confluent_kafka.libs", package / ".dylibs", package)
    libraries = [file for folder in folders for file in sorted(folder.glob("librdkafka*"))]
    if not libraries:
        raise StackError(
            "Kafka could not be fetched (no Maven), and this confluent-kafka carries no librdkafka "
            "of its own to stand in for it. Install Maven, or set KAFKA_URL to a Kafka that runs."
        )
    library = ctypes.CDLL(str(libraries[0]))
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    for name, result, arguments in (
        ("rd_kafka_conf_new", pointer, []),
        ("rd_kafka_new", pointer, [number, pointer, text, ctypes.c_size_t]),
        ("rd_kafka_mock_cluster_new", pointer, [pointer, number]),
        ("rd_kafka_mock_cluster_bootstraps", text, [pointer]),
        ("rd_kafka_mock_topic_create", number, [pointer, text, number, number]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def _main(subcommand: str) -> int:
    if subcommand == "serve":
        return InProcessBroker.serve()
    from blendstream.agents.cli import main  # noqa: PLC0415 - the broker does not need it

    InProcessBroker.stand_in()
    return main([subcommand])


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1]))
