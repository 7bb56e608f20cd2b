"""Run random schedules of faults by their seeds, a line for each: `make chaos SEEDS=1-100`.

    python -m tests.faults.chaos 1-100                     every kind, two groups at a time
    python -m tests.faults.chaos 1-100 --kinds counting    one kind
    python -m tests.faults.chaos 17 --kinds releasing-3    one schedule, to repeat it

Kinds: `counting` and `releasing` on one broker and one Redis; on three brokers `counting-3` and
`releasing-3` with a Redis cluster, `counting-sentinel` and `releasing-sentinel` with a primary
behind Sentinels, and `releasing-period`, as `releasing-3` but with one budget for three epochs.
Seeds of a kind are run in groups, each in a process with servers and one installation of its own,
one schedule after another.

What was run is added to docs/chaos-runs.csv. A run ends by itself before it takes 80 minutes; the
same command goes on where it stopped: groups that are in the file with this commit are passed over.
Two schedules of one seed take the same steps; what the machine does meanwhile is never the same.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import csv
import logging
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Protocol

from blendstream.agents.local import LocalKafka, LocalRedis, LocalRedisCluster, LocalSentinels
from tests.faults import counting_schedules
from tests.faults.breakable_servers import BreakableServers, OneNode
from tests.faults.peer_links import LinkedCluster
from tests.faults.service_schedules import service_world
from tests.faults.three_brokers import WithRedisCluster, WithSentinels
from tests.kafka_topics import SOON_BACK

ROOT = Path(__file__).parent.parent.parent
RUNS = ROOT / "docs" / "chaos-runs.csv"
KINDS = (
    "counting", "releasing", "counting-3", "releasing-3", "counting-sentinel", "releasing-sentinel",
    "releasing-period",
)  # fmt: skip
#: Settings of `releasing-period`: short enough that one run sees several budgets.
PERIOD = {"budget__period_epochs": "3"}
#: Seeds of one group, which live in one installation.
GROUP = 20
#: No group begins after this, so that a run ends before 80 minutes.
BEGIN_BEFORE_S = 40 * 60
#: A group that takes longer than this hangs. Usually it takes 3 to 8 minutes.
GROUP_WITHIN_S = 40 * 60
PREFIX = "schedule "


class World(Protocol):
    """An installation that lives through schedules."""

    steps: list[str]

    async def run(self, seed: int) -> None:
        """One schedule; raises if anything is not as it must be."""


@dataclass(frozen=True, slots=True)
class Group:
    """Seeds that are run one after another in one process."""

    kind: str
    first: int
    last: int

    @property
    def seeds(self) -> str:
        return f"{self.first}-{self.last}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A line of the file."""

    date: str
    commit: str
    kind: str
    seeds: str
    schedules: int
    steps: int
    wrong: int
    seconds: int


# --- one group, in a process of its own -----------------------------------------------------------


async def run_group(group: Group) -> None:
    """Run the seeds in order; the first wrong one ends the group."""
    # A broker that is away is what a schedule is about; clients of the test need not tell.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    async with _world(group) as world:
        for seed in range(group.first, group.last + 1):
            began = time.monotonic()
            try:
                await world.run(seed)
            except BaseException as error:
                error.add_note(f"schedule {seed}: {' → '.join(world.steps)}")
                raise
            took = time.monotonic() - began
            print(f"{PREFIX}{group.kind} {seed}: right, {took:.1f} s, {' → '.join(world.steps)}",
                  flush=True)  # fmt: skip


@contextlib.asynccontextmanager
async def _world(group: Group) -> AsyncIterator[World]:
    what, _, where = group.kind.partition("-")
    with (
        _servers(where) as servers,
        tempfile.TemporaryDirectory(prefix="chaos-") as folder,
    ):
        if what == "counting":
            async with counting_schedules.world(servers) as counting:
                yield counting
        else:
            settings = PERIOD if where == "period" else None
            async with service_world(servers, Path(folder), settings=settings) as world:
                yield world


@contextlib.contextmanager
def _servers(where: str) -> Iterator[BreakableServers]:
    if not where:
        with LocalKafka(options=SOON_BACK) as broker, LocalRedis() as server:
            yield OneNode(broker, server)
    elif where == "sentinel":
        with LinkedCluster() as kafka, LocalSentinels() as sentinels:
            yield WithSentinels(kafka, sentinels)
    else:
        with LinkedCluster() as kafka, LocalRedisCluster() as nodes:
            yield WithRedisCluster(kafka, nodes)


# --- many groups ----------------------------------------------------------------------------------


