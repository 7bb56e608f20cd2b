"""What runs on a device: the local randomizer, its budget, and offline local search."""

from localclient.client import AsyncLocalClient, LocalClient, Status
from localclient.errors import (
    ClientRefused,
    ClockWrong,
    HeadListRefused,
    LimitReached,
    StateUnreadable,
    StorageRefused,
)
from localclient.exchange import Outcome, What
from localclient.limits import Limits
from localclient.opting_in import OptIn

__all__ = [
    "AsyncLocalClient",
    "ClientRefused",
    "ClockWrong",
    "HeadListRefused",
    "LimitReached",
    "Limits",
    "LocalClient",
    "OptIn",
    "Outcome",
    "StateUnreadable",
    "Status",
    "StorageRefused",
    "What",
]
