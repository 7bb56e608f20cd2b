"""File operations of a device, each a single step that may fail or be interrupted.

Promises: `replace` leaves the old bytes or the new ones, never a mixture, and returns only when
the new ones survive a power loss. The next process that takes the lock removes files that a crash
left half-written; one process at a time has the lock, and the system frees it when that ends.
Folder (0700) and files (0600) belong to the user who runs the client and are for that user alone:
wide modes are narrowed, links are not followed, and everything else is refused.
Assumes: a POSIX system, where a rename is atomic and a folder can be fsynced; that others cannot
rename the folders above this one.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from blendstream.localclient.errors import StorageRefused

__all__ = ["KEPT", "Files"]

#: The files other than the lock. A write creates another name (`_new`) first, and then renames it.
KEPT = ("state", "begun", "records")
#: Do not follow links, and do not wait for the other end of a pipe that someone put there.
_CAREFULLY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Files:
    """One folder on a real disk. Every change is made by a method whose name starts with `_`.

    Tests override these methods, to simulate a power cut or a full disk at each of them in turn.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with self._refusing("make its folder"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock every other process and thread out of the folder."""
        with self._refusing("open its lock"):
            self._make_folder_private()
            lock = self._open("lock", os.O_RDWR | os.O_CREAT)
        try:
            with self._refusing("lock its folder"):
                fcntl.flock(lock, fcntl.LOCK_EX)
                self._remove_leftovers()
            yield
        finally:
            os.close(lock)

    def read(self, name: str) -> bytes | None:
        """Return the file's bytes, or `None` if there is no such file."""
        with self._refusing("read its files"):
            try:
                handle = self._open(name, os.O_RDONLY)
            except FileNotFoundError:
                return None
            with open(handle, "rb") as file:
                return file.read()

    def size(self, name: str) -> int:
        """Return the file's size in bytes; 0 if there is none."""
        with self._refusing("read its files"):
            try:
                return (self.folder / name).lstat().st_size
            except FileNotFoundError:
                return 0

    def replace(self, name: str, data: bytes) -> None:
        """Replace the file by `data`, durably and atomically."""
        new = self.folder / _new(name)
        with self._refusing("write what must be written before anything is sent"):
            try:
                handle = self._open(new.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
                try:
                    self._write(handle, data)
                    self._sync(handle)
                finally:
                    os.close(handle)
                self._rename(new, self.folder / name)
                self._sync_path(self.folder)
            except OSError:
                new.unlink(missing_ok=True)
                raise

    def sync_parents(self) -> None:
        """Make a new folder itself survive a power loss; needed once."""
        with self._refusing("make its folder durable"):
            device = self.folder.stat().st_dev
            for parent in self.folder.resolve().parents:
                if parent.stat().st_dev != device:
                    break  # the client did not create a mount point
                with suppress(PermissionError):  # nor was a folder that may not be read
                    self._sync_path(parent)

    def append(self, name: str, line: bytes) -> None:
        """Append `line` (with its newline) to the file, after removing an incomplete last line.

        The line is not synced: one lost record does little harm, and syncs wear a phone's memory.
        """
        with self._refusing("keep the record"):
            handle = self._open(name, os.O_RDWR | os.O_CREAT)
            try:
                end = _end_of_lines(handle)
                os.ftruncate(handle, end)
                os.lseek(handle, end, os.SEEK_SET)
                try:
                    self._write(handle, line)
                except OSError:
                    os.ftruncate(handle, end)
                    raise
            finally:
                os.close(handle)

    def _make_folder_private(self) -> None:
        try:
            handle = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | _CAREFULLY)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise StorageRefused(
                    "the client's folder must be a folder, not a link or a file. "
                    "Name the folder that the link leads to, or remove what is there."
                ) from None
            raise
        try:
            # A folder with others' files may be open on purpose; narrowing it would lock them out.
            wide = os.fstat(handle).st_mode & 0o077
            own = wide and set(os.listdir(handle)) <= {"lock", *KEPT, *map(_new, KEPT)}
            _make_private(handle, "the client's folder", 0o700, narrow=bool(own))
        finally:
            os.close(handle)

    def _open(self, name: str, flags: int) -> int:
        """Open a plain file of this user; refuse links, other kinds of files and other owners."""
        what = f"{name} in the client's folder"
        try:
            handle = os.open(self.folder / name, flags | _CAREFULLY, 0o600)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise StorageRefused(_planted(what, "a link")) from None
            raise
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise StorageRefused(_planted(what, "not a plain file"))
            _make_private(handle, what, 0o600, narrow=True)
        except BaseException:
            os.close(handle)
            raise
        return handle

    def _remove_leftovers(self) -> None:
        """Remove half-written files. The caller holds the lock, so their writers have ended."""
        removed = False
        for name in map(_new, KEPT):
            with suppress(FileNotFoundError):
                (self.folder / name).unlink()
                removed = True
        if removed:
            self._sync_path(self.folder)

    def _write(self, handle: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]

    def _sync(self, handle: int) -> None:
        os.fsync(handle)

    def _rename(self, old: Path, new: Path) -> None:
        os.replace(old, new)

    def _sync_path(self, folder: Path) -> None:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._sync(handle)
        finally:
            os.close(handle)

    @contextmanager
    def _refusing(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageRefused(
                f"the device must be able to {what}, but its disk answered: {error.strerror}. "
                "Free some space or make the folder writable; the client tries again when called."
            ) from None


def _new(name: str) -> str:
    return f"{name}.new"


def _make_private(handle: int, what: str, mode: int, *, narrow: bool) -> None:
    """Remove other users' rights, or refuse."""
    status, mine = os.fstat(handle), os.geteuid()
    if status.st_uid != mine:
        raise StorageRefused(
            f"{what} must belong to the user who runs the client, user {mine}, but it belongs to "
            f"user {status.st_uid}. Run the client as its owner, or give it a folder of its own."
        )
    if status.st_mode & 0o077 and narrow:
        with suppress(PermissionError):
            os.fchmod(handle, mode)
        status = os.fstat(handle)
    if status.st_mode & 0o077:
        raise StorageRefused(
            f"{what} must be for its owner alone, but its mode is "
            f"{stat.S_IMODE(status.st_mode):04o}: run chmod {mode:o} on it, or give the client a "
            "folder of its own on a disk that knows owners and modes."
        )


def _planted(what: str, instead: str) -> str:
    return (
        f"{what} must be a file of its own, but it is {instead}. Find out who put it there and "
        "remove it; the client tries again when called."
    )


def _end_of_lines(handle: int) -> int:
    """Return the end of the last complete line; a process killed while appending leaves a part."""
    end = os.lseek(handle, 0, os.SEEK_END)
    while end:
        start = max(0, end - 4096)
        newline = os.pread(handle, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0
