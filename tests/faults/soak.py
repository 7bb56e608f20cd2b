"""A whole service under random faults for an hour: does anything grow without end?

    make soak MINUTES=60
    python -m tests.faults.soak --minutes 5 --to /tmp/soak     a short trial

Three brokers, a Redis cluster, two gateways, workers and jobs each, windows of 20 seconds, people
who send all the time; schedules of faults one after another, by seeds (`service_schedules`). The
first process of each kind is never killed, so that it lives as long as the run.

Every ten seconds it writes down, to NAME.csv: memory and open files of every process, keys and
memory of Redis, what Kafka has on disk, and the release log. In the end every epoch is checked
against everyone's fate, each quantity is said to level off or not, and a figure is drawn.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import csv
import logging
import tempfile
import time
from pathlib import Path

import psutil
import redis
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from blendstream.agents.local import LocalRedisCluster
from blendstream.agents.local.replicated_redis import MASTERS
from tests.faults.peer_links import LinkedCluster
from tests.faults.service_schedules import ServiceWorld, service_world
from tests.faults.soak_figures import draw, report
from tests.faults.three_brokers import WithRedisCluster

EVERY_S = 10.0
MIB = 2**20
#: Hundreds of epochs within one limit: as much as the settings allow, since nobody's data is in it.
#: Thirty of them share a budget, as by default.
SETTINGS = {
    "budget__period_epochs": "30",
    "budget__optin_epsilon_limit": "1000000",
    "budget__client_epsilon_limit": "1000000",
    "budget__optin_delta_limit": "1",
    "budget__client_delta_limit": "1",
    "click_graph__delta": "0.00001",
}
#: As in production, where files of Redis are written anew now and then.
REDIS = {"auto-aof-rewrite-percentage": "100", "auto-aof-rewrite-min-size": "4mb"}
#: Kafka cleans closed segments alone, and closes those of its own topics after 100 MiB or a week.
#: Here they are closed within the run, so that one sees whether cleaning keeps up.
KAFKA = {
    "metadata.log.segment.ms": "60000",
    "metadata.max.retention.ms": "120000",
    # By size: brokers are killed so often that none lives for the time between two snapshots.
    "metadata.log.max.record.bytes.between.snapshots": str(32 * 1024),
}
CLOSED_SOON = ("__consumer_offsets", "__transaction_state")
CLOSED_AFTER_MS = "120000"


class Samples:
    """Looks at everything that might grow, and writes a line each time."""

    def __init__(self, world: ServiceWorld, kafka: LinkedCluster, nodes: LocalRedisCluster) -> None:
        self._world, self._kafka, self._nodes = world, kafka, nodes
        self._began = time.monotonic()
        self.schedules = self.steps = 0
        self.lines: list[dict[str, float]] = []

    async def watch(self) -> None:
        """A line every ten seconds, until cancelled."""
        while True:
            self.lines.append(await asyncio.to_thread(self._look))
            await asyncio.sleep(EVERY_S)

    def _look(self) -> dict[str, float]:
        world = self._world
        running = world.running
        return {
            "seconds": round(time.monotonic() - self._began, 1),
            "schedules": self.schedules,
            "faults": self.steps,
            "accepted": running.people.verdicts["accepted"],
            "epochs_checked": len(world.checked),
            **self._processes(),
            **self._redis(),
            **self._disk(),
        }

    def _processes(self) -> dict[str, float]:
        found: dict[str, float] = {}
        kinds = {kind: self._world.running.live(kind) for kind in ("gateway", "worker", "jobs")}
        for kind, parts in kinds.items():
            oldest = parts[0].pid if parts else 0
            sizes = [size for part in parts if (size := _size(part.pid)) is not None]
            mine = _size(oldest)
            if mine is not None:
                found[f"{kind}_rss_mib"], found[f"{kind}_files"] = mine
            found[f"{kind}_processes"] = len(sizes)
        servers = {"brokers": self._kafka.nodes.values(), "redis_nodes": self._nodes.nodes}
        for kind, nodes in servers.items():
            sizes = [size for node in nodes if (size := _size(node.server.pid)) is not None]
            found[kind] = len(sizes)
            if len(sizes) == len(nodes):  # Else one is down, and the sum says nothing.
                found[f"{kind}_rss_mib"] = sum(size[0] for size in sizes)
                found[f"{kind}_files"] = sum(size[1] for size in sizes)
        return found

    def _redis(self) -> dict[str, float]:
        keys, memory, masters = 0, 0.0, 0
        for node in self._nodes.nodes:
            with contextlib.suppress(redis.RedisError):
                if node.is_master:
                    masters += 1
                    keys += int(node.ask("DBSIZE"))
                    memory += float(node.ask("INFO")["used_memory"]) / MIB
        if masters != MASTERS:  # One is being replaced.
            return {}
        return {"redis_keys": keys, "redis_memory_mib": memory}

    def _disk(self) -> dict[str, float]:
        """Return the size of the brokers' logs, without files that Kafka allocates in advance."""
        topics = self._world.running.made.topics
        entries = {topics.optin_records.name, topics.client_reports.name}
        published = {topics.head_lists.name, topics.estimates.name, topics.click_graphs.name}
        kinds = ("entries", "published", "release_log", "kafka_own", "redis_files")
        sizes = dict.fromkeys(kinds, 0.0)
        for node in self._kafka.nodes.values():
            for file in (node.folder / "data").glob("*/*.log"):
                topic = file.parent.name.rpartition("-")[0]
                kind = "entries" if topic in entries else "kafka_own"
                kind = "published" if topic in published else kind
                kind = "release_log" if topic == topics.releases.name else kind
                with contextlib.suppress(FileNotFoundError):
                    sizes[kind] += file.stat().st_size / len(self._kafka.nodes)
        for server in self._nodes.nodes:
            for file in server.data.glob("appendonlydir/*"):
                with contextlib.suppress(FileNotFoundError):
                    sizes["redis_files"] += file.stat().st_size
        return {f"{kind}_mib": size / MIB for kind, size in sizes.items()}

    def write(self, path: Path) -> None:
        names = list(dict.fromkeys(name for line in self.lines for name in line))
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, names, lineterminator="\n")
            writer.writeheader()
            for line in self.lines:
                writer.writerow({name: round(value, 3) for name, value in line.items()})


