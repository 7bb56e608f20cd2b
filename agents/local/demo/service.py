"""Start the service on this machine: Kafka, Redis, gateway, worker and jobs, a process each.

Promises: the demo cleans up after itself, even after `kill -9` (`agents.local.process_guard`).
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import httpx
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from redis.exceptions import RedisError

from blendstream.agents.local import GivenServer, Stack, StackError
from blendstream.agents.local.demo.in_process_broker import InProcessBroker
from blendstream.agents.local.local_server import LocalPart, ticking
from blendstream.agents.local.ports import free_port
from blendstream.agents.local.process_guard import ProcessGuard, Server
from blendstream.agents.tokens import add_token
from blendstream.blender.values.errors import BlenderError
from blendstream.streams.errors import StoreUnavailable
from blendstream.streams.kafka.kafka_clients import librdkafka_settings
from blendstream.streams.settings import load_kafka, load_redis
from blendstream.streams.settings.sections import KafkaSettings, RedisSettings
from blendstream.streams.tables.redis import answered, connect_redis
from blendstream.streams.user_tokens import mint_user_token

__all__ = ["GUEST", "DemoService", "EpochTimes"]

#: The user id for trying a client by hand, and the lifetime of its token.
GUEST = "guest"
_GUEST_S = 12 * 3600

_PATIENCE_S = 120
_VERB = (sys.executable, "-m", "blendstream.agents.cli")


class EpochTimes:
    """The times of the demo's short epochs, chosen for a machine with two cores."""

    def __init__(self, window_s: int) -> None:
        """Set a grace that covers linger, delivery deadline and twice the skew, as required."""
        self.window_s = window_s
        self.deadline_s = 3.0
        self.skew_s = 0.4
        self.grace_s = 4.0


class DemoService:
    """A running service: `start` starts it, `close` ends it; has the addresses of all parts."""

    def __init__(
        self,
        undo: ExitStack,
        stack: Stack,
        guard: ProcessGuard,
        settings: Mapping[str, str],
        ports: Mapping[str, int],
        token: str,
        broker: InProcessBroker | None,
    ) -> None:
        self._undo = undo
        self._broker = broker
        self._parts = [p for p in (stack.kafka, stack.redis, broker) if isinstance(p, LocalPart)]
        self._guard = guard
        #: Removed with the service, however it ends.
        self.folder = guard.folder
        self._settings = settings
        self.prefix = settings["BLENDSTREAM_TOPICS_PREFIX"]
        self.stack = stack
        self.gateway = f"http://127.0.0.1:{ports['http']}"
        self.metrics = {
            name: f"http://127.0.0.1:{port}/metrics"
            for name, port in ports.items()
            if name != "http"
        }
        self.token = token
        #: A token to send records as `GUEST`, for the user of the demo.
        self.guest_token = ""
        self.processes: dict[str, Server] = {}

    @classmethod
    def start(cls, times: EpochTimes, profile: str, say: Callable[[str], None]) -> Self:
        """Start everything; return when the gateway accepts submissions."""
        with ExitStack() as undo:
            broker: InProcessBroker | None = None
            environment = dict(os.environ)
            if InProcessBroker.needed(environment):
                say(InProcessBroker.WARNING)
                say("starting the in-process broker ...")
                broker = undo.enter_context(InProcessBroker())
                environment["KAFKA_URL"] = broker.url
            # No class archive: it would delay a first start by half a minute and save the next one
            # a second or two.
            stack = Stack.start(
                environment=environment, progress=say, archive_option="-Xshare:auto"
            )
            undo.callback(stack.close)
            # A separate prefix, because others may use the servers.
            prefix = broker.prefix if broker else f"demo-{secrets.token_hex(4)}"
            guard = undo.enter_context(ProcessGuard())
            ports = {name: free_port() for name in ("http", "gateway", "worker", "jobs")}
            tokens = guard.folder / "tokens.txt"
            token = add_token(tokens, "demo")
            signing_key = add_token(tokens, "demo", for_users=True)
            settings = _settings(stack, times, profile, ports, tokens, guard.folder)
            settings["BLENDSTREAM_TOPICS_PREFIX"] = prefix
            if broker is None:
                # The settings of the processes, and the rest of the environment.
                undo.callback(_remove_all, stack, {**os.environ, **settings}, prefix, say)
            service = cls(undo.pop_all(), stack, guard, settings, ports, token, broker)
            service.guest_token = mint_user_token(
                signing_key, GUEST, expires_s=int(time.time()) + _GUEST_S
            )
        try:
            for name in ("jobs", "worker", "gateway"):
                say(f"starting {name} ...")
                service.start_process(name)
            service._wait_until_ready(say)
        except BaseException:
            service.close()
            raise
        return service

    def start_process(self, name: str) -> None:
        """Start the gateway, the worker or the jobs; its log is appended to a file."""
        self.processes[name] = self._guard.start(
            self._broker.command(name) if self._broker else [*_VERB, name],
            log=self._guard.folder / f"{name}.log",
            # In our folder, which is removed: a killed process leaves its temporary files.
            environment={
                **_plain_environment(),
                **self._settings,
                "TMPDIR": str(self._guard.folder),
            },
        )

    def close(self) -> None:
        """Stop the processes gracefully, then Kafka and Redis."""
        for name in ("gateway", "worker", "jobs"):
            if name in self.processes:
                self.processes[name].stop(patience_s=5)
        self._undo.close()

    def check(self) -> None:
        """Raise `StackError` if a process has ended, Kafka and Redis included."""
        servers = {part.name: part.server for part in self._parts}
        for name, process in (servers | self.processes).items():
            if not process.running:
                raise StackError(
                    f"{name} ended by itself. Its last output:\n{process.last_words()}"
                )

    def _wait_until_ready(self, say: Callable[[str], None]) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        with ticking(say, "waiting until the gateway takes submissions"):
            while time.monotonic() < deadline:
                self.check()
                try:
                    if httpx.get(f"{self.gateway}/readyz", timeout=2).status_code == 200:
                        return
                except httpx.HTTPError:
                    pass
                time.sleep(0.2)
        words = self.processes["gateway"].last_words()
        raise StackError(f"the gateway was not ready within {_PATIENCE_S} s. It said:\n{words}")


