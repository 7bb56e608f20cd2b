"""Start the stack's servers, and end them when the parent process has ended.

`process_guard.ProcessGuard` runs this file as a script; it uses only the standard library. It reads
a pipe from its parent. When the parent ends, even by SIGKILL, the pipe closes; this process then
kills the servers and removes the folder. It starts the servers itself, so that no server ever runs
without being guarded.

The protocol is one JSON object per line: a request on standard input, a response on standard
output.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PARENT_CHECK_S = 0.5


def main() -> None:
    """Serve the parent's requests until it ends, then kill the servers and remove the folder."""
    parent = int(sys.argv[1])
    named_folder = sys.argv[2] if len(sys.argv) > 2 else None
    # Ctrl-C reaches the parent, which decides; SIGTERM ends this process gracefully.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
    servers: dict[int, subprocess.Popen[bytes]] = {}
    folder = Path(named_folder or tempfile.mkdtemp(prefix="blendstream-stack-"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        answer({"folder": str(folder)})
        for request in requests_of(parent):
            try:
                answer(serve(request, servers))
            except OSError as error:
                answer({"error": f"{type(error).__name__}: {error.strerror or error}"})
    except BrokenPipeError:
        pass  # The parent ended while we wrote a response.
    finally:
        for server in servers.values():
            kill(server)
        if named_folder is None:
            remove(folder)


def requests_of(parent: int) -> Iterator[dict[str, Any]]:
    """Yield requests until the pipe closes or, if a fork keeps it open, the parent ends."""
    pending = b""
    while os.getppid() == parent:
        readable, _, _ = select.select([0], [], [], PARENT_CHECK_S)
        if not readable:
            continue
        received = os.read(0, 65536)
        if not received:
            return
        pending += received
        while b"\n" in pending:
            line, pending = pending.split(b"\n", 1)
            yield json.loads(line)


def serve(request: dict[str, Any], servers: dict[int, subprocess.Popen[bytes]]) -> dict[str, Any]:
    """Handle one request and return the result."""
    if request["do"] == "start":
        with open(request["log"], "ab") as log:
            server = subprocess.Popen(  # noqa: S603 - the parent's own command line
                request["command"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=request["folder"],
                env={**os.environ, **request["environment"]},
                process_group=0,
            )
        servers[server.pid] = server
        return {"pid": server.pid}
    server = servers[request["pid"]]
    if request["do"] == "signal" and server.poll() is None:
        os.killpg(server.pid, request["signal"])
    elif request["do"] == "stop":
        # A stopped process acts on SIGTERM only once it runs again.
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGTERM)
            os.killpg(server.pid, signal.SIGCONT)
        try:
            server.wait(request["patience_s"])
        except subprocess.TimeoutExpired:
            kill(server)
    elif request["do"] == "kill":
        kill(server)
    return {"status": server.poll()}


def kill(server: subprocess.Popen[bytes]) -> None:
    """Kill the server and its children (Redis forks to rewrite its file), and wait."""
    if server.poll() is None:
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()


def remove(folder: Path) -> None:
    """Remove the folder; retry, because a child that is ending may still use it."""
    for _ in range(20):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)


def answer(message: dict[str, Any]) -> None:
    """Write and flush one response."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
