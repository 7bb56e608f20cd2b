"""Short-lived tokens of single users, with which a device sends its user's opt-in records.

An application's token inside an app, a page or an extension is public: anyone who extracts it could
send records in every user's name. So the application's backend, which knows who is signed in, mints
a token for that one user, and the device has no other:

    NAME.EXPIRES.USER.SIGNATURE

    NAME       the application
    EXPIRES    seconds since 1970, decimal, from which on the token is refused
    USER       base64url of SHA-256 of the user id (UTF-8); the id itself is not in the token
    SIGNATURE  base64url of Ed25519 over "blendstream-user-token-1.SPACE.NAME.EXPIRES.USER"

base64url without padding. SPACE is the space of the application's user ids. The backend signs with
a key `NAME/SPACE/SECRET` (SECRET: base64url of the 32 bytes of an Ed25519 private key) that
`blendstream tokens add NAME --for-users` prints once. The key is never sent to anyone; gateways
have only its public half, so that no one can sign with their token file.

Promises: a token is valid for one user id, in one space, until it expires; checking it needs no
data about users. No message contains user ids or tokens.
Assumes: the backend gives a token only to the person whose user id it signs.

Decision: docs/decisions/0120-a-token-for-one-user.md
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from blendstream.blender.values.errors import ParameterError
from blendstream.streams.wire.submissions import MAX_USER_ID_BYTES

__all__ = ["PUBLIC_BYTES", "UserToken", "mint_user_token", "new_signing_key"]

PUBLIC_BYTES = 32
_NAME = r"[a-z0-9][a-z0-9-]{0,62}"
_TOKEN = re.compile(
    rf"({_NAME})\.([1-9][0-9]{{0,10}})\.([A-Za-z0-9_-]{{43}})\.([A-Za-z0-9_-]{{86}})"
)
_KEY = re.compile(rf"({_NAME})/({_NAME})/([A-Za-z0-9_-]{{43}})")


def new_signing_key(name: str, space: str) -> tuple[str, bytes]:
    """Make a key for the application's backend, and its public half for the token file."""
    key = Ed25519PrivateKey.generate()
    return f"{name}/{space}/{_text(key.private_bytes_raw())}", key.public_key().public_bytes_raw()


def mint_user_token(key: str, user_id: str, *, expires_s: int) -> str:
    """Mint a token for one user, valid until `expires_s`. For an application's backend.

    Mint it for the person who is signed in, and for an hour or so; a gateway refuses tokens that
    would last longer than its setting `gateway.user_token_s`.
    """
    parts = _KEY.fullmatch(key.strip())
    if parts is None:
        raise ParameterError(
            "key must be NAME/SPACE/SECRET as `blendstream tokens add NAME --for-users` printed it"
        )
    if not 0 < expires_s < 10**11:
        raise ParameterError("expires_s must be whole seconds since 1970")
    name, space, secret = parts.groups()
    user = _text(user_hash(_checked(user_id)))
    signer = Ed25519PrivateKey.from_private_bytes(_bytes(secret))
    signature = signer.sign(_message(space, name, str(expires_s), user))
    return f"{name}.{expires_s}.{user}.{_text(signature)}"


@dataclass(frozen=True, slots=True)
class UserToken:
    """The contents of a token, not to be trusted before `is_signed`."""

    name: str
    expires_s: int
    user: bytes = field(repr=False)
    _user_text: str = field(repr=False)
    _signature: bytes = field(repr=False)

    @classmethod
    def read(cls, text: str) -> UserToken | None:
        """Parse a user token; `None` for an application's token, or anything else."""
        parts = _TOKEN.fullmatch(text)
        if parts is None:
            return None
        name, expires, user, signature = parts.groups()
        return cls(name, int(expires), _bytes(user), user, _bytes(signature))

    def is_signed(self, space: str, public: bytes) -> bool:
        """Return True if the holder of this key signed it for user ids of this space."""
        message = _message(space, self.name, str(self.expires_s), self._user_text)
        try:
            Ed25519PublicKey.from_public_bytes(public).verify(self._signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True

    def is_for(self, user_id: bytes) -> bool:
        """Return True if it was minted for this user."""
        return hmac.compare_digest(user_hash(user_id), self.user)


def user_hash(user_id: bytes) -> bytes:
    """Return the hash of a user id that tokens contain."""
    return hashlib.sha256(user_id).digest()


def _checked(user_id: str) -> bytes:
    try:
        encoded = user_id.encode()
    except UnicodeEncodeError:
        encoded = b""
    if not 0 < len(encoded) <= MAX_USER_ID_BYTES:
        raise ParameterError(f"user_id must be text of 1 to {MAX_USER_ID_BYTES} bytes of UTF-8")
    return encoded


def _message(space: str, name: str, expires: str, user: str) -> bytes:
    return f"blendstream-user-token-1.{space}.{name}.{expires}.{user}".encode()


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
