"""Epoch keys: the same everywhere, different for every use, silent in every print."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blendstream.blender.paper.user_groups import PARTS
from blendstream.streams.epoch_keys import EpochKeys, KeyRing, account
from blendstream.streams.tables.fingerprints import siphash
from tests.scalar_siphash import scalar_siphash

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "frames.json").read_text())["keys"]
MASTER = bytes.fromhex(VECTORS["master"])


def test_keys_are_the_published_ones() -> None:
    """Gateways and workers of different releases must agree on who is who."""
    keys = EpochKeys.derive(MASTER, VECTORS["epoch"])
    for name in ("contributor", "partition", "share", "fingerprint", "record"):
        assert getattr(keys, name).hex() == VECTORS[name]
    for name, person in VECTORS["people"].items():
        contributor = keys.contributor_of(name.encode())
        assert contributor.hex() == person["contributor"]
        assert keys.partition_of(contributor, 64) == person["partition_of_64"]
        assert keys.partition_of(contributor, 1000) == person["partition_of_1000"]
        assert keys.record_of(contributor, b"a\tb") == person["record_of_a_tab_b"]


def test_accounts_are_the_published_ones() -> None:
    """The first three by hand: two bytes of length, little-endian, the space, the user id."""
    by_hand = {
        ("news-app", "17"): "0800" "6e6577732d617070" "3137",
        ("a", "bc"): "0100" "61" "6263",
        ("ab", "c"): "0200" "6162" "63",
    }  # fmt: skip
    key = bytes.fromhex(VECTORS["contributor"])
    published = {(v["space"], v["user_id"]): v for v in VECTORS["accounts"]}
    for names, expected in by_hand.items():
        assert published[names]["account"] == expected
    for (space, user_id), vector in published.items():
        named = bytes.fromhex(vector["account"])
        assert account(space, user_id.encode()) == named
        hashed = hashlib.blake2b(named, key=key, digest_size=16).hexdigest()
        assert hashed == vector["contributor"]
        assert EpochKeys.derive(MASTER, 41).contributor_of(named).hex() == hashed


@given(st.text(alphabet="ab\x00\x01\x02", min_size=3, max_size=60), st.data())
def test_accounts_differ_wherever_a_text_is_cut_into_space_and_user_id(
    text: str, data: st.DataObject
) -> None:
    """Else a user id could be written so as to be another space's."""
    cut, other = (data.draw(st.integers(1, len(text) - 1)) for _ in range(2))
    one = account(text[:cut], text[cut:].encode())
    assert (one == account(text[:other], text[other:].encode())) == (cut == other)


def test_shares_and_fingerprints_are_the_published_ones() -> None:
    """By the textbook SipHash and by ours: a replay by another release must know who was counted,
    and in which share."""
    keys = EpochKeys.derive(MASTER, VECTORS["epoch"])
    for person in VECTORS["people"].values():
        contributor = bytes.fromhex(person["contributor"])
        for name, key, data in (
            ("share_hash", keys.share, contributor),
            ("fingerprint", keys.fingerprint, contributor),
            ("fingerprint_of_slot_2", keys.fingerprint, contributor + (2).to_bytes(8, "little")),
        ):
            published = int.from_bytes(bytes.fromhex(person[name]), "little")
            assert scalar_siphash(key, data) == published
            assert siphash(key, np.frombuffer(data, "<u8").reshape(1, -1)) == published
        share_hash = int.from_bytes(bytes.fromhex(person["share_hash"]), "little")
        assert person["share_part"] == share_hash % PARTS


def test_a_person_is_somebody_else_in_the_next_epoch() -> None:
    """Otherwise what is stored would link a person's epochs."""
    one, two = EpochKeys.derive(MASTER, 1), EpochKeys.derive(MASTER, 2)
    assert one.contributor_of(b"alice") != two.contributor_of(b"alice")
    uses = [one.contributor, one.partition, one.record, one.share, one.fingerprint]
    assert len({key[:16] for key in uses}) == 5


def test_partitions_are_even() -> None:
    """χ² of 20 000 people over 16 partitions; one seed in 80 000 passes 50, this one is fixed."""
    keys = EpochKeys.derive(MASTER, 3)
    found = Counter(keys.partition_of(keys.contributor_of(b"%d" % i), 16) for i in range(20_000))
    assert sum((n - 1250) ** 2 / 1250 for n in found.values()) < 50


def test_nothing_prints_a_secret() -> None:
    keys = EpochKeys.derive(MASTER, 1)
    ring = KeyRing({"k1": MASTER})
    for shown in (repr(keys), repr(ring), str(keys)):
        assert MASTER.hex() not in shown
        assert keys.contributor.hex() not in shown
        assert "\\x" not in shown


def test_a_missing_or_short_secret_is_named_not_shown() -> None:
    with pytest.raises(ValueError, match="at least 32 random bytes, got 5"):
        EpochKeys.derive(b"short", 1)
    with pytest.raises(LookupError, match="epoch 9 uses master secret 'k2'"):
        KeyRing({"k1": MASTER}).epoch("k2", 9)
