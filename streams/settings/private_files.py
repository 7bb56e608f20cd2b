"""Permission checks and locking of files that contain secrets.

The owner and the group may read such a file: Kubernetes gives secrets to a group (fsGroup). Only
the owner may change it: whoever writes a token file decides who has access.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["exposed", "rewriting"]

_TOO_OPEN = stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH


@contextmanager
def rewriting(file: Path) -> Iterator[None]:
    """Prevent other commands from rewriting `file` until the block ends; read it in the block.

    Otherwise two commands that read and replace it concurrently lose one change. The lock is on the
    folder, not the file, because commands replace the file; a lock file would be copied with the
    secrets.
    """
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def exposed(file: Path, subject: str) -> str | None:
    """Describe what is wrong with the mode of a file of secrets and how to fix it, or None."""
    try:
        found = file.stat().st_mode
    except OSError:
        return None  # Reading it fails too, with the reason.
    # A pipe or a terminal stores nothing that someone could read later.
    if not stat.S_ISREG(found) or not found & _TOO_OPEN:
        return None
    return (
        f"{subject} must be readable by its owner and group only and writable by its owner only, "
        f"got mode {stat.S_IMODE(found):04o} for {file}; run: chmod g-w,o= "
        f"{shlex.quote(str(file))} (the service's user must own the file or be in its group)"
    )
