"""What runs on a device: the local randomizer, its budget, and offline local search."""

from blender.errors import ParameterError
from localclient.conversation import Outcome, Recorded, What
from localclient.errors import (
    ClientRefused,
    ClockWrong,
    HeadListRefused,
    LimitReached,
    StateUnreadable,
    StorageRefused,
)
from localclient.limits import Limits
from localclient.local_client import AsyncLocalClient, LocalClient, Status, forget
from localclient.opting_in import OptIn
from localclient.search import MalformedDocument, PublishedResult, RankedQuery, RankedUrl

__all__ = [
    "AsyncLocalClient",
    "ClientRefused",
    "ClockWrong",
    "HeadListRefused",
    "LimitReached",
    "Limits",
    "LocalClient",
    "MalformedDocument",
    "OptIn",
    "Outcome",
    "ParameterError",
    "PublishedResult",
    "RankedQuery",
    "RankedUrl",
    "Recorded",
    "StateUnreadable",
    "Status",
    "StorageRefused",
    "What",
    "forget",
]
