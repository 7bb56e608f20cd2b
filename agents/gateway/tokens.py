"""Who may submit opt-in records: bearer tokens that name an application.

A token reads `NAME.SECRET`; the file keeps, for each, the name, a salt and a salted hash, so that
whoever reads the file cannot submit. Secrets are 256 random bits, which is why one fast hash is
enough: there is no dictionary to try.

    # application   scheme    salt (hex)                        hash (hex)
    news-app        blake2b   3d1f…                             9ae0…

A name may appear on several lines while one token replaces another. The file is read again when
it changes; a file that cannot be read then leaves the last good one in force, says so, and is tried
again until it can. Whoever may read the file may still read it after it was written.

Promises: tokens are compared in constant time, also when the name is unknown, and never logged.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from blender.errors import BlenderError

__all__ = ["ApplicationTokens", "TokenFileError", "add_token", "read_tokens", "remove_tokens"]

log = logging.getLogger(__name__)

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_SCHEME = "blake2b"
_SALT_BYTES = 16
_HASH_BYTES = 32

#: How often a request looks whether the file changed. Less often would keep a withdrawn token
#: alive longer; more often would cost every request a system call.
_LOOK_EVERY_S = 1.0


class TokenFileError(BlenderError):
    """The token file is not one; the message names the line, never its content."""


@dataclass(frozen=True, slots=True)
class _Hashed:
    salt: bytes = field(repr=False)
    hash: bytes = field(repr=False)

    def matches(self, secret: bytes) -> bool:
        return hmac.compare_digest(_hash(secret, self.salt), self.hash)


#: Stands in for an unknown name, so that a wrong name takes as long as a wrong secret.
_NOBODY = _Hashed(bytes(_SALT_BYTES), bytes(_HASH_BYTES))


def _hash(secret: bytes, salt: bytes) -> bytes:
    return hashlib.blake2b(secret, salt=salt, digest_size=_HASH_BYTES).digest()


def read_tokens(text: str) -> dict[str, tuple[_Hashed, ...]]:
    """The hashed tokens of each application, or `TokenFileError` naming the first bad line."""
    found: dict[str, tuple[_Hashed, ...]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        fields = line.split("#", 1)[0].split()
        if not fields:
            continue
        try:
            name, scheme, salt_hex, hash_hex = fields
            salt, digest = bytes.fromhex(salt_hex), bytes.fromhex(hash_hex)
        except ValueError:
            raise TokenFileError(_bad_line(number)) from None
        sizes_fit = len(salt) == _SALT_BYTES and len(digest) == _HASH_BYTES
        if not (_NAME.fullmatch(name) and scheme == _SCHEME and sizes_fit):
            raise TokenFileError(_bad_line(number))
        found[name] = (*found.get(name, ()), _Hashed(salt, digest))
    return found


def _bad_line(number: int) -> str:
    return (
        f"line {number} of the token file must read NAME {_SCHEME} SALT HASH; "
        "write such lines with `blendstream tokens add NAME`"
    )


class ApplicationTokens:
    """The tokens in force, read again when their file changes."""

    def __init__(self, path: Path, *, clock: Callable[[], float]) -> None:
        """Read the file, or raise `TokenFileError`: a gateway does not start without it."""
        self._path = path
        self._clock = clock
        self._stamp = self._stat()
        self._tokens: Mapping[str, tuple[_Hashed, ...]] = self._read()
        self._looked_at = clock()
        #: The file cannot be read, so that a withdrawn token still works.
        self.stale = False

    def application(self, authorization: bytes | None) -> str | None:
        """The application that this `Authorization` header proves, or `None`."""
        self._look()
        name, secret = _parts(authorization)
        known = self._tokens.get(name, ())
        # Every candidate is compared, so that time tells neither which nor whether one matched.
        matched = [hashed.matches(secret) for hashed in known or (_NOBODY,)]
        return name if known and any(matched) else None

    def _look(self) -> None:
        now = self._clock()
        if now - self._looked_at < _LOOK_EVERY_S:
            return
        self._looked_at = now
        stamp = self._stat()
        # Leave to read a file may be given without changing it.
        if stamp == self._stamp and not self.stale:
            return
        self._stamp = stamp
        try:
            self._tokens = self._read()
        except TokenFileError as error:
            if not self.stale:
                log.error("application_tokens_kept", exc_info=error)
            self.stale = True
            return
        self.stale = False
        log.info("application_tokens_read", extra={"found": len(self._tokens)})

    def _stat(self) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read(self) -> dict[str, tuple[_Hashed, ...]]:
        try:
            text = self._path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise TokenFileError(
                f"the token file must be a readable text file, got {type(error).__name__}; "
                "create it with `blendstream tokens add NAME`"
            ) from None
        return read_tokens(text)


def _parts(authorization: bytes | None) -> tuple[str, bytes]:
    scheme, _, token = (authorization or b"").partition(b" ")
    name, _, secret = token.strip().partition(b".")
    if scheme.lower() != b"bearer":
        return "", b""
    return name.decode("ascii", errors="replace"), secret


def add_token(path: Path, name: str) -> str:
    """Append a fresh token for `name` to the file and return it; it cannot be shown again."""
    if not _NAME.fullmatch(name):
        raise TokenFileError(
            "an application's name must be 1 to 63 lower-case letters, digits or dashes, "
            "beginning with a letter or digit"
        )
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    read_tokens(text)
    secret, salt = secrets.token_urlsafe(32), secrets.token_bytes(_SALT_BYTES)
    if text and not text.endswith("\n"):
        text += "\n"
    hashed = _hash(secret.encode(), salt)
    _write(path, text + f"{name} {_SCHEME} {salt.hex()} {hashed.hex()}\n")
    return f"{name}.{secret}"


def remove_tokens(path: Path, name: str) -> int:
    """Take away every token of `name`; how many there were."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if line.split("#", 1)[0].split()[:1] != [name]]
    if len(kept) < len(lines):
        _write(path, "".join(kept))
    return len(lines) - len(kept)


def _write(path: Path, text: str) -> None:
    # Written beside and renamed: a gateway that reads meanwhile sees the old file or the new one.
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            _leave_to_the_same(path, handle)
            os.fsync(handle)
        Path(beside).replace(path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise


def _leave_to_the_same(path: Path, handle: int) -> None:
    """Owner, group and mode of the file that is replaced; a new one is for its owner alone."""
    try:
        before = path.stat()
    except FileNotFoundError:
        return
    now = os.fstat(handle)
    if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
        try:
            os.fchown(handle, before.st_uid, before.st_gid)
        except PermissionError:
            raise TokenFileError(
                "the token file must keep its owner and group, or gateways could no longer read "
                f"it, got user {now.st_uid} and owner {before.st_uid}; run this as the file's "
                "owner or as root"
            ) from None
    os.fchmod(handle, stat.S_IMODE(before.st_mode))
