"""One server for all the processes of one test run (pytest-xdist starts several)."""

import fcntl
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from blendstream.agents.local import GivenServer, LocalKafka, LocalRedis

Local = TypeVar("Local", LocalKafka, LocalRedis)


@contextmanager
def shared(name: str, folder: Path, start: Callable[[], Local]) -> Iterator[Local | GivenServer]:
    """Start the server in whichever process needs it first; the others get its address.

    Every user holds a shared lock on `in_use`; the owner ends the server when it can have that lock
    alone. Locks are released by the system however a process ends.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        with start() as own:
            yield own
        return
    server: Local | GivenServer
    address = folder / f"{name}.url"
    with (folder / f"{name}.mutex").open("w") as mutex, (folder / f"{name}.used").open("w") as used:
        fcntl.flock(mutex, fcntl.LOCK_EX)
        if address.exists():
            server = GivenServer(address.read_text())
        else:
            server = start()
            address.write_text(server.url)
        fcntl.flock(used, fcntl.LOCK_SH)
        fcntl.flock(mutex, fcntl.LOCK_UN)
        try:
            yield server
        finally:
            fcntl.flock(used, fcntl.LOCK_UN)
            if not isinstance(server, GivenServer):
                # The tests of other processes may take minutes yet. pytest-timeout counts them as
                # this process's last test, and would end the server under them.
                signal.setitimer(signal.ITIMER_REAL, 0)
                fcntl.flock(mutex, fcntl.LOCK_EX)  # Nobody can begin to use it now ...
                fcntl.flock(used, fcntl.LOCK_EX)  # ... and everybody has ended.
                address.unlink()
                server.close()
