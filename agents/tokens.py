"""Bearer tokens with which applications may submit opt-in records.

A token has the form `NAME.SECRET`. The file contains the name, a salt and a salted hash of each
token, so that reading the file is not enough to submit. Secrets are 256 random bits, so one fast
hash is enough: no dictionary attack is possible.

    # application   scheme    salt (hex)                        hash (hex)   user ids
    news-app        blake2b   3d1f…                             9ae0…
    maps-app        blake2b   77c2…                             04be…        news-app
    maps-app        ed25519   8c40…                                          news-app

The last line contains the public key (hex) for checking tokens of single users
(`streams.user_tokens`): the application's backend signs them, and a device stores only its token.

The last field is the space of the application's user ids: one id in one space is one account.
Without it, the space is the application's name, which outlives each of its tokens; so an
application shares its users with no other unless the operator configures it. All lines of a name
must have the same space, or replacing a token would give every user a second contributor key.

A name may appear on several lines while one token replaces another. The gateway reloads the file
when it changes. If that fails, the last good content stays in force, the gateway logs the failure
and retries until it succeeds. Rewriting the file preserves its owner, group and mode.

Promises: token comparison takes constant time, also for unknown names, and no token is ever logged.
Only the sender of a signed token learns the reason of a refusal.

Decision: docs/decisions/0073-user-ids-belong-to-an-application.md
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import logging
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from blendstream.blender.values.errors import BlenderError
from blendstream.streams.settings.private_files import exposed, rewriting
from blendstream.streams.user_tokens import PUBLIC_BYTES, UserToken, new_signing_key

__all__ = [
    "Application",
    "ApplicationTokens",
    "Sender",
    "TokenFileError",
    "TokenRefused",
    "add_token",
    "read_token_file",
    "read_tokens",
    "remove_tokens",
]

log = logging.getLogger(__name__)

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_SCHEME = "blake2b"
_SIGNED = "ed25519"
_SALT_BYTES = 16
_HASH_BYTES = 32

#: Interval between checks for a changed file. Longer would keep a withdrawn token valid longer;
#: shorter would cost every request a system call.
_CHECK_EVERY_S = 1.0


class TokenFileError(BlenderError):
    """The token file is invalid; the message names the line, never its content."""


@dataclass(frozen=True, slots=True)
class _Hashed:
    salt: bytes = field(repr=False)
    hash: bytes = field(repr=False)

    def matches(self, secret: bytes) -> bool:
        return hmac.compare_digest(_hash(secret, self.salt), self.hash)


@dataclass(frozen=True, slots=True)
class Application:
    """An application that may send opt-in records, and the space of its user ids."""

    name: str
    user_ids: str
    tokens: tuple[_Hashed, ...] = field(default=(), repr=False)
    #: Public keys of its backend, which signs tokens of single users.
    signers: tuple[bytes, ...] = field(default=(), repr=False)


class TokenRefused(enum.Enum):
    """Reasons to refuse a token. All but `UNKNOWN` concern tokens with a valid signature only."""

    UNKNOWN = enum.auto()
    EXPIRED = enum.auto()
    LASTS_TOO_LONG = enum.auto()


@dataclass(frozen=True, slots=True)
class Sender:
    """An authenticated application, or one user of it."""

    application: Application
    user: UserToken | None = field(default=None, repr=False)

    def may_send_for(self, user_id: bytes) -> bool:
        """Return True if the sender may send this user's records: an application may for any."""
        return self.user is None or self.user.is_for(user_id)


#: Dummies for an unknown name, so that a wrong name takes as long as a wrong secret.
_DUMMY_TOKEN = _Hashed(bytes(_SALT_BYTES), bytes(_HASH_BYTES))
_DUMMY_KEY = new_signing_key("nobody", "nobody")[1]


def _hash(secret: bytes, salt: bytes) -> bytes:
    return hashlib.blake2b(secret, salt=salt, digest_size=_HASH_BYTES).digest()


