"""How every process of this project starts, stops and answers health checks."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from blendstream.agents.local.ports import free_port


@contextlib.contextmanager
def small_service(
    fault: str = "none", port: int | None = None
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process with this fault, once it has said its first word; and its address."""
    port = port or free_port()
    words = [sys.executable, "-m", "tests.service_main", fault, str(port)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as it:
        try:
            _until(it, "connecting")
            yield it, f"http://127.0.0.1:{port}"
        finally:
            it.kill()


def _until(it: subprocess.Popen[str], word: str) -> None:
    assert it.stdout is not None
    assert any(line.strip() == word for line in it.stdout), word


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_in_order(number: signal.Signals):
    with small_service() as (it, _):
        _until(it, "running")
        it.send_signal(number)
        _until(it, "closed")
        assert it.wait(10) == 0


@pytest.mark.parametrize("fault", ["close hangs", "loop hangs"])
def test_a_stop_ends_by_its_deadline_whatever_hangs(fault: str):
    """Jobs kept their deadline on the event loop: one that hung was never ended."""
    with small_service(fault) as (it, _):
        _until(it, "running")
        it.terminate()
        assert it.wait(10) == 3


def test_a_signal_ends_a_start_that_hangs():
    """Kafka may be away for hours; whoever starts the process must be able to end it."""
    with small_service("connect hangs") as (it, _):
        it.terminate()
        assert it.wait(10) == 0


def test_a_service_that_cannot_go_on_is_closed_and_says_so_by_its_exit_code():
    """Code 4 tells an operator, and a supervisor restarts it."""
    with small_service("unfit") as (it, _):
        _until(it, "closed")
        assert it.wait(10) == 4


def test_a_crash_writes_no_core_file(tmp_path):
    """Its memory has master secrets and raw opt-in records; a core file keeps them for years.

    The kernel reports whether it wrote one, to a file or to a collector, when the process ends.
    """
    words = f"{sys.executable} -m tests.service_main crash {free_port()}"
    it = subprocess.Popen(
        ["sh", "-c", f"ulimit -S -c $(ulimit -H -c); exec {words}"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    _, status = os.waitpid(it.pid, 0)
    assert os.WTERMSIG(status) == signal.SIGABRT
    assert not os.WCOREDUMP(status)
    assert list(tmp_path.iterdir()) == []


def test_health_checks_and_prometheus_find_their_paths():
    with small_service() as (it, url):
        _until(it, "running")
        assert "steps_total 1.0" in httpx.get(f"{url}/metrics").text
        alive, ready = httpx.get(f"{url}/healthz"), httpx.get(f"{url}/readyz")
        assert (alive.status_code, alive.text) == (200, "alive\n")
        assert (ready.status_code, ready.text) == (200, "ready\n")
        assert httpx.get(f"{url}/").status_code == 404


def test_a_service_that_is_not_ready_says_why_line_by_line():
    with small_service("unready") as (it, url):
        _until(it, "running")
        ready = httpx.get(f"{url}/readyz")
        assert (ready.status_code, ready.text) == (503, "the store is away\nthe clock is off\n")
        assert httpx.get(f"{url}/healthz").status_code == 200


def test_a_port_that_is_taken_is_one_clear_line():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with small_service(port=port) as (it, _):
            assert it.stdout is not None
            said = it.stdout.read()
            assert it.wait(10) == 1
    refused = (
        "metrics.host and small.metrics_port must be an address that this process may listen on"
    )
    assert f"{refused}, got 127.0.0.1:{port}" in said
    assert "Traceback" not in said
