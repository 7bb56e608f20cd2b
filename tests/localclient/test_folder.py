"""The folder is the person's own: no leftovers, no links, nobody else's files, no wide modes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from blendstream.localclient import ResultCode, StorageRefused
from tests.localclient.support import END, HOUR, LISTED, START, Gateway, ManualClock, device
from tests.localclient.support import head_list as shown_list

#: Everything the client keeps, and what it writes first and then renames.
KEPT = ("lock", "state", "begun", "records")
WRITTEN_FIRST = ("state.new", "begun.new", "records.new")


def used(gateway: Gateway, folder: Path, clock: ManualClock) -> None:
    """A folder that a device has searched and reported in."""
    gateway.show(shown_list())
    client = device(gateway, folder, clock)
    clock.now_s = START + HOUR
    client.record(*LISTED[0])
    clock.now_s = END + HOUR
    assert client.report_now().code is ResultCode.SENT
    client.record(*LISTED[1])
    gateway.posted.clear()


def modes(folder: Path) -> set[int]:
    return {stat.S_IMODE(path.lstat().st_mode) for path in folder.iterdir()}


@pytest.mark.parametrize("name", WRITTEN_FIRST)
def test_what_a_crash_left_half_written_is_removed_at_opening(
    gateway: Gateway, tmp_path: Path, clock: ManualClock, name: str
) -> None:
    """A `state.new` once kept an opt-in record after consent was withdrawn and all forgotten."""
    used(gateway, tmp_path, clock)
    (tmp_path / name).write_bytes(b"zq-secret")
    device(gateway, tmp_path, clock)
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("name", WRITTEN_FIRST)
def test_what_another_process_left_half_written_is_gone_once_all_is_forgotten(
    gateway: Gateway, tmp_path: Path, clock: ManualClock, name: str
) -> None:
    """One of two processes died; the other, which was open all the time, is asked to forget."""
    used(gateway, tmp_path, clock)
    client = device(gateway, tmp_path, clock)
    (tmp_path / name).write_bytes(b"zq-secret")
    client.forget()
    assert b"zq-secret" not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


@pytest.mark.parametrize("name", [*KEPT, *WRITTEN_FIRST])
@pytest.mark.parametrize("new", [True, False])
def test_a_planted_link_is_never_followed(
    gateway: Gateway, tmp_path: Path, clock: ManualClock, name: str, new: bool
) -> None:
    """Else a search would be written to, or a file overwritten at, a place that another chose."""
    folder, elsewhere = tmp_path / "own", tmp_path / "elsewhere"
    folder.mkdir(mode=0o700)
    if not new:
        used(gateway, folder, clock)
        (folder / name).unlink(missing_ok=True)
    elsewhere.write_bytes(b"another's\n")
    (folder / name).symlink_to(elsewhere)
    try:
        client = device(gateway, folder, clock)
        client.record(*LISTED[0])
        client.forget()
        refused = ""
    except StorageRefused as refusal:
        refused = str(refusal)
    assert elsewhere.read_bytes() == b"another's\n"
    if name in KEPT:
        assert "must be a file of its own, but it is a link" in refused
        assert "remove it" in refused
    else:
        assert refused == ""


@pytest.mark.parametrize("name", KEPT)
def test_a_planted_link_to_nothing_makes_no_file_there(
    gateway: Gateway, tmp_path: Path, clock: ManualClock, name: str
) -> None:
    folder, elsewhere = tmp_path / "own", tmp_path / "elsewhere"
    folder.mkdir(mode=0o700)
    (folder / name).symlink_to(elsewhere)
    with pytest.raises(StorageRefused, match="a link"):
        device(gateway, folder, clock).record(*LISTED[0])
    assert not elsewhere.exists()


def test_a_folder_that_is_a_link_is_refused(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(elsewhere)
    with pytest.raises(StorageRefused, match="must be a folder, not a link"):
        device(gateway, tmp_path / "link", clock)
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("name", KEPT)
def test_a_planted_pipe_does_not_hold_the_device(
    gateway: Gateway, tmp_path: Path, clock: ManualClock, name: str
) -> None:
    """Opening one that nobody writes to would wait for ever."""
    used(gateway, tmp_path, clock)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name, 0o600)
    with pytest.raises(StorageRefused, match="not a plain file"):
        device(gateway, tmp_path, clock).record(*LISTED[0])


@pytest.mark.parametrize("wide", [0o755, 0o750, 0o777, 0o701])
def test_a_folder_of_its_own_that_others_may_enter_is_closed_to_them(
    gateway: Gateway, tmp_path: Path, clock: ManualClock, wide: int
) -> None:
    """Made by an installer, as a rule. Nothing else is in it, so it is for the client."""
    tmp_path.chmod(wide)
    used(gateway, tmp_path, clock)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700
    tmp_path.chmod(wide)
    device(gateway, tmp_path, clock)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700


def test_a_wide_folder_with_others_files_is_refused_and_left_as_it_is(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """It may be shared on purpose (/tmp, for one): closing it would break whoever shares it."""
    (tmp_path / "somebody's file").write_bytes(b"")
    tmp_path.chmod(0o755)
    with pytest.raises(StorageRefused, match=r"for its owner alone.*0755.*chmod 700"):
        device(gateway, tmp_path, clock)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    assert [path.name for path in tmp_path.iterdir()] == ["somebody's file"]

    tmp_path.chmod(0o700)
    device(gateway, tmp_path, clock).record(*LISTED[0])


def test_files_that_others_may_read_are_closed_to_them(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """As a copy from a backup, or a program with another umask, may have left them."""
    used(gateway, tmp_path, clock)
    for path in tmp_path.iterdir():
        path.chmod(0o666)
    client = device(gateway, tmp_path, clock)
    client.record(*LISTED[0])
    assert modes(tmp_path) == {0o600}
    assert client.status().windows_answered == 1


def test_a_disk_that_knows_no_modes_is_refused(
    gateway: Gateway, tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a memory card's file system everybody may read everything, and chmod does nothing."""
    used(gateway, tmp_path, clock)
    monkeypatch.setattr(os, "fchmod", lambda handle, mode: None)
    (tmp_path / "state").chmod(0o644)
    with pytest.raises(StorageRefused, match="for its owner alone"):
        device(gateway, tmp_path, clock)
    (tmp_path / "state").chmod(0o600)
    tmp_path.chmod(0o755)
    with pytest.raises(StorageRefused, match="for its owner alone"):
        device(gateway, tmp_path, clock)


def test_a_folder_or_file_of_another_user_is_refused(
    gateway: Gateway, tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner could read what is kept in it, or hand the device a state of their own."""
    used(gateway, tmp_path, clock)
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    with pytest.raises(StorageRefused, match=f"must belong to.*user {mine + 1}.*user {mine}"):
        device(gateway, tmp_path, clock)

    real = os.fstat

    def another_owner(handle: int) -> os.stat_result:
        found = real(handle)
        if stat.S_ISDIR(found.st_mode):
            return os.stat_result([*found[:4], mine + 1, *found[5:]])
        return found

    monkeypatch.setattr(os, "fstat", another_owner)
    with pytest.raises(
        StorageRefused, match=f"lock in the client's folder must belong to.*user {mine}"
    ):
        device(gateway, tmp_path, clock)