def read_tokens(text: str) -> dict[str, Application]:
    """Parse the applications by name. Raise `TokenFileError` with the number of a bad line."""
    found: dict[str, Application] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        fields = line.split("#", 1)[0].split()
        if not fields:
            continue
        signed = fields[1:2] == [_SIGNED]
        sizes = [PUBLIC_BYTES] if signed else [_SALT_BYTES, _HASH_BYTES]
        try:
            name, scheme, *rest = fields
            values = [bytes.fromhex(value) for value in rest[: len(sizes)]]
            (user_ids,) = rest[len(sizes) :] or (name,)
        except ValueError:
            raise TokenFileError(_bad_line(number)) from None
        names_fit = _NAME.fullmatch(name) and _NAME.fullmatch(user_ids)
        sizes_fit = [len(value) for value in values] == sizes
        if not (names_fit and scheme in (_SCHEME, _SIGNED) and sizes_fit):
            raise TokenFileError(_bad_line(number))
        before = found.get(name, Application(name, user_ids))
        if before.user_ids != user_ids:
            raise TokenFileError(
                f"line {number} of the token file must have the same last field, the space of "
                "user ids, as the other lines of its application; make them agree"
            )
        if signed:
            found[name] = replace(before, signers=(*before.signers, *values))
        else:
            found[name] = replace(before, tokens=(*before.tokens, _Hashed(*values)))
    return found


def read_token_file(path: Path) -> str:
    """Read the file. Raise `TokenFileError` if other accounts could read or change it."""
    text = path.read_text(encoding="utf-8")
    if problem := exposed(path, "the token file"):
        raise TokenFileError(problem)
    return text


def _bad_line(number: int) -> str:
    return (
        f"line {number} of the token file must read NAME {_SCHEME} SALT HASH or NAME {_SIGNED} "
        "PUBLIC-KEY, and the space of user ids where it is not NAME; write such lines with "
        "`blendstream tokens add NAME`"
    )


class ApplicationTokens:
    """The tokens in force, reloaded when their file changes."""

    def __init__(
        self, path: Path, *, clock: Callable[[], float], user_token_s: int = 86_400
    ) -> None:
        """Read the file or raise `TokenFileError`: a gateway does not start without it."""
        self._path = path
        self._user_token_s = user_token_s
        self._clock = clock
        self._stamp = self._stat()
        self._applications: Mapping[str, Application] = self._read()
        self._checked_at = clock()
        #: The last reload failed, so a withdrawn token may still be valid.
        self.stale = False

    def sender(self, authorization: bytes | None, *, now_s: float) -> Sender | TokenRefused:
        """Authenticate an `Authorization` header; return the sender or the reason of a refusal."""
        self._reload_if_changed()
        text = _bearer(authorization)
        token = UserToken.read(text)
        if token is not None:
            return self._user(token, now_s)
        application = self._application(text)
        return TokenRefused.UNKNOWN if application is None else Sender(application)

    def _user(self, token: UserToken, now_s: float) -> Sender | TokenRefused:
        known = self._applications.get(token.name)
        space = token.name if known is None else known.user_ids
        signers = (known and known.signers) or (_DUMMY_KEY,)
        signed = [token.is_signed(space, public) for public in signers]
        if known is None or not any(signed):
            return TokenRefused.UNKNOWN
        if token.expires_s <= now_s:
            return TokenRefused.EXPIRED
        if token.expires_s > now_s + self._user_token_s:
            return TokenRefused.LASTS_TOO_LONG
        return Sender(known, token)

    def _application(self, text: str) -> Application | None:
        name, _, secret = text.partition(".")
        known = self._applications.get(name)
        candidates = (known and known.tokens) or (_DUMMY_TOKEN,)
        # Compare every candidate, so that the time reveals neither which nor whether one matched.
        matched = [hashed.matches(secret.encode()) for hashed in candidates]
        return known if any(matched) else None

    def _reload_if_changed(self) -> None:
        now = self._clock()
        if now - self._checked_at < _CHECK_EVERY_S:
            return
        self._checked_at = now
        stamp = self._stat()
        # After a failure, retry: permission to read a file may be granted without changing it.
        if stamp == self._stamp and not self.stale:
            return
        self._stamp = stamp
        try:
            self._applications = self._read()
        except TokenFileError as error:
            if not self.stale:
                log.error("token_file_reload_failed", exc_info=error)
            self.stale = True
            return
        self.stale = False
        log.info("application_tokens_read", extra={"found": len(self._applications)})

    def _stat(self) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read(self) -> dict[str, Application]:
        try:
            text = read_token_file(self._path)
        except (OSError, UnicodeDecodeError) as error:
            raise TokenFileError(
                f"the token file must be a readable text file, got {type(error).__name__}; "
                "create it with `blendstream tokens add NAME`"
            ) from None
        return read_tokens(text)