class Runner:
    """Runs groups, so many at a time, and writes down what came out."""

    def __init__(self, at_once: int) -> None:
        self._at_once = asyncio.Semaphore(at_once)
        self._began = time.monotonic()
        self._commit = commit()
        self.schedules = 0
        self.wrong: list[str] = []
        self.left: list[Group] = []

    async def run(self, groups: list[Group]) -> None:
        await asyncio.gather(*map(self._run, groups))

    async def _run(self, group: Group) -> None:
        async with self._at_once:
            if time.monotonic() - self._began > BEGIN_BEFORE_S:
                self.left.append(group)
                return
            began = time.monotonic()
            right, failed = await _watched(group)
            last = group.last if failed is None else min(group.first + len(right), group.last)
            outcome = Outcome(
                time.strftime("%Y-%m-%d", time.gmtime()), self._commit, group.kind,
                f"{group.first}-{last}",
                len(right), sum(line.count("→") + 1 for line in right), int(failed is not None),
                round(time.monotonic() - began),
            )  # fmt: skip
            self.schedules += len(right)
            if failed is not None:
                self.wrong.append(failed)
            _write(outcome)


async def _watched(group: Group) -> tuple[list[str], str | None]:
    """The lines of right schedules, and how to repeat the wrong one, if one is."""
    # To a file: a process that outlives its parent would keep a pipe open.
    with tempfile.NamedTemporaryFile("r+", prefix="chaos-", suffix=".log") as said:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.faults.chaos", group.seeds, "--kinds", group.kind,
            "--here", cwd=ROOT, stdout=said.fileno(), stderr=subprocess.STDOUT,
        )  # fmt: skip
        ending = asyncio.create_task(process.wait())
        deadline = time.monotonic() + GROUP_WITHIN_S
        right: list[str] = []
        lines: list[str] = []
        while True:
            ended = bool((await asyncio.wait([ending], timeout=1.0))[0])
            lines = _lines(Path(said.name))
            mine = [line for line in lines if line.startswith(f"{PREFIX}{group.kind} ")]
            for line in mine[len(right) :]:
                print(line, flush=True)
            right = mine
            if ended:
                break
            if time.monotonic() > deadline:
                process.kill()
                lines.append(f"no end within {GROUP_WITHIN_S} s")
                break
        if await ending == 0:
            return right, None
    wrong = min(group.first + len(right), group.last)
    print("\n".join(line for line in lines if line not in right), flush=True)
    how = f"python -m tests.faults.chaos {group.first}-{wrong} --kinds {group.kind}"
    print(f"{PREFIX}{group.kind} {wrong}: WRONG, repeat with: {how}", flush=True)
    return right, how


def _lines(file: Path) -> list[str]:
    return file.read_text(errors="replace").splitlines()


def _write(outcome: Outcome) -> None:
    new = not RUNS.exists()
    with RUNS.open("a", newline="") as file:
        writer = csv.DictWriter(file, [f.name for f in fields(Outcome)], lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(asdict(outcome))


def recorded() -> list[dict[str, str]]:
    """Every line of the file."""
    if not RUNS.exists():
        return []
    with RUNS.open(newline="") as file:
        return list(csv.DictReader(file))


def left_of(groups: list[Group], lines: list[dict[str, str]], at: str) -> list[Group]:
    """The groups that are not among these lines as right at this commit."""
    done = {(x["kind"], x["seeds"]) for x in lines if x["commit"] == at and x["wrong"] == "0"}
    return [group for group in groups if (group.kind, group.seeds) not in done]


def totals(lines: list[dict[str, str]]) -> str:
    """Count the file's schedules of each kind, of all commits."""
    found: Counter[str] = Counter()
    for line in lines:
        found[line["kind"]] += int(line["schedules"])
    return ", ".join(f"{n} {kind}" for kind, n in sorted(found.items()))


def commit() -> str:
    """Return the commit under test, with a + if files other than the runs were changed."""
    head = _git("rev-parse", "--short", "HEAD")
    changed = _git("status", "--porcelain", "--", ".", f":!{RUNS.relative_to(ROOT)}")
    return head + ("+" if changed else "")


def _git(*words: str) -> str:
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def groups_of(kinds: list[str], first: int, last: int) -> list[Group]:
    """Groups of all kinds in turn, so that a run that ends early has some of each."""
    starts = range(first, last + 1, GROUP)
    return [Group(kind, at, min(at + GROUP - 1, last)) for at in starts for kind in kinds]


def main() -> int:
    parser = argparse.ArgumentParser(description="Random schedules of faults, by seeds.")
    parser.add_argument("seeds", help="17, or 1-100")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--at-once", type=int, default=2, help="groups at a time")
    parser.add_argument("--here", action="store_true", help="one group, in this process")
    arguments = parser.parse_args()
    first, _, last = arguments.seeds.partition("-")
    groups = groups_of(arguments.kinds, int(first), int(last or first))
    if arguments.here:
        (kind,) = arguments.kinds
        asyncio.run(run_group(Group(kind, int(first), int(last or first))))
        return 0
    left = left_of(groups, recorded(), commit())
    runner = Runner(arguments.at_once)
    began = time.monotonic()
    asyncio.run(runner.run(left))
    took = time.monotonic() - began
    print(f"{runner.schedules} schedules right, {len(runner.wrong)} wrong, in {took:.0f} s; "
          f"{len(groups) - len(left)} groups were done before, {len(runner.left)} are left; "
          f"in {RUNS.name}: {totals(recorded())}")  # fmt: skip
    for how in runner.wrong:
        print(f"repeat: {how}")
    return 1 if runner.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
