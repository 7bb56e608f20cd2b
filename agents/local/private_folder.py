"""Check that a folder with Kafka's and Redis's data belongs to this user alone.

The data contains raw opt-in records. In a folder where others can write, such as /tmp, another user
may have put a link in its place, and this user's servers would read or overwrite its target.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from blendstream.agents.local.process_guard import StackError

__all__ = ["claim_folder"]

_OF_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_WRITTEN_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def claim_folder(folder: Path, *parts: str) -> None:
    """Create `folder` with mode 700, or check one that exists; raise `StackError` if it is unsafe.

    `parts` are the folders inside that the servers use. Existing files in them become readable by
    their owner only. Nothing else in `folder` is changed.
    """
    if not os.path.lexists(folder):
        folder.mkdir(mode=0o700, parents=True)
    _check(folder)
    if folder.stat().st_mode & _WRITTEN_BY_OTHERS:
        raise StackError(
            f"--folder must name a folder that only its owner can write to, got {folder}; "
            "take another, or run: chmod go-w on it"
        )
    for part in parts:
        if os.path.lexists(folder / part):
            for path in _all_in(folder / part):
                path.chmod(_check(path) & ~_OF_OTHERS)


def _all_in(folder: Path) -> Iterator[Path]:
    """Yield the folder and everything below it, parents first, without following links."""
    yield folder
    for place, folders, files in os.walk(folder):
        yield from (Path(place, name) for name in (*folders, *files))


def _check(path: Path) -> int:
    """Return the mode of a file or folder; raise if it is a link or another user owns it."""
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        raise StackError(
            f"--folder must lead to no link, got {path}; remove it, or name the folder it points to"
        )
    if found.st_uid != os.geteuid():
        raise StackError(
            f"--folder must hold files of the user who runs the stack, got {path} of user "
            f"{found.st_uid}; take another folder, or run the stack as that user"
        )
    return stat.S_IMODE(found.st_mode)
