"""Checks of single values. Each returns the condition that the value breaks, or None."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path

from blendstream.streams.settings.fields import Check, Secret, Url

__all__ = [
    "above",
    "at_least",
    "between",
    "delta",
    "epsilon",
    "file_exists",
    "master_secrets",
    "name",
    "port",
    "url",
]

MIN_SECRET_BYTES = 32

#: Above these bounds privacy is nominal: at ε = 10 one count in 75 has any noise, and δ bounds the
#: probability that everything about a person is revealed. Below the minimum ε no result can be
#: distinguished from noise for any number of people.
LEAST_EPSILON, LARGEST_EPSILON, LARGEST_DELTA = 1e-3, 10.0, 1e-3


def at_least(low: float) -> Check:
    """Check that a value is finite and at least `low`."""
    return lambda value: None if low <= value < math.inf else f"must be at least {low:g}"


def above(low: float) -> Check:
    """Check that a value is finite and above `low`."""
    return lambda value: None if low < value < math.inf else f"must be finite and above {low:g}"


def between(low: float, high: float) -> Check:
    """Check that a value is within the bounds, both included."""
    return lambda value: None if low <= value <= high else f"must lie in [{low:g}, {high:g}]"


def none_or(check: Check) -> Check:
    """Apply the check, unless the value is None."""
    return lambda value: None if value is None else check(value)


def epsilon(value: float) -> str | None:
    """Check that ε is meaningful: no setting may remove the noise."""
    if LEAST_EPSILON <= value <= LARGEST_EPSILON:
        return None
    return (
        f"must be at least {LEAST_EPSILON:g}, else the noise hides every result, and at most "
        f"{LARGEST_EPSILON:g}, since noise hides nothing beyond"
    )


def delta(value: float) -> str | None:
    """Check that δ is a negligible probability."""
    if 0 < value <= LARGEST_DELTA:
        return None
    return (
        f"must be above 0 and at most {LARGEST_DELTA:g}, the probability that everything about a "
        "person is revealed"
    )


def port(value: int) -> str | None:
    """Check that a value is a TCP port on which a service may listen."""
    return None if 1 <= value <= 65535 else "must be a port, 1 to 65535"


def name(value: str) -> str | None:
    """Check that text is safe in a topic's name and in a Redis key."""
    if re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", value):
        return None
    return "must have 1 to 64 of the characters a-z 0-9 . _ - and start with a letter or digit"


def url(*schemes: str) -> Check:
    """Check that a URL has one of these schemes ("" allows none) and a host."""

    def check(value: Url) -> str | None:
        if not value.readable:
            return "must have / ? # [ ] in its user or password percent-encoded, as %2F for /"
        if value.scheme in schemes and value.hosts:
            return None
        forms = " or ".join(
            f"{scheme}://host:port" if scheme else "host:port" for scheme in schemes
        )
        return f"must look like {forms}"

    return check


def file_exists(value: Path | None) -> str | None:
    """Check that a named file exists."""
    return None if value is None or value.is_file() else "must name a file that exists"


def master_secrets(value: Mapping[str, Secret]) -> str | None:
    """Check that there is a secret, and that each has a valid id and 32 bytes in hexadecimal."""
    if not value:
        return "must contain at least one id = secret"
    for key_id, secret in value.items():
        if name(key_id):
            return f"must have ids, each of which {name(key_id)}"
        try:
            length = len(bytes.fromhex(secret.reveal()))
        except ValueError:
            length = 0
        if length < MIN_SECRET_BYTES:
            return (
                f"must have at least {MIN_SECRET_BYTES} random bytes in hexadecimal for every id "
                "(make one: openssl rand -hex 32)"
            )
    return None
