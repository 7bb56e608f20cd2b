"""A full or damaged disk: refused clearly, nothing spent, nothing sent."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from blendstream.localclient import ResultCode, StateUnreadable, StorageRefused
from blendstream.localclient.files import Files
from tests.localclient.support import (
    END,
    HOUR,
    LISTED,
    START,
    Gateway,
    ManualClock,
    device,
    head_list,
    limits,
    state_of,
)


class FullDisk(Files):
    """A disk on which everything from the n-th step on fails."""

    def __init__(self, folder: Path, from_step: int) -> None:
        super().__init__(folder)
        self.from_step = from_step
        self.steps = 0

    def _step(self) -> None:
        self.steps += 1
        if self.steps > self.from_step:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _write(self, handle: int, data: bytes) -> None:
        super()._write(handle, data[: len(data) // 2])
        self._step()
        super()._write(handle, data[len(data) // 2 :])

    def _sync(self, handle: int) -> None:
        self._step()
        super()._sync(handle)

    def _rename(self, old: Path, new: Path) -> None:
        self._step()
        super()._rename(old, new)


def searched(gateway: Gateway, folder: Path, clock: ManualClock) -> None:
    """A device that has searched, waits for its time, and is switched off."""
    client = device(gateway, folder, clock)
    clock.now_s = START + HOUR
    for record in LISTED:
        client.record(*record)
    clock.now_s = END + HOUR
    assert client.maybe_report().code is ResultCode.WAITING


def test_a_disk_that_fills_up_at_any_step_means_nothing_spent_and_nothing_sent(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """And once there is room, exactly one report goes out."""
    gateway.show(head_list())
    refused = []
    for step in range(14):
        gateway.posted.clear()
        folder = tmp_path / str(step)
        searched(gateway, folder, clock)
        full = device(gateway, folder, clock, files=partial(FullDisk, from_step=step))
        try:
            assert full.report_now().code is ResultCode.SENT
            kept = None
        except StorageRefused as refusal:
            refused.append(str(refusal))
            sent, state = gateway.bodies, state_of(folder)
            assert sent == []
            # What was renamed but not yet safe is kept for later: spent, and still unsent.
            kept = state.pending
            assert len(state.budget_entries) == (1 if kept else 0)
        again = device(gateway, folder, clock, seed=77)
        assert again.report_now().code in (ResultCode.SENT, ResultCode.NOTHING_NEW)
        assert len(set(gateway.bodies)) == 1
        assert len(state_of(folder).budget_entries) == 1
        if kept:
            assert gateway.bodies == [kept.body.encode()]
    assert len(refused) >= 4
    for message in refused:
        assert "No space left on device" in message
        assert "Free some space" in message


def test_a_record_that_does_not_fit_leaves_no_half_of_it(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    client = device(gateway, tmp_path, clock)
    client.record(*LISTED[0])
    before = (tmp_path / "records").read_bytes()
    full = device(gateway, tmp_path, clock, files=partial(FullDisk, from_step=0))
    with pytest.raises(StorageRefused, match="keep the record"):
        full.record(*LISTED[1])
    assert (tmp_path / "records").read_bytes() == before


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB, if this account may mount one."""
    place = tmp_path / "small"
    place.mkdir()
    mount = shutil.which("mount")
    options = ["-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if mount is None or subprocess.call([mount, *options], stderr=subprocess.DEVNULL) != 0:
        # Without the right to mount, the same tests run against the limit that every process has.
        yield tmp_path / "limited"
        return
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_really_full_disk_is_refused_and_recovers(
    gateway: Gateway, small_disk: Path, clock: ManualClock
) -> None:
    """On a real file system with no block left, or under a real limit on file sizes."""
    document = gateway.show(head_list())
    folder = small_disk / "device"
    searched(gateway, folder, clock)
    before = (folder / "state").read_bytes()
    if os.path.ismount(small_disk):
        filler = small_disk / "filler"
        with pytest.raises(OSError, match="No space"):
            filler.write_bytes(b"\0" * 65_536)
        with pytest.raises(StorageRefused, match="No space left"):
            device(gateway, folder, clock).report_now()
        filler.unlink()
    else:
        code = (
            "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10));"
            "from pathlib import Path; from blendstream.localclient.files import Files;"
            "Files(Path(sys.argv[1])).replace('state', b'x' * 100)"
        )
        ran = subprocess.run(
            [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=False
        )
        assert "StorageRefused" in ran.stderr
    assert (folder / "state").read_bytes() == before
    assert gateway.posted == []

    assert device(gateway, folder, clock).report_now().code is ResultCode.SENT
    assert document.id.encode() in gateway.bodies[0]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data.replace(b'"epsilon": 4.0', b'"epsilon": 0.0'),
        lambda data: data + b" ",
        lambda data: b"\0" * len(data),
        lambda data: data.replace(data[:4], b"ffff", 1),
    ],
)
def test_a_damaged_state_stops_all_spending(
    gateway: Gateway, tmp_path: Path, clock: ManualClock, damage
) -> None:
    """Not knowing what was spent, a device must not spend."""
    gateway.show(head_list())
    device(gateway, tmp_path, clock).report_now()
    gateway.show(head_list(8, shift_s=2 * 86_400))
    clock.now_s += 2 * 86_400
    good = (tmp_path / "state").read_bytes()
    (tmp_path / "state").write_bytes(damage(good))

    with pytest.raises(StateUnreadable, match="must be whole, but it is damaged"):
        device(gateway, tmp_path, clock)
    assert len(gateway.posted) == 1

    (tmp_path / "state").write_bytes(good)
    assert device(gateway, tmp_path, clock).report_now().code is ResultCode.SENT


