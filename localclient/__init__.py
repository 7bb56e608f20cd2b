"""The device client: local randomizer, privacy budget on the device, offline local search."""

if __name__ != "blendstream.localclient":
    raise ImportError(
        f"this folder is imported as blendstream.localclient, got {__name__}; "
        "write `import blendstream.localclient`, after `make setup` or pip install"
    )

from blendstream.blender.values.errors import ParameterError
from blendstream.localclient.dry_runs import DryRun, dry_run
from blendstream.localclient.errors import (
    ClientRefused,
    ClockWrong,
    HeadListRefused,
    LimitReached,
    StateUnreadable,
    StorageRefused,
)
from blendstream.localclient.exchange import Outcome, RecordResult, ResultCode
from blendstream.localclient.limits import Limits
from blendstream.localclient.local_client import AsyncLocalClient, LocalClient, Status, forget
from blendstream.localclient.opting_in import OptIn
from blendstream.localclient.search import (
    MalformedDocument,
    PublishedResult,
    RankedQuery,
    RankedUrl,
)
from blendstream.localclient.sent_log import SentLog

__all__ = [
    "AsyncLocalClient",
    "ClientRefused",
    "ClockWrong",
    "DryRun",
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
    "RecordResult",
    "ResultCode",
    "SentLog",
    "StateUnreadable",
    "Status",
    "StorageRefused",
    "dry_run",
    "forget",
]
