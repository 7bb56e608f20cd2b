"""Epoch keys: pseudonyms of contributors, and the hashes made of them, valid for one epoch.

From a master secret and the epoch, HKDF derives five independent keys, each for one hash. So a
person's partition reveals nothing about whether they are in S or T, and no stored data links a
person across two epochs, even for someone who has the Redis data.

    master ──HKDF(epoch)──┬─ contributor   account or device id → 16-byte contributor key
                          ├─ partition     contributor → partition number   (gateway)
                          ├─ share         contributor → S, T or graph      (worker; see below)
                          ├─ fingerprint   contributor, slot → 64 bits      (worker)
                          └─ record        contributor, record → 64 bits    (worker)

In a budget period a person must stay in one subgroup, while their contributor key changes with
every epoch. There a key of the *period* assigns the user id to a subgroup (gateway), and the last
byte of the contributor key encodes it, masked by a hash of the other fifteen under the epoch's
`share` key: only the holder of that key (worker) can read it, and it reveals nothing else.

    master ──HKDF(period)─── user id → S, T or graph

An account is a user id in a space of user ids. Each application has a separate space unless the
operator lets applications share one. (Epochs opened before there were spaces hash the user id
alone; the entry that opened an epoch states which.)

Promises: equal inputs give equal outputs in every process and release (vectors pin them).
Assumes: the master secret has at least 32 random bytes and stays secret. An attacker who has it can
test whether a known user id took part in an epoch whose contributor keys they also have.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from blendstream.blender.paper.user_groups import partition_users
from blendstream.streams.budget.budget_period import BudgetPeriod
from blendstream.streams.wire.frames import CONTRIBUTOR_BYTES

__all__ = ["MIN_MASTER_BYTES", "EpochKeys", "KeyRing", "PeriodSubgroups", "account"]

MIN_MASTER_BYTES: Final = 32
_KEY_BYTES: Final = {
    "contributor": 32,
    "partition": 32,
    "share": 16,
    "fingerprint": 16,
    "record": 32,
}
_LENGTH_BYTES: Final = 2
#: Size of the hash from which a contributor's partition is computed.
_PARTITION_BYTES: Final = 8


def account(space: str, user_id: bytes) -> bytes:
    """Encode a user id in its space; the space's length comes first.

    So no user id, whatever its text, can collide with one of another space.

    >>> account("news", b"17")
    b'\\x04\\x00news17'
    """
    name = space.encode()
    return len(name).to_bytes(_LENGTH_BYTES, "little") + name + user_id


@dataclass(frozen=True, slots=True)
class EpochKeys:
    """The five keys of one epoch. `repr` omits them, so that no log can contain them."""

    contributor: bytes = field(repr=False)
    partition: bytes = field(repr=False)
    share: bytes = field(repr=False)
    fingerprint: bytes = field(repr=False)
    record: bytes = field(repr=False)
    # Hashes initialised with their key: copying one costs less than initialising another.
    _contributors: hashlib.blake2b = field(init=False, repr=False, compare=False)
    _partitions: hashlib.blake2b = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        contributors = hashlib.blake2b(key=self.contributor, digest_size=CONTRIBUTOR_BYTES)
        object.__setattr__(self, "_contributors", contributors)
        partitions = hashlib.blake2b(key=self.partition, digest_size=_PARTITION_BYTES)
        object.__setattr__(self, "_partitions", partitions)

    @classmethod
    def derive(cls, master: bytes, epoch: int) -> EpochKeys:
        """Derive the keys by HKDF-SHA256 of the master secret, one output per epoch and use."""
        if len(master) < MIN_MASTER_BYTES:
            raise ValueError(
                f"a master secret needs at least {MIN_MASTER_BYTES} random bytes, got {len(master)}"
            )

        def expand(use: str) -> bytes:
            info = f"blendstream epoch {epoch} {use}".encode()
            kdf = HKDF(hashes.SHA256(), _KEY_BYTES[use], salt=None, info=info)
            return kdf.derive(master)

        return cls(**{use: expand(use) for use in _KEY_BYTES})

    def contributor_of(self, identity: bytes) -> bytes:
        """Compute the 16-byte contributor key of an account or a device's id in this epoch."""
        keyed = self._contributors.copy()
        keyed.update(identity)
        return keyed.digest()

    def contributors_of(self, identities: bytes, each: int) -> bytes:
        """Compute `contributor_of` for concatenated identities of `each` bytes; keys are joined."""
        return _hashed(self._contributors, identities, each)

    def contributor_in(self, identity: bytes, subgroup: int) -> bytes:
        """Compute a contributor key in a budget period: its last byte encodes the subgroup."""
        others = self.contributor_of(identity)[:-1]
        return others + bytes([self._mask(others) ^ subgroup])

    def subgroup_in(self, contributor: bytes) -> int:
        """Decode the subgroup's number from a key of `contributor_in`."""
        return self._mask(contributor[:-1]) ^ contributor[-1]

    def _mask(self, others: bytes) -> int:
        return hashlib.blake2b(others, key=self.share, digest_size=1).digest()[0]

    def partition_of(self, contributor: bytes, partitions: int) -> int:
        """Compute the partition of all of a contributor's entries of this epoch."""
        keyed = self._partitions.copy()
        keyed.update(contributor)
        return int.from_bytes(keyed.digest(), "little") % partitions

    def partitions_of(self, contributors: bytes, partitions: int) -> NDArray[np.int64]:
        """Compute `partition_of` for concatenated contributor keys."""
        digests = _hashed(self._partitions, contributors, CONTRIBUTOR_BYTES)
        return (np.frombuffer(digests, dtype="<u8") % np.uint64(partitions)).astype(np.int64)

    def record_of(self, contributor: bytes, record: bytes) -> int:
        """Hash (contributor, record) to 64 bits with a key, to detect duplicates in an epoch."""
        digest = hashlib.blake2b(contributor + record, key=self.record, digest_size=8).digest()
        return int.from_bytes(digest, "little")


