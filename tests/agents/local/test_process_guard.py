"""Whatever ends the program that started a stack, nothing of it is left running or on disk."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from blendstream.agents.local.process_guard import ProcessGuard, StackError

pytestmark = pytest.mark.long

# The parent starts two servers that ignore every polite signal and have each forked a child, says
# where they are, and then ends in the way the test asks for.
PARENT = """
import os, signal, sys, time
from blendstream.agents.local.process_guard import ProcessGuard
stubborn = '''
import os, signal, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
os.fork()
open("data-of-" + str(os.getpid()), "w").write("x")
time.sleep(600)
'''
def main():
    with ProcessGuard() as guard:
        for _ in range(2):
            guard.start([sys.executable, "-c", stubborn], log=guard.folder / "log")
        if "fork" in sys.argv and os.fork() == 0:
            time.sleep(4)   # a fork of the parent holds the pipe open
            os._exit(0)
        while len(list(guard.folder.glob("data-of-*"))) < 4:
            time.sleep(0.02)
        print(guard.folder, flush=True)
        if "raise" in sys.argv or "exit" in sys.argv:
            sys.stdin.readline()  # until the test has looked around
        if "raise" in sys.argv:
            raise ValueError
        if "exit" in sys.argv:
            os._exit(0)
        time.sleep(600)
main()
"""


@pytest.mark.parametrize(
    ("ending", "arguments"),
    [
        (signal.SIGKILL, []),
        (signal.SIGKILL, ["fork"]),
        (signal.SIGINT, []),
        (signal.SIGTERM, []),
        (signal.SIGHUP, []),
        (None, ["raise"]),
        (None, ["exit"]),
    ],
    ids=["SIGKILL", "SIGKILL-of-one-that-forked", "Ctrl-C", "SIGTERM", "SIGHUP", "raise", "exit"],
)
def test_nothing_is_left_however_the_parent_ends(ending, arguments):
    """A broker left behind eats half a gigabyte, for ever, for every test run that was killed."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    folder = Path(parent.stdout.readline().strip())
    servers = [int(file.name.removeprefix("data-of-")) for file in folder.glob("data-of-*")]
    assert len(servers) == 4
    family = psutil.Process(servers[0]).parents()
    keepers = [process for process in family if "keeper_process" in " ".join(process.cmdline())]

    if ending == signal.SIGINT:
        os.killpg(parent.pid, ending)  # A terminal sends it to the whole group.
    elif ending is not None:
        parent.send_signal(ending)
    parent.stdin.close()
    parent.stdout.close()

    assert gone_within(20, lambda: not folder.exists())
    assert gone_within(20, lambda: not any(map(runs, servers)))
    assert gone_within(20, lambda: not any(runs(guard.pid) for guard in keepers))
    parent.wait(10)


def runs(pid: int) -> bool:
    """Whether the process still does anything; a dead one may wait for init to take note."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def gone_within(patience_s: float, condition) -> bool:
    """Whether the condition comes true in time."""
    deadline = time.monotonic() + patience_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return bool(condition())


def test_a_named_folder_is_kept(tmp_path):
    """It was named to be found again."""
    with ProcessGuard(tmp_path / "kept") as guard:
        (guard.folder / "data").write_text("x")

    assert (tmp_path / "kept" / "data").read_text() == "x"


def test_a_server_can_be_paused_resumed_stopped_and_killed():
    """Fault tests do nothing else."""
    with ProcessGuard() as guard:
        server = guard.start(["sleep", "60"], log=guard.folder / "log")
        process = psutil.Process(server.pid)
        server.pause()
        assert gone_within(10, lambda: process.status() == psutil.STATUS_STOPPED)
        server.resume()
        assert gone_within(10, lambda: process.status() == psutil.STATUS_SLEEPING)
        server.pause()
        server.stop(patience_s=2)
        assert not server.running, "a paused server is stopped too"

        other = guard.start(["sleep", "60"], log=guard.folder / "log")
        other.kill()
        assert not other.running
        other.kill()


def test_a_command_that_does_not_exist_is_an_error_that_says_so():
    """And the guard goes on."""
    with ProcessGuard() as guard:
        with pytest.raises(StackError, match="could not be started: FileNotFoundError"):
            guard.start(["/no/such/server"], log=guard.folder / "log")
        assert guard.start(["true"], log=guard.folder / "log").pid


def test_a_closed_guard_says_that_it_is_closed():
    """Rather than fail on a pipe."""
    guard = ProcessGuard()
    guard.close()
    guard.close()

    with pytest.raises(StackError, match="was closed"):
        guard.start(["true"], log=Path("log"))
