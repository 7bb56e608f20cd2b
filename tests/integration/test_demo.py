"""The demo as a stranger runs it: the whole service, simulated people, published epochs."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
import redis
from confluent_kafka.admin import AdminClient

from tests.service.waiting import wait_for

pytestmark = pytest.mark.more

SMALL = ("--people", "8000")
PATIENCE_S = 280
REPOSITORY = Path(__file__).parents[2]
ENVIRONMENT = Path(sys.executable).parents[1]


def make_demo(*arguments: str) -> list[str]:
    """`make demo` with the environment that runs these tests, as it is: nothing is installed."""
    return [
        "make", "--no-print-directory", "demo", f"VENV={ENVIRONMENT}",
        # Whatever its age: it would otherwise be made anew under the running tests.
        "--old-file", str(ENVIRONMENT / "installed"),
        f"ARGS={' '.join(arguments)}",
    ]  # fmt: skip


@contextmanager
def demo(
    tmp_path: Path, *arguments: str, kafka: bool = True, make: bool = False, **given: str
) -> Iterator["RunningDemo"]:
    """`blendstream demo` with files of its own; without Kafka, where there is no way to get it."""
    (tmp_path / "files").mkdir()
    environment = {name: os.environ[name] for name in os.environ if not name.endswith("_URL")}
    environment |= {"TMPDIR": str(tmp_path / "files"), **given}
    if not kafka:
        environment |= {"PATH": str(tmp_path / "empty"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    plain = [sys.executable, "-m", "blendstream.agents.cli", "demo", *SMALL, *arguments]
    process = subprocess.Popen(
        make_demo(*SMALL, *arguments) if make else plain,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        cwd=REPOSITORY,
    )
    running = RunningDemo(process, tmp_path / "files")
    try:
        yield running
    finally:
        if process.poll() is None:
            running.look()  # what make started does not end with make
            process.kill()
            process.wait()
            for child in running.family:
                with suppress(psutil.NoSuchProcess):
                    child.kill()


class RunningDemo:
    """What it printed so far, and every process that it ever started."""

    def __init__(self, process: subprocess.Popen[str], files: Path) -> None:
        self.process = process
        self.files = files
        self.family: set[psutil.Process] = set()
        self._lines: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def text(self) -> str:
        return "".join(self._lines)

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self._lines.append(line)

    def wait_for(self, pattern: str) -> None:
        """Until it was printed; whatever runs meanwhile is remembered."""

        def printed() -> bool:
            ended = self.process.poll() is not None
            found = re.search(pattern, self.text)
            assert found or not ended, self.text
            self.look()
            return bool(found)

        wait_for(printed, pattern, PATIENCE_S, every_s=0.2, about=lambda: self.text)

    def look(self) -> None:
        with suppress(psutil.NoSuchProcess):
            self.family |= set(psutil.Process(self.process.pid).children(recursive=True))

    def assert_nothing_is_left(self) -> None:
        wait_for(lambda: not any(map(is_alive, self.family)), "the end of all processes", 30)
        wait_for(lambda: not list(self.files.iterdir()), "the end of all files", 30)


def is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


PUBLISHED = (
    r"people search in epoch \d+; its results, the first, are due in about \d+ s",
    r"Epoch \d+ published: [\d,]+ opt-in users, [\d,]+ devices; paper computed beside it",
    r"query → result +true +sharp +95 % interval +paper +95 % interval",
    r"weather tomorrow → …/1 +6\.63% +\d+\.\d+% +\d+\.\d+–\d+\.\d+%",
    r"sharp: \d+ records listed, L1 0\.\d{4}, NDCG [01]\.\d{4}, truth in the interval",
    r"paper: \d+ records listed, L1 \d\.\d{4}, NDCG [01]\.\d{4}, truth in the interval",
)


@pytest.fixture(scope="module")
def demos(tmp_path_factory) -> Iterator[tuple[RunningDemo, RunningDemo]]:
    """One on a real Kafka that ends by itself, one without Maven that does not, side by side.

    The first is the command that a newcomer types: `make demo`.
    """
    folders = tmp_path_factory.mktemp("real"), tmp_path_factory.mktemp("in-process")
    with (
        demo(folders[0], "--epochs", "1", make=True) as real,
        demo(folders[1], kafka=False) as in_process,
    ):
        yield real, in_process


@pytest.mark.timeout(PATIENCE_S + 60)
def test_the_demo_starts_every_part_and_says_where_to_look(demos):
    """The tests after this one run while its epochs do: on two cores there is room for them."""
    running, in_process = demos
    for each in demos:
        each.wait_for("Where to look")
    parts = " ".join(" ".join(p.cmdline()) for p in running.family if is_alive(p))
    assert "kafka.Kafka" in parts
    for verb in ("gateway", "worker", "jobs"):
        assert f"blendstream.agents.cli {verb}" in parts
    assert "promises neither durability nor transactions" in in_process.text
    running.wait_for("webclient/extension\n")


def test_on_servers_that_were_given_it_leaves_nothing_and_touches_nothing_else(
    tmp_path, kafka, redis_server
):
    """Somebody's own Kafka and Redis: no topic, no key and no server of theirs changes."""
    topics = AdminClient({"bootstrap.servers": kafka.bootstrap})
    with redis.Redis.from_url(redis_server.url) as client:
        client.set("of somebody else", "kept")
        before = set(topics.list_topics(timeout=10).topics), set(client.keys())
        with demo(tmp_path, KAFKA_URL=kafka.url, REDIS_URL=redis_server.url) as running:
            running.wait_for("Where to look")
            during = set(topics.list_topics(timeout=10).topics)
            assert [name for name in during - before[0] if name.startswith("demo-")]
            running.wait_for(r"epoch 0 collecting")
            # The terminal is closed; two signals come, the kernel's and the shell's.
            running.process.send_signal(signal.SIGHUP)
            time.sleep(0.2)
            running.process.send_signal(signal.SIGHUP)
            assert running.process.wait(60) == 0
            running.assert_nothing_is_left()

        left = set(topics.list_topics(timeout=10).topics) - {"__consumer_offsets"}
        assert left - before[0] - {"__transaction_state"} == set()
        assert set(client.keys()) - before[1] == set()
        assert client.get("of somebody else") == b"kept"
        client.delete("of somebody else")