def _hashed(keyed: hashlib.blake2b, values: bytes, each: int) -> bytes:
    """Compute the keyed hash of every `each` bytes, joined."""
    digests, copy = [], keyed.copy
    for (value,) in struct.iter_unpack(f"{each}s", values):
        one = copy()
        one.update(value)
        digests.append(one.digest())
    return b"".join(digests)


class PeriodSubgroups:
    """Assignment of users to subgroups, fixed for all epochs of one budget period.

    It depends on the user id only: if an application moves to another space of user ids, its users
    stay in their subgroups.
    """

    def __init__(self, master: bytes, period: BudgetPeriod) -> None:
        info = f"blendstream period {period.first_epoch} share".encode()
        self._key = HKDF(hashes.SHA256(), 32, salt=None, info=info).derive(master)
        self._shares = period.shares

    def of(self, user_id: bytes) -> int:
        """Return the number of this user's subgroup: S, T or graph."""
        digest = hashlib.blake2b(user_id, key=self._key, digest_size=8).digest()
        return int(partition_users(np.frombuffer(digest, "<u8"), self._shares)[0])


class KeyRing:
    """The master secrets by id. The entry that opens an epoch names the one that it uses."""

    def __init__(self, masters: Mapping[str, bytes]) -> None:
        self._masters = dict(masters)
        self._derive = lru_cache(maxsize=16)(self._derived)

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(sorted(self._masters))})"

    def __contains__(self, key_id: object) -> bool:
        return key_id in self._masters

    def epoch(self, key_id: str, epoch: int) -> EpochKeys:
        """Return an epoch's keys; `LookupError` names the key id if its secret is missing."""
        return self._derive(key_id, epoch)

    def period_subgroups(self, period: BudgetPeriod) -> PeriodSubgroups:
        """Return the subgroups of a budget period; `LookupError` as for an epoch."""
        return PeriodSubgroups(self._master(period.share_key_id, period.first_epoch), period)

    def _derived(self, key_id: str, epoch: int) -> EpochKeys:
        return EpochKeys.derive(self._master(key_id, epoch), epoch)

    def _master(self, key_id: str, epoch: int) -> bytes:
        if key_id not in self._masters:
            raise LookupError(
                f"epoch {epoch} uses master secret {key_id!r}, which this process does not have; "
                "add it to the settings and start again"
            )
        return self._masters[key_id]