def _remove_all(
    stack: Stack, environment: Mapping[str, str], prefix: str, say: Callable[[str], None]
) -> None:
    """Remove the demo's topics and keys from given servers; report failures."""
    if isinstance(stack.kafka, GivenServer):
        try:
            _remove_topics(load_kafka(environment), prefix)
        except (KafkaException, TimeoutError) as error:
            why = error.args[0].name() if isinstance(error, KafkaException) else "no answer"
            say(f"Kafka did not delete the topics {prefix}.* ({why}); delete them by hand")
    if isinstance(stack.redis, GivenServer):
        try:
            asyncio.run(_remove_keys(load_redis(environment), prefix))
        except BlenderError as error:
            say(f"keys with {prefix} in their names are left in Redis ({error}); remove them")


def _remove_topics(settings: KafkaSettings, prefix: str) -> None:
    admin, timeout_s = AdminClient(librdkafka_settings(settings)), settings.request_timeout_s
    there = admin.list_topics(timeout=timeout_s).topics
    names = [name for name in there if name.startswith(f"{prefix}.")]
    for future in (admin.delete_topics(names) if names else {}).values():
        future.result(timeout=timeout_s)


async def _remove_keys(settings: RedisSettings, prefix: str) -> None:
    client = await connect_redis(settings)
    try:
        async for key in client.scan_iter(match=f"*{prefix}*", count=1000):
            await answered(client.unlink(key))
    except RedisError as error:
        raise StoreUnavailable(f"Redis did not answer ({type(error).__name__})") from error
    finally:
        await client.aclose()


def _plain_environment() -> dict[str, str]:
    passed_on = ("PATH", "HOME", "PYTHONPATH", "LANG", "LC_ALL", "VIRTUAL_ENV")
    return {name: os.environ[name] for name in passed_on if name in os.environ}


def _settings(
    stack: Stack,
    times: EpochTimes,
    profile: str,
    ports: Mapping[str, int],
    tokens: Path,
    folder: Path,
) -> dict[str, str]:
    secret = folder / "master-secrets.txt"
    secret.write_text(f"demo={secrets.token_hex(32)}\n")
    secret.chmod(0o600)
    values: dict[str, object] = {
        "KAFKA_URL": stack.kafka.url,
        "REDIS_URL": stack.redis.url,
        "TOPICS_PARTITIONS": 4,
        "TOPICS_REPLICATION": 1,
        "TOPICS_MIN_INSYNC_REPLICAS": 1,
        "TOPICS_ALLOW_SINGLE_BROKER": "true",
        "EPOCH_WINDOW_S": times.window_s,
        "EPOCH_ORIGIN_UNIX_S": int(time.time()),
        "EPOCH_GRACE_S": times.grace_s,
        "EPOCH_ALLOWED_SKEW_S": times.skew_s,
        "PRIVACY_PROFILE": profile,
        # With the noise of one budget for 30 epochs, so few people would find nothing.
        "BUDGET_PERIOD_EPOCHS": 0,
        "BUDGET_PERIOD_S": 86_400,
        "BUDGET_OPTIN_EPSILON_LIMIT": 1e6,
        "BUDGET_OPTIN_DELTA_LIMIT": 1.0,
        "BUDGET_CLIENT_EPSILON_LIMIT": 1e6,
        "BUDGET_CLIENT_DELTA_LIMIT": 1.0,
        "KEYS_MASTER_SECRETS_FILE": secret,
        "KEYS_CURRENT_ID": "demo",
        "GATEWAY_PORT": ports["http"],
        "GATEWAY_METRICS_PORT": ports["gateway"],
        "GATEWAY_DELIVERY_DEADLINE_S": times.deadline_s,
        "GATEWAY_TOKEN_FILE": tokens,
        "WORKER_METRICS_PORT": ports["worker"],
        "WORKER_SESSION_TIMEOUT_S": 10,
        "JOBS_METRICS_PORT": ports["jobs"],
        "JOBS_POLL_S": 0.3,
        "LOG_FORM": "json",
    }
    return {f"BLENDSTREAM_{name}": str(value) for name, value in values.items()}