def test_a_demo_that_is_killed_leaves_nothing(tmp_path):
    """A full memory ends it without a word; by then its devices have files too."""
    with demo(tmp_path, kafka=False) as running:
        running.wait_for(r"epoch \d+ collecting")
        assert list(running.files.rglob("device-0"))
        running.process.kill()
        running.process.wait(30)

        assert running.family
        running.assert_nothing_is_left()


@pytest.mark.parametrize(
    ("verb", "name"), [("gateway", "gateway"), ("serve", "the in-process broker")]
)
def test_a_part_that_ends_by_itself_ends_the_demo_with_its_name_and_last_words(
    tmp_path, verb, name
):
    """A newcomer whose gateway falls must be told so, not shown a traceback of ours; without a
    broker the view would stand still for ever."""
    with demo(tmp_path, kafka=False) as running:
        running.wait_for("Where to look")
        (part,) = [p for p in running.family if is_alive(p) and p.cmdline()[-1] == verb]
        part.kill()
        assert running.process.wait(60) == 1

        assert f"{name} ended by itself. Its last output:" in running.text
        assert "Traceback" not in running.text
        running.assert_nothing_is_left()


@pytest.mark.timeout(PATIENCE_S + 60)
def test_the_demo_publishes_an_epoch_on_a_real_kafka_and_ends_by_itself(demos):
    """The first thing anyone does with the project: it must work, and leave nothing behind."""
    running, _ = demos
    running.wait_for("What next")
    assert running.process.wait(30) == 0

    for line in (r"starting Kafka \.\.\.", r"results page +http://127.0.0.1:\d+/", *PUBLISHED):
        assert re.search(line, running.text), running.text
    assert re.search(r"API +http://127.0.0.1:\d+/docs", running.text)
    assert re.search(r"worker metrics +http://127.0.0.1:\d+/metrics", running.text)
    assert re.search(r"first epoch published \d+ s after the start", running.text)
    assert "in-process broker" not in running.text
    assert "installing" not in running.text
    again = re.search(r"(\S+) settings +what a service of your own", running.text)
    assert again, running.text
    assert shutil.which(again[1], path=f"{os.environ['PATH']}:{REPOSITORY}"), "what next must work"
    running.assert_nothing_is_left()


@pytest.mark.timeout(PATIENCE_S + 60)
def test_the_guide_of_the_client_works_as_printed_against_the_demo(demos, tmp_path):
    """With the lines that the demo prints: limits that fit its windows, a token that is let in."""
    _, running = demos
    running.wait_for(r"paper: \d+ records listed")
    exports = "\n".join(re.findall(r"(export \S+=\S+)$", running.text, re.MULTILINE))
    guide = (REPOSITORY / "docs/localclient.md").read_text()
    (commands,) = re.findall(r"```sh\n(trial=.*?)```", guide, re.DOTALL)
    commands = commands.replace("/tmp/trial", str(tmp_path)).replace(
        ".venv/bin/", f"{ENVIRONMENT}/bin/"
    )
    deadline = time.monotonic() + 60
    said = ""
    while not re.search(r"Sent \(epoch.*Sent \(epoch", said, re.DOTALL):
        assert time.monotonic() < deadline, said
        ended = subprocess.run(
            ["bash", "-euc", f"{exports}\n{commands}"], capture_output=True, text=True, check=False
        )
        said += ended.stdout
        assert ended.returncode == 0, ended.stderr
        time.sleep(2)

    assert re.search(r"0\.\d{5}  \[\S+, \S+\]  https://", said), said


@pytest.mark.timeout(PATIENCE_S + 60)
def test_without_maven_it_runs_on_the_in_process_broker_until_ctrl_c(demos):
    """Ctrl-C ends everything, and that is no error."""
    _, running = demos
    running.wait_for(r"paper: \d+ records listed")
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(60) == 0

    for line in PUBLISHED:
        assert re.search(line, running.text), running.text
    assert "stopped; nothing is left running or on disk" in running.text
    assert "What next" in running.text
    running.assert_nothing_is_left()
