"""Checks who may read a file that holds secrets, and lets one command at a time rewrite it.

Its owner and its group may read it: Kubernetes hands secrets to a group (fsGroup). Only its owner
may change it: writing a token file decides who is let in.
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
    """Keep other commands from rewriting `file` until the block ends; read it inside the block.

    Two that read the same text and then replaced it lost one of two changes. The folder is locked,
    not the file: the file is replaced, and a lock file would lie among secrets that hosts copy.
    """
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def exposed(file: Path, subject: str) -> str | None:
    """What is wrong with the mode of a file of secrets and how to fix it, or None."""
    try:
        found = file.stat().st_mode
    except OSError:
        return None  # Reading it fails too, and says why.
    # A pipe or a terminal keeps nothing that someone could read later.
    if not stat.S_ISREG(found) or not found & _TOO_OPEN:
        return None
    return (
        f"{subject} must be readable by its owner and group only and writable by its owner only, "
        f"got mode {stat.S_IMODE(found):04o} for {file}; run: chmod g-w,o= "
        f"{shlex.quote(str(file))} (the service's user must own the file or be in its group)"
    )
