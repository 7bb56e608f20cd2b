"""Fixtures that every test may use, and what a test run prints about itself.

Servers: `kafka` and `redis_server` are shared by the whole run; do not pause, kill or fill them.
Tests that do take `own_kafka`, `own_redis` or `own_cluster_redis`. Each test gets topics and keys
of its own from `make_topic`, `name_prefix` and `redis_client`.

Longer tests: one marked `more` runs in `make test-more` and not in `make test`. A long version,
marked `slow`, runs only with `--slow` (`make chaos`, `make fuzz`, `make test-statistical`); a test
that scales itself asks the fixture `thorough`.
"""

import io
import os
import secrets
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests.measured import show_measured
from tests.suite_times import pytest_runtest_logreport, show_times  # noqa: F401 - a hook, which pytest finds here

if TYPE_CHECKING:
    import redis.asyncio
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

    from blendstream.agents.local import GivenServer, LocalKafka, LocalRedis
    from blendstream.streams.settings import Settings

# A run that was started with nohup or in the background ignores these, and so would every process
# that it starts: tests that end one with Ctrl-C would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Deterministic in `make test`, so that a failure is about the change at hand; `make fuzz` draws
# anew.
hypothesis.settings.register_profile(
    "reliable", derandomize=True, deadline=None, print_blob=True, database=None
)
hypothesis.settings.register_profile(
    "fuzz", deadline=None, max_examples=5_000, print_blob=True, database=None
)
hypothesis.settings.load_profile("reliable")


# --- servers -------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator["LocalKafka | GivenServer"]:
    """The run's broker: `.url` for Faust, `.bootstrap` for aiokafka. KAFKA_URL may name it."""
    from blendstream.agents.local import GivenServer, LocalKafka
    from tests.sharing import shared

    if url := os.environ.get("KAFKA_URL"):
        yield GivenServer(url)
    else:
        with shared("kafka", tmp_path_factory.getbasetemp().parent, LocalKafka) as broker:
            yield broker


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator["LocalRedis | GivenServer"]:
    """The run's Redis: `.url`. REDIS_URL, if set, names it."""
    from blendstream.agents.local import GivenServer, LocalRedis
    from tests.sharing import shared

    if url := os.environ.get("REDIS_URL"):
        yield GivenServer(url)
    else:
        with shared("redis", tmp_path_factory.getbasetemp().parent, LocalRedis) as server:
            yield server


@pytest.fixture
def own_kafka() -> Iterator["LocalKafka"]:
    """A broker of this test's own, to pause, kill and restart (about 5 s)."""
    from blendstream.agents.local import LocalKafka
    from tests.kafka_topics import SOON_BACK

    with LocalKafka(options=SOON_BACK) as broker:
        yield broker


@pytest.fixture
def own_redis() -> Iterator["LocalRedis"]:
    """A Redis of this test's own, to pause, kill, restart and roll back."""
    from blendstream.agents.local import LocalRedis

    with LocalRedis() as server:
        yield server


@pytest.fixture
def own_cluster_redis() -> Iterator["LocalRedis"]:
    """A cluster-enabled Redis of this test's own: keys of one script must share a slot."""
    from blendstream.agents.local import LocalRedis

    with LocalRedis(cluster=True) as server:
        yield server


# --- names of a test's own -----------------------------------------------------------------------


@pytest.fixture
def name_prefix() -> str:
    """A prefix for topics, groups and Redis keys that no other test uses."""
    return f"test-{secrets.token_hex(6)}"


@pytest.fixture
def make_topic(kafka: "LocalKafka | GivenServer", name_prefix: str) -> Iterator[Callable[..., str]]:
    """Create a topic on the shared broker: `make_topic("reports", partitions=4, config={...})`.

    Returns its full name. The topic is there when the call returns, and goes with the test.
    """
    from tests.kafka_topics import create_topic, delete_topics

    made: list[str] = []

    def make(stem: str = "topic", partitions: int = 1, config: dict[str, str] | None = None) -> str:
        name = f"{name_prefix}.{stem}"
        create_topic(kafka.bootstrap, name, partitions=partitions, config=config)
        made.append(name)
        return name

    yield make
    delete_topics(kafka.bootstrap, made)


@pytest.fixture
async def redis_client(
    redis_server: "LocalRedis | GivenServer", name_prefix: str
) -> AsyncIterator["redis.asyncio.Redis"]:
    """A client of the shared Redis. Keys that contain `name_prefix` go with the test."""
    import redis.asyncio

    client = redis.asyncio.Redis.from_url(redis_server.url)
    yield client
    async for key in client.scan_iter(match=f"*{name_prefix}*", count=1000):
        await client.unlink(key)
    await client.aclose()


