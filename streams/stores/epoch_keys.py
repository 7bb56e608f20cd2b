"""Epoch keys: who a contributor is, for one epoch and no longer.

A master secret and the epoch give five independent keys; each hashes one thing. So a person's
partition says nothing about whether they are in S or T, and nothing that is stored links the same
person across two epochs, even for someone who has the Redis data.

    master ──HKDF(epoch)──┬─ contributor   account or device id → the 16 bytes that travel
                          ├─ partition     contributor → which partition    (gateway)
                          ├─ share         contributor → S, T or graph      (worker)
                          ├─ fingerprint   contributor, slot → 64 bits      (worker)
                          └─ record        contributor, record → 64 bits    (worker)

An account is a user id in a space of user ids, which is the sending application's own unless the
operator lets applications share one. (Epochs opened before there were spaces hash the user id
alone; the entry that opened an epoch says which.)

Promises: the same inputs give the same outputs in every process and release (vectors pin them).
Assumes: the master secret has at least 32 random bytes and stays secret. An attacker who has it can
test whether a known user id took part in an epoch whose contributor keys they also have.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from streams.wire.frames import CONTRIBUTOR_BYTES

__all__ = ["MIN_MASTER_BYTES", "EpochKeys", "KeyRing", "account"]

MIN_MASTER_BYTES: Final = 32
_KEY_BYTES: Final = {
    "contributor": 32,
    "partition": 32,
    "share": 16,
    "fingerprint": 16,
    "record": 32,
}
_LENGTH_BYTES: Final = 2


def account(space: str, user_id: bytes) -> bytes:
    """The bytes that name a user id in its space: the space's length comes first.

    So no user id can reach into another space, however it is spelled.

    >>> account("news", b"17")
    b'\\x04\\x00news17'
    """
    name = space.encode()
    return len(name).to_bytes(_LENGTH_BYTES, "little") + name + user_id


@dataclass(frozen=True, slots=True)
class EpochKeys:
    """The five keys of one epoch. They print as nothing, so that no log can contain them."""

    contributor: bytes = field(repr=False)
    partition: bytes = field(repr=False)
    share: bytes = field(repr=False)
    fingerprint: bytes = field(repr=False)
    record: bytes = field(repr=False)

    @classmethod
    def derive(cls, master: bytes, epoch: int) -> EpochKeys:
        """HKDF-SHA256 of the master secret, one output for each key, named by epoch and use."""
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
        """The 16 bytes that identify an account or a device's random id in this epoch."""
        return hashlib.blake2b(
            identity, key=self.contributor, digest_size=CONTRIBUTOR_BYTES
        ).digest()

    def partition_of(self, contributor: bytes, partitions: int) -> int:
        """Where all of a contributor's entries of this epoch meet."""
        digest = hashlib.blake2b(contributor, key=self.partition, digest_size=8).digest()
        return int.from_bytes(digest, "little") % partitions

    def record_of(self, contributor: bytes, record: bytes) -> int:
        """64 bits that a contributor's second copy of a record in this epoch repeats."""
        digest = hashlib.blake2b(contributor + record, key=self.record, digest_size=8).digest()
        return int.from_bytes(digest, "little")


class KeyRing:
    """The master secrets by id. Which one an epoch uses is committed when the epoch opens."""

    def __init__(self, masters: Mapping[str, bytes]) -> None:
        self._masters = dict(masters)
        self._derive = lru_cache(maxsize=16)(self._derived)

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(sorted(self._masters))})"

    def __contains__(self, key_id: object) -> bool:
        return key_id in self._masters

    def epoch(self, key_id: str, epoch: int) -> EpochKeys:
        """The keys of an epoch; `LookupError` names the key id when its master is not here."""
        return self._derive(key_id, epoch)

    def _derived(self, key_id: str, epoch: int) -> EpochKeys:
        if key_id not in self._masters:
            raise LookupError(
                f"epoch {epoch} uses master secret {key_id!r}, which this process does not have; "
                "add it to the settings and start again"
            )
        return EpochKeys.derive(self._masters[key_id], epoch)
