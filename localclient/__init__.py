"""What runs on a device: the local randomizer, its budget, and offline local search."""

from localclient.conversation import Outcome, What
from localclient.errors import (
    ClientRefused,
    ClockWrong,
    HeadListRefused,
    LimitReached,
    StateUnreadable,
    StorageRefused,
)
from localclient.limits import Limits
from localclient.local_client import AsyncLocalClient, LocalClient, Status
from localclient.opting_in import OptIn
from localclient.search import PublishedResult, RankedQuery, RankedUrl

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
    "PublishedResult",
    "RankedQuery",
    "RankedUrl",
    "StateUnreadable",
    "Status",
    "StorageRefused",
    "What",
]