@pytest.fixture
def setting_values() -> dict[str, object]:
    """The few settings that must be given, by dotted name; change or add, then build."""
    return {
        "kafka.url": "kafka://127.0.0.1:9092",
        "redis.url": "redis://127.0.0.1:6379/0",
        "keys.master_secrets": {"test": "00" * 32},
        "keys.current_id": "test",
        "budget.period_s": 31_536_000,
        "budget.optin_epsilon_limit": 100.0,
        "budget.optin_delta_limit": 1e-3,
        "budget.client_epsilon_limit": 100.0,
        "budget.client_delta_limit": 1e-3,
    }


@pytest.fixture
def make_settings(setting_values: dict[str, object], name_prefix: str) -> Callable[..., "Settings"]:
    """Build settings for one node, this test's prefix: `make_settings({"epoch.window_s": 60})`."""
    from blendstream.streams.settings import Settings

    def make(changes: dict[str, object] | None = None) -> Settings:
        allow_single_broker = {
            "topics.prefix": name_prefix,
            "topics.allow_single_broker": True,
            "topics.replication": 1,
            "topics.min_insync_replicas": 1,
        }
        return Settings.from_values({**setting_values, **allow_single_broker, **(changes or {})})

    return make


@pytest.fixture
def written_logs() -> Iterator[io.StringIO]:
    """Everything this process logs during the test, as an operator would see it: search it."""
    import logging

    from blendstream.streams.telemetry.structured_logs import SafeHandler

    stream = io.StringIO()
    handler = SafeHandler(stream, form="json")
    root = logging.getLogger()
    level, root.level = root.level, logging.DEBUG
    root.addHandler(handler)
    yield stream
    root.removeHandler(handler)
    root.setLevel(level)


# --- what a run says of itself ------------------------------------------------------------------


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was measured, and how long each part took.

    Here, because in a parallel run the process that prints loads no other conftest.
    """
    show_measured(terminalreporter)
    show_times(terminalreporter)


# --- what is collected ---------------------------------------------------------------------------


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Examples are in the packages; a helper of the tests may be made for a process of its own."""
    if collection_path.suffix == ".py" and not collection_path.name.startswith("test_"):
        return True
    return None


# --- long versions -------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --slow."""
    parser.addoption("--slow", action="store_true", help="run the long versions of tests too")


@pytest.fixture(scope="session")
def thorough(request: pytest.FixtureRequest) -> bool:
    """Whether this run has time: take more seeds, more steps, larger samples."""
    return bool(request.config.getoption("--slow"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the slow ones, and mark by folder what needs servers or is true on average only."""
    here = Path(__file__).parent
    for item in items:
        # A test in a temporary folder may load these fixtures too.
        folder = item.path.relative_to(here).parts[0] if item.path.is_relative_to(here) else ""
        if folder in FOLDER_MARKS:
            item.add_marker(FOLDER_MARKS[folder])
        if folder == "statistical":
            # Tracing every line of a million draws doubles their time and shows nothing new.
            item.add_marker("no_cover")
        if {"kafka", "redis_server", "own_kafka", "own_redis", "own_cluster_redis"} & set(
            getattr(item, "fixturenames", ())
        ):
            item.add_marker("integration")
    if not config.getoption("--slow"):
        slow = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]
    items.sort(key=turn_of)


FOLDER_MARKS = {
    name: name for name in ("integration", "faults", "statistical", "properties", "package")
}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> "LoadScopeScheduling":
    """Tests of a lane run one after another, however many processes there are.

    They share servers that take seconds to start, or they are about time. Everything else may run
    beside them, each file in one process. What takes longest begins first, so that the processes
    end together.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Lanes(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return lane_of(nodeid) or nodeid.partition("::")[0]

    config.option.loadscopereorder = False  # by the number of tests, most first
    return Lanes(config, log)


def lane_of(nodeid: str) -> str | None:
    file = nodeid.partition("::")[0]
    return LANES.get(file, LANES.get(folder_of(nodeid)))


def folder_of(nodeid: str) -> str:
    """Of tests/, or nothing for a test elsewhere."""
    first, *rest = nodeid.partition("::")[0].split("/")
    return rest[0] if first == "tests" else ""


def turn_of(item: pytest.Item) -> int:
    """Lanes in the order of their table, then files that compute for long, then all others."""
    lanes = list(dict.fromkeys(LANES.values()))
    lane = lane_of(item.nodeid)
    if lane is not None:
        return lanes.index(lane)
    return len(lanes) + (folder_of(item.nodeid) not in ("statistical", "properties"))


#: By file or folder, those that take longest first. Tests on clusters of their own disturb nobody
#: else's servers.
LANES = {
    "tests/faults/test_broker_cut_off.py": "clusters",
    "tests/faults/test_frozen_leader.py": "clusters",
    "tests/faults/test_machine_loss.py": "clusters",
    "tests/faults/test_replicated_redis.py": "clusters",
    "tests/integration/test_first_service.py": "clusters",
    "faults": "faults",
    "integration": "integration",
    "package": "package",
    "edge": "edge",
    "browser": "browser",
}
