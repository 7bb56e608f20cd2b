"""Make and show a report without sending it, spending budget or changing the disk.

A dry run executes the code that makes real reports on a copy of the device's folder in memory. It
fetches the head list (or the epochs) from the server as a real report does, and stops before the
POST.

Promises: no POST leaves the device; the folder is only read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from blendstream.localclient.exchange import DeviceRequest, Outcome, Response, ResultCode
from blendstream.localclient.files import KEPT, Files
from blendstream.localclient.limits import Limits
from blendstream.localclient.local_client import _REAL, LocalClient, _Parts
from blendstream.localclient.opting_in import OptIn
from blendstream.localclient.store import Store

if TYPE_CHECKING:
    import httpx

__all__ = ["DryRun", "dry_run"]

#: Ends an exchange before its POST.
_STOPPED = Outcome(ResultCode.WAITING, None, 0, "")


@dataclass(frozen=True, slots=True)
class DryRun:
    """Result of a dry run: a real report would end with `outcome`, or post `body` to `path`.

    `asked` are the paths that were fetched. The body is about the `searches` of one window. Sending
    it would spend `epsilon` and `delta`, which are 0 if an earlier call stored and paid for it.
    """

    asked: tuple[str, ...]
    outcome: Outcome | None
    path: str = ""
    body: str = ""
    epoch: int | None = None
    searches: int = 0
    epsilon: float = 0.0
    delta: float = 0.0

    def __repr__(self) -> str:
        """Leave out the body: opt-in bytes contain searches, and representations end up in logs."""
        return f"DryRun(path={self.path!r}, epoch={self.epoch}, …)"


def dry_run(
    server: str,
    folder: str | Path,
    limits: Limits,
    *,
    opt_in: OptIn | None = None,
    http: Callable[[], httpx.Client] | None = None,
    _parts: _Parts = _REAL,
) -> DryRun:
    """Make the report that is due, without waiting for its time, and return it instead of sending.

    Raises what `LocalClient.report_now` would raise. Each run draws new random numbers, so a
    real report has others. Publish no result: several together reveal more than the budget allows.
    """
    from blendstream.localclient.http_transport import run_exchange  # noqa: PLC0415

    parts = _parts._replace(files=_CopiedFiles)
    client = LocalClient(server, folder, limits, opt_in=opt_in, http=http, _parts=parts)
    store, asked, posts = client._context.store, list[str](), list[DeviceRequest]()
    with store.locked() as state:
        entries_before = len(state.budget_entries)
    exchange = client._exchange(at_once=True)
    if isinstance(exchange, Outcome):
        return DryRun((), exchange)

    def advance(response: Response | None) -> DeviceRequest | Outcome:
        step = client._advance(exchange, response)
        if isinstance(step, DeviceRequest) and step.method != "GET":
            posts.append(step)
            return _STOPPED
        if isinstance(step, DeviceRequest):
            asked.append(step.path)
        return step

    outcome = run_exchange(client._server, advance, http)
    if not posts:
        return DryRun(tuple(asked), outcome)
    with store.locked() as state:
        entry, is_new = state.budget_entries[-1], len(state.budget_entries) > entries_before
    before = Store(_CopiedFiles(Path(folder)), limits.max_record_bytes)
    return DryRun(
        tuple(asked),
        None,
        posts[0].path,
        (posts[0].body or b"").decode(),
        entry.epoch,
        len(before.records(entry.window_start_s, entry.window_end_s)) if is_new else 0,
        entry.epsilon if is_new else 0.0,
        entry.delta if is_new else 0.0,
    )


class _CopiedFiles(Files):
    """The folder's files, copied into memory. Creates, locks and writes nothing on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._held: dict[str, bytes | None] = {}
        for name in KEPT:
            self._held[name] = super().read(name)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Do nothing: no other process sees this copy."""
        yield

    def read(self, name: str) -> bytes | None:
        """Return the copied file's bytes, or `None` if there is none."""
        return self._held[name]

    def size(self, name: str) -> int:
        """Return the copied file's length."""
        return len(self._held[name] or b"")

    def replace(self, name: str, data: bytes) -> None:
        """Change the copy."""
        self._held[name] = data

    def append(self, name: str, line: bytes) -> None:
        """Change the copy."""
        self._held[name] = (self._held[name] or b"") + line

    def sync_parents(self) -> None:
        """Do nothing."""