def _bearer(authorization: bytes | None) -> str:
    scheme, _, token = (authorization or b"").partition(b" ")
    return token.strip().decode("ascii", errors="replace") if scheme.lower() == b"bearer" else ""


def add_token(
    path: Path, name: str, user_ids: str | None = None, *, for_users: bool = False
) -> str:
    """Append a new token for `name` to the file and return it; the file cannot reproduce it.

    `user_ids` names the space of the application's user ids; by default the application's current
    space, or a new one with its name. With `for_users`, return a signing key for the application's
    backend, for tokens of single users; the file gets its public half.
    """
    for what, given in (("an application's name", name), ("a space of user ids", user_ids)):
        if given is not None and not _NAME.fullmatch(given):
            raise TokenFileError(
                f"{what} must be 1 to 63 lower-case letters, digits or dashes, "
                "beginning with a letter or digit"
            )
    with rewriting(path):
        text = read_token_file(path) if path.exists() else ""
        space = _space(read_tokens(text), name, user_ids)
        if for_users:
            key, public = new_signing_key(name, space)
            line = f"{name} {_SIGNED} {public.hex()}"
        else:
            secret, salt = secrets.token_urlsafe(32), secrets.token_bytes(_SALT_BYTES)
            key = f"{name}.{secret}"
            line = f"{name} {_SCHEME} {salt.hex()} {_hash(secret.encode(), salt).hex()}"
        if text and not text.endswith("\n"):
            text += "\n"
        # Omit the default space, so that gateways of an older release can read the line.
        shared = "" if space == name else f" {space}"
        _write(path, f"{text}{line}{shared}\n")
    return key


def _space(applications: Mapping[str, Application], name: str, user_ids: str | None) -> str:
    """Return a new token's space. Raise `TokenFileError` if it would split or join accounts."""
    known = applications.get(name)
    if known is not None:
        if user_ids not in (None, known.user_ids):
            raise TokenFileError(
                f"the tokens of one application must share one space of user ids, got {user_ids} "
                f"where {name} has {known.user_ids}. To move it, remove its tokens, wait until "
                "the epochs open now have ended, or their users count twice, and add it again"
            )
        return known.user_ids
    if user_ids is None and any(other.user_ids == name for other in applications.values()):
        raise TokenFileError(
            f"a new application must not come into a space of user ids by its name, got {name}, "
            f"which others use. Pass --user-ids {name} if it has the same accounts; else choose "
            "another name, or another space with --user-ids"
        )
    return user_ids or name


def remove_tokens(path: Path, name: str) -> int:
    """Remove every token of `name` and return their number."""
    with rewriting(path):
        lines = read_token_file(path).splitlines(keepends=True)
        kept = [line for line in lines if line.split("#", 1)[0].split()[:1] != [name]]
        if len(kept) < len(lines):
            _write(path, "".join(kept))
    return len(lines) - len(kept)


def _write(path: Path, text: str) -> None:
    # Write a temporary file and rename it: a concurrent reader sees the old file or the new one.
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            _copy_permissions(path, handle)
            os.fsync(handle)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _copy_permissions(path: Path, handle: int) -> None:
    """Copy owner, group and mode of the replaced file; a new file is private to its owner."""
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
