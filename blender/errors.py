"""What can go wrong when calling the algorithms, as one small tree.

::

    BlenderError
    ├─ ParameterError (also ValueError)   a number outside its range; raised when built
    ├─ HeadListMismatch                   counts or reports do not fit the head list
    └─ (streams adds its own children)    StoreUnavailable, SettingsError, …

A message says what must hold and what was found. It never contains a query, a URL or a user id.
"""

from __future__ import annotations

__all__ = ["BlenderError", "HeadListMismatch", "ParameterError", "require"]


class BlenderError(Exception):
    """The base of every error this project raises on purpose."""


class ParameterError(BlenderError, ValueError):
    """A number lies outside the range for which the guarantee was proved."""


class HeadListMismatch(BlenderError):
    """Counts, reports or estimates do not belong to the head list they came with."""


def require(holds: bool, message: str) -> None:
    """Raise `ParameterError(message)` unless the condition holds."""
    if not holds:
        raise ParameterError(message)
