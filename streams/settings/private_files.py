"""Who may read and change a file that holds secrets.

Its owner and its group may read it: Kubernetes hands secrets to a group (fsGroup). Only its owner
may change it: writing a token file decides who is let in.
"""

from __future__ import annotations

import shlex
import stat
from pathlib import Path

__all__ = ["exposed"]

_TOO_OPEN = stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH


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
