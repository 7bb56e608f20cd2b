"""The exceptions that the algorithms raise, as one small tree.

::

    BlenderError
    ├─ ParameterError (also ValueError)   a number outside its range; raised when built
    ├─ HeadListMismatch                   counts or reports do not fit the head list
    ├─ NotFinite                          a computed number is not finite; names the record's number
    └─ (streams adds its own children)    StoreUnavailable, SettingsError, …

A message states what must hold and what was found. It never contains a query, a URL or a user id.
"""

from __future__ import annotations

__all__ = ["BlenderError", "HeadListMismatch", "NotFinite", "ParameterError", "require"]


class BlenderError(Exception):
    """The base of every error this project raises on purpose."""


class ParameterError(BlenderError, ValueError):
    """A number is outside the range for which the guarantee was proved."""


class HeadListMismatch(BlenderError):
    """Counts, reports or estimates do not belong to the head list they came with."""


class NotFinite(BlenderError):
    """A computed number is not finite; `record` is the record's number, from 0."""

    def __init__(self, quantity: str, record: int) -> None:
        super().__init__(f"{quantity} must be finite, got one that is not, of record {record}")
        self.quantity = quantity
        self.record = record


def require(holds: bool, message: str) -> None:
    """Raise `ParameterError(message)` unless the condition holds."""
    if not holds:
        raise ParameterError(message)
