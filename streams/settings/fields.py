"""Declaration, parsing and display of a single setting."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

__all__ = [
    "MASK",
    "Secret",
    "SettingProblem",
    "Url",
    "as_json",
    "read_value",
    "required",
    "setting",
    "shown",
]

T = TypeVar("T")

MASK = "***"

#: Returns the condition that a value breaks, or None.
Check = Callable[[Any], str | None]


class SettingProblem(ValueError):
    """Raised with the condition that a value breaks; the loader adds its name and the value."""


class Secret:
    """Text that prints as a mask; only `reveal` returns it."""

    __slots__ = ("__text",)

    def __init__(self, text: str) -> None:
        self.__text = text

    def reveal(self) -> str:
        """Return the text, only for the library that needs it."""
        return self.__text

    def __bool__(self) -> bool:
        return bool(self.__text)

    def __eq__(self, other: object) -> bool:
        mine = type(self), self.__text
        return isinstance(other, Secret) and (type(other), other.reveal()) == mine

    def __hash__(self) -> int:
        return hash(self.__text)

    def __repr__(self) -> str:
        return MASK if self else "''"

    __str__ = __repr__


class Url(Secret):
    """A server's address, which may contain a user and a password; masks only the password."""

    __slots__ = ()

    @property
    def scheme(self) -> str:
        """The part before ://, or an empty string."""
        return self.reveal().partition("://")[0] if "://" in self.reveal() else ""

    @property
    def hosts(self) -> str:
        """Hosts and ports without the rest: `a:9092,b:9092`."""
        return self._authority.rpartition("@")[2]

    @property
    def path(self) -> str:
        """The URL path without slashes, for example the Redis database number."""
        return urlsplit(self._whole).path.strip("/") if self.readable else ""

    def of_each_host(self, scheme: str, path: str) -> list[Url]:
        """Make one URL per host, with the same credentials."""
        at = f"{self._credentials}@" if self._credentials else ""
        query = urlsplit(self._whole).query
        end = f"{path}?{query}" if query else path
        return [Url(f"{scheme}://{at}{host}/{end}") for host in self.hosts.split(",") if host]

    @property
    def readable(self) -> bool:
        """True if every parser finds the hosts in the same place.

        An unescaped / ? or # in the password ends the part with the hosts; a parser would take the
        text before it for a host, and display it.
        """
        try:
            rest = urlsplit(self._whole)._replace(scheme="", netloc="").geturl()
        except ValueError:  # an unclosed [
            return False
        return "@" not in rest

    @property
    def user(self) -> str:
        """The user, or an empty string."""
        return unquote(self._credentials.partition(":")[0])

    @property
    def password(self) -> Secret:
        """The password, or an empty secret."""
        return Secret(unquote(self._credentials.partition(":")[2]))

    def __repr__(self) -> str:
        if not self:
            return "''"
        _, at, rest = self.reveal().rpartition("@")
        if not at:
            return self.reveal().partition("?")[0]
        start = f"{self.scheme}://" if self.scheme else ""
        return f"{start}{self.user}:{MASK}@{rest.partition('?')[0]}"

    __str__ = __repr__

    @property
    def _whole(self) -> str:
        return self.reveal() if "://" in self.reveal() else f"//{self.reveal()}"

    @property
    def _authority(self) -> str:
        return urlsplit(self._whole).netloc if self.readable else ""

    @property
    def _credentials(self) -> str:
        return self._authority.rpartition("@")[0]


def setting(default: T, sentence: str, *checks: Check) -> T:
    """Declare a setting: its default, its description and its checks."""
    return dataclasses.field(default=default, metadata={"sentence": sentence, "checks": checks})


def required(sentence: str, *checks: Check) -> Any:
    """Declare a setting that has no default: the operator must decide."""
    return dataclasses.field(metadata={"sentence": sentence, "checks": checks})


def read_value(given: object, kind: Any) -> Any:
    """Convert a value from a TOML file or the environment to the field's type."""
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if type(None) in kinds and given == "":
        return None
    kind = next(candidate for candidate in kinds if candidate is not type(None))
    origin = typing.get_origin(kind)
    if origin is tuple:
        words = given.split(",") if isinstance(given, str) else given
        if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
            raise SettingProblem("must be a list of texts, or one text with commas")
        return tuple(word.strip() for word in words if word.strip())
    if origin is typing.Literal:
        choices = typing.get_args(kind)
        if given not in choices:
            raise SettingProblem(f"must be one of {', '.join(choices)}")
        return given
    if origin is not None and issubclass(origin, Mapping):
        return _secrets_by_id(given)
    return READERS[kind](given)


def shown(value: object) -> str:
    """Format a value for operators; booleans as in TOML, secrets masked."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={shown(value[name])}" for name in sorted(value)) or "(none)"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "(none)"
    if value is None or value == "":
        return "(none)"
    return str(value)


def as_json(value: object) -> Any:
    """Convert a value to JSON's types for programs; masks secrets, and none is null."""
    if isinstance(value, Mapping):
        return {str(name): as_json(value[name]) for name in sorted(value)}
    if isinstance(value, list | tuple):
        return [as_json(each) for each in value]
    if value is None or value == "" or (isinstance(value, Secret) and not value):
        return None
    # JSON has no infinity.
    number = isinstance(value, bool | int | float) and math.isfinite(value)
    return value if number else str(value)


def _secrets_by_id(given: object) -> Mapping[str, Secret]:
    if isinstance(given, str):
        pairs = [pair.strip().partition("=") for pair in given.split(",") if pair.strip()]
        given = {name.strip(): secret.strip() for name, _, secret in pairs}
    if not isinstance(given, Mapping):
        raise SettingProblem("must be a table of id = secret, or one text id=secret,id=secret")
    for name in given:
        if not isinstance(given[name], str):
            raise SettingProblem("must have texts as secrets")
    return types.MappingProxyType({str(name): Secret(given[name]) for name in given})


def _number(kind: type[int | float], what: str) -> Callable[[object], int | float]:
    def read(given: object) -> int | float:
        if isinstance(given, str):
            with contextlib.suppress(ValueError):
                return kind(given)
        elif isinstance(given, (int, kind)) and not isinstance(given, bool):
            return kind(given)
        raise SettingProblem(f"must be {what}")

    return read


def _boolean(given: object) -> bool:
    if isinstance(given, bool):
        return given
    if given in ("true", "false"):
        return given == "true"
    raise SettingProblem("must be true or false")


def _text(given: object) -> str:
    if isinstance(given, str):
        return given
    raise SettingProblem("must be text")


READERS: Mapping[Any, Callable[[object], Any]] = {
    int: _number(int, "an integer"),
    float: _number(float, "a number"),
    bool: _boolean,
    str: _text,
    Path: lambda given: Path(_text(given)),
    Secret: lambda given: Secret(_text(given)),
    Url: lambda given: Url(_text(given)),
}
