"""The data of `blendstream stack --folder` is its owner's alone, wherever the folder is."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from blendstream.agents.local import Stack, StackError
from blendstream.agents.local.private_folder import claim_folder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_folder_is_its_owners_alone(tmp_path):
    claim_folder(tmp_path / "data", "kafka")
    assert mode(tmp_path / "data") == 0o700
    claim_folder(tmp_path / "data", "kafka")


def test_what_the_servers_kept_from_an_earlier_start_is_closed_to_others(tmp_path):
    """And nothing else: someone may name a folder that has other things in it."""
    kept, others = tmp_path / "redis/data/appendonly.aof", tmp_path / "notes.txt"
    kept.parent.mkdir(parents=True)
    for file in (kept, others):
        file.touch()
        file.chmod(0o644)
    claim_folder(tmp_path, "kafka", "redis")
    assert [mode(path) for path in (kept, kept.parent, others)] == [0o600, 0o700, 0o644]


@pytest.mark.parametrize(
    "place", ["data", "data/kafka", "data/redis/data", "data/kafka/server.log"]
)
@pytest.mark.parametrize("there", [True, False], ids=["leads to a folder", "leads nowhere"])
def test_a_link_is_refused_and_what_it_leads_to_stays_as_it_is(tmp_path, place, there):
    """In /tmp anyone may put a link where the stack is about to write."""
    victim = tmp_path / "victim"
    if there:
        victim.mkdir(mode=0o755)
    link = tmp_path / place
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(victim)
    with pytest.raises(StackError, match=f"must lead to no link, got {link}"):
        Stack.start(tmp_path / "data", environment={})
    assert victim.exists() == there
    assert not there or (mode(victim), list(victim.iterdir())) == (0o755, [])


def test_a_folder_that_others_can_write_to_is_refused(tmp_path):
    """They could put a link in it after the check."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o777)
    with pytest.raises(StackError, match="only its owner can write to"):
        claim_folder(tmp_path / "data", "kafka")
