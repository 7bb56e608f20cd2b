"""The refusals of a device, as one tree of exceptions.

::

    BlenderError
    └─ ClientRefused                  nothing was spent and nothing sent because of this call
       ├─ HeadListRefused             the server's list breaks the device's own limits or changed
       ├─ ClockWrong                  the device's clock disagrees with the server's, or ran back
       ├─ LimitReached                the budget of this period is used up; says when it frees
       ├─ StateUnreadable             the spent budget is unknown, so the device spends no more
       └─ StorageRefused              the disk could not store what must be written first, or the
                                      folder is open to others

A message states the requirement, the value found and the action to take. It never contains a query,
a URL, a user id or text that a server wrote. An unreachable server is no error: see `Outcome`.
"""

from __future__ import annotations

from blendstream.blender.values.errors import BlenderError

__all__ = [
    "ClientRefused",
    "ClockWrong",
    "HeadListRefused",
    "LimitReached",
    "StateUnreadable",
    "StorageRefused",
]


class ClientRefused(BlenderError):
    """Base of every refusal: this call spent nothing and sent nothing."""


class HeadListRefused(ClientRefused):
    """A head list or epoch that this device will not answer."""


class ClockWrong(ClientRefused):
    """The device's clock disagrees with the server's, or ran backwards since the last report."""


class LimitReached(ClientRefused):
    """Reporting would exceed the budget of the period; `free_at_s` is when it would not."""

    def __init__(self, message: str, free_at_s: int | None) -> None:
        super().__init__(message)
        self.free_at_s = free_at_s


class StateUnreadable(ClientRefused):
    """The file with the spent budget is damaged or missing."""


class StorageRefused(ClientRefused):
    """The disk is full, read-only or failing, or not this user's own, and nothing was sent.

    If it failed in the very last moment, after the report was written but before that was known to
    be safe, those bytes are kept and are sent unchanged when the client is called again.
    """
