"""Published results as data frames, for notebooks: `pip install 'blendstream[pandas]'`.

import blendstream

results = blendstream.Results("https://results.example")
results.queries()  # the latest epoch, a row per query, most frequent first
results.history("tide tables")  # its proportion in each epoch, with dates and intervals

Everything else is below this package: `blendstream.localclient` for devices, `blendstream.agents`,
`blendstream.streams` and `blendstream.blender` for servers, `blendstream.evaluation`. In a checkout
they are top-level folders, with links here (docs/decisions/0150-one-import-root.md).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blendstream.results import Results, ResultsError

__all__ = ["Results", "ResultsError"]


def __getattr__(name: str) -> Any:
    """Import the reader, and with it pandas, on first use: a device has neither."""
    if name not in __all__:
        raise AttributeError(f"blendstream has no {name!r}")
    return getattr(import_module("blendstream.results"), name)
