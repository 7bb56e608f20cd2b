"""The few things a device does to its disk, each one step that can fail or be cut short.

Promises: `replace` leaves the old bytes or the new ones, never a mixture, and returns only when
the new ones survive a loss of power; files are readable by their owner alone; one process at a
time holds the lock of a folder, and the system frees it when that process dies.
Assumes: a POSIX system, where a rename is atomic and a folder can be fsynced.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from localclient.errors import StorageRefused

__all__ = ["Files"]


class Files:
    """One folder on a real disk. Every change goes through a method whose name starts with `_`.

    Tests override those to cut the power or fill the disk at each of them in turn.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with self._refusing("make its folder"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder against every other process and thread."""
        with self._refusing("open its lock"):
            lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with self._refusing("lock its folder"):
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def read(self, name: str) -> bytes | None:
        """The file's bytes, or `None` when there is no such file."""
        with self._refusing("read its files"):
            try:
                return (self.folder / name).read_bytes()
            except FileNotFoundError:
                return None

    def size(self, name: str) -> int:
        """How many bytes the file has; 0 when there is none."""
        with self._refusing("read its files"):
            try:
                return (self.folder / name).stat().st_size
            except FileNotFoundError:
                return 0

    def replace(self, name: str, data: bytes) -> None:
        """Put `data` in place of the file, durably, all or nothing."""
        new = self.folder / f"{name}.new"
        with self._refusing("write what must be written before anything is sent"):
            try:
                handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
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
        """Make the folder itself survive a loss of power; wanted once, when it is new."""
        with self._refusing("make its folder durable"):
            device = self.folder.stat().st_dev
            for parent in self.folder.resolve().parents:
                if parent.stat().st_dev != device:
                    break  # what is mounted was not made here
                with suppress(PermissionError):  # nor was a folder that may not be read
                    self._sync_path(parent)

    def append(self, name: str, line: bytes) -> None:
        """Add `line` (with its newline) to the file, after dropping a line that was cut short.

        Not synced: a lost record is a record fewer, and phones wear out.
        """
        with self._refusing("keep the record"):
            path = self.folder / name
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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


def _end_of_lines(handle: int) -> int:
    """Where the last whole line ends: a process killed while appending leaves half a line."""
    end = os.lseek(handle, 0, os.SEEK_END)
    while end:
        start = max(0, end - 4096)
        newline = os.pread(handle, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0