def _size(pid: int) -> tuple[float, int] | None:
    """Memory in MiB and open files of a process; None if it just ended."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        if process.status() != psutil.STATUS_ZOMBIE:
            return process.memory_info().rss / MIB, process.num_fds()
    return None


def _close_segments_soon(kafka: LinkedCluster) -> None:
    entry = ConfigEntry("segment.ms", CLOSED_AFTER_MS, incremental_operation=AlterConfigOpType.SET)
    topics = [
        ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry])
        for name in CLOSED_SOON
    ]
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for changed in admin.incremental_alter_configs(topics).values():
        changed.result()


async def soak(minutes: float, first_seed: int, to: Path) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as folder,
        LinkedCluster(KAFKA) as kafka,
        LocalRedisCluster(options=REDIS) as nodes,
    ):
        _close_segments_soon(kafka)
        servers = WithRedisCluster(kafka, nodes)
        async with service_world(
            servers, Path(folder), spare_oldest=True, settings=SETTINGS
        ) as world:
            samples = Samples(world, kafka, nodes)
            watching = asyncio.create_task(samples.watch())
            try:
                await _schedules(world, samples, minutes, first_seed, to)
            finally:
                watching.cancel()
                samples.write(to.with_suffix(".csv"))
        running = world.running
        print(
            f"{minutes:g} minutes, {samples.schedules} schedules of {samples.steps} faults, "
            f"seeds from {first_seed}; "
            f"{running.people.verdicts['accepted']} accepted, {running.doubtful.total()} in doubt, "
            f"{len(world.checked)} epochs published and right",
            flush=True,
        )
        print(f"started again: {dict(running.restarts)}; verdicts: {dict(running.people.verdicts)}")
    report(to.with_suffix(".csv"))
    draw(to.with_suffix(".csv"), to)


async def _schedules(
    world: ServiceWorld, samples: Samples, minutes: float, seed: int, to: Path
) -> None:
    until = time.monotonic() + 60 * minutes
    while time.monotonic() < until:
        began = time.monotonic()
        try:
            await world.run(seed)
        except BaseException as error:
            error.add_note(f"schedule {seed}: {' → '.join(world.steps)}")
            raise
        samples.schedules += 1
        samples.steps += len(world.steps)
        samples.write(to.with_suffix(".csv"))
        took = time.monotonic() - began
        print(f"schedule releasing-period {seed}: right, {took:.1f} s, {' → '.join(world.steps)}; "
              f"{world.running.people.verdicts['accepted']} accepted, "
              f"{len(world.checked)} epochs checked", flush=True)  # fmt: skip
        seed += 1


def main() -> None:
    parser = argparse.ArgumentParser(description="A whole service under random faults.")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=100_001, help="of the first schedule")
    parser.add_argument("--to", type=Path, default=Path("docs/soak"), help="name of the files")
    options = parser.parse_args()
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    asyncio.run(soak(options.minutes, options.seed, options.to))


if __name__ == "__main__":
    main()