def test_a_state_that_was_there_and_is_gone_stops_all_spending(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """Else deleting one file would buy a new budget."""
    gateway.show(head_list())
    client = device(gateway, tmp_path, clock)
    client.maybe_report()
    (tmp_path / "state").unlink()
    for start in (client.report_now, lambda: device(gateway, tmp_path, clock)):
        with pytest.raises(StateUnreadable, match="must exist, but it is missing"):
            start()
    assert gateway.posted == []


def test_half_a_line_of_records_is_passed_over(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    client = device(gateway, tmp_path, clock)
    client.record(*LISTED[0])
    with (tmp_path / "records").open("ab") as file:
        file.write(b'[123,"half a li')
    assert client.status().records_held == 1
    client.record(*LISTED[1])
    assert client.status().records_held == 2


def test_what_is_kept_is_for_the_owner_alone(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    folder = tmp_path / "own"
    device(gateway, folder, clock).record(*LISTED[0])
    assert folder.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir())


def test_records_take_no_more_room_than_allowed_and_the_newest_stay(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    client = device(gateway, tmp_path, clock, own=limits(max_record_bytes=2_000))
    for i in range(200):
        client.record(f"query {i}", "https://a.example/")
        assert (tmp_path / "records").stat().st_size <= 2_000
    assert "query 199" in (tmp_path / "records").read_text()


def test_records_nobody_asks_for_are_forgotten_in_time(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    client = device(gateway, tmp_path, clock)
    client.record(*LISTED[0])
    clock.now_s += 46 * 86_400
    client.maybe_report()
    assert client.status().records_held == 0


class WatchedFiles(Files):
    """A real disk that tells what is done to it, in order."""

    def __init__(self, folder: Path, told: list[str]) -> None:
        super().__init__(folder)
        self.told = told

    def _write(self, handle: int, data: bytes) -> None:
        self.told.append("written with bytes to send" if b'"pending": {' in data else "written")
        super()._write(handle, data)

    def _sync(self, handle: int) -> None:
        self.told.append("synced")
        super()._sync(handle)

    def _rename(self, old: Path, new: Path) -> None:
        self.told.append("renamed")
        super()._rename(old, new)


def test_the_report_survives_a_loss_of_power_before_it_is_sent(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """A killed process keeps what the system holds in memory; a device without power does not."""
    gateway.show(head_list())
    told: list[str] = []
    kept = device(gateway, tmp_path, clock, files=partial(WatchedFiles, told=told))

    class Watched(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            told.append(request.method)
            return super().handle_request(request)

    client = device(
        gateway,
        tmp_path,
        clock,
        files=partial(WatchedFiles, told=told),
        http=lambda: httpx.Client(transport=Watched(verify=False)),
    )
    clock.now_s = START + HOUR
    kept.record(*LISTED[0])
    clock.now_s = END + HOUR
    assert client.report_now().code is ResultCode.SENT

    began = told.index("written with bytes to send")
    durable = ["written with bytes to send", "synced", "renamed", "synced"]
    assert told[began : began + 4] == durable
    assert told.index("POST") > began + 3
    assert told.count("written with bytes to send") == 1


class MappedFiles(Files):
    """A real disk that tells which folder or file was made durable, and what was put in place."""

    def __init__(self, folder: Path, told: list[int | str]) -> None:
        self.told = told
        super().__init__(folder)

    def _sync(self, handle: int) -> None:
        self.told.append(os.fstat(handle).st_ino)
        super()._sync(handle)

    def _rename(self, old: Path, new: Path) -> None:
        self.told.append(new.name)
        super()._rename(old, new)


def test_a_new_folder_survives_a_loss_of_power_before_anything_is_spent(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """If it could vanish with the budget entries in it, a loss of power would be a new budget."""
    folder = tmp_path / "made" / "with" / "it"
    for new in (True, False):
        told: list[int | str] = []
        device(gateway, folder, clock, files=partial(MappedFiles, told=told))
        parents = {path.stat().st_ino for path in (folder.parent, folder.parent.parent, tmp_path)}
        if new:
            assert parents <= set(told[: told.index("begun")])
        else:
            assert told == []
