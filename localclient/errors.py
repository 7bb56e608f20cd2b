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
    """Reporting would exceed the budget of the period; from `free_at_s` on it would not."""

    def __init__(self, message: str, free_at_s: int | None) -> None:
        super().__init__(message)
        self.free_at_s = free_at_s


class StateUnreadable(ClientRefused):
    """The file with the spent budget is damaged or missing."""


class StorageRefused(ClientRefused):
    """The client could not write its folder, and sent nothing.

    The disk is full, read-only or failing, or another user owns the folder. If the error came after
    the report was written, but before it was synced to disk, the next call sends those same bytes.
    """
