"""The table of client reports: the number of answers per epoch and cell of its head list.

    blender:{topic/7}:41:cells           string  one big-endian 64-bit count per cell

and the keys that both tables have (`count_table`), with a fingerprint per device that reported.

Window: the reports on one head list. Counted from its publication until the reports are sealed;
removed when the epoch's estimates are committed. Memory: 8 bytes per cell and 8 per device.

Scripts: those of `count_table`; `count_batch.lua` adds to the cells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blendstream.streams.tables.batch_verdict import Tally
from blendstream.streams.tables.count_table import CountTable
from blendstream.streams.tables.redis import answered

__all__ = ["ClientReportTable"]

_CELLS = "cells"


class ClientReportTable(CountTable):
    """Counts of reports by cell."""

    _single = (_CELLS,)

    def _values(
        self, tally: Tally, key: Callable[[str], str], number: Callable[[str], int]
    ) -> dict[str, Any]:
        if tally.cells is None or not tally.cells.any():
            return {}
        cells = np.flatnonzero(tally.cells)
        return {
            "cells": number(key(_CELLS)),
            "cells_bytes": 8 * len(tally.cells),
            "cell_numbers": cells.tolist(),
            "cell_counts": tally.cells[cells].tolist(),
        }

    async def cell_counts(
        self, epoch: int, partitions: Sequence[int], cells: int
    ) -> NDArray[np.int64]:
        """Add up an epoch's reports by cell, over all partitions."""
        counts = np.zeros(cells, dtype=np.int64)
        for partition in partitions:
            data = await answered(self._client.get(self.key(partition, epoch, _CELLS)))
            if data:
                counts += np.frombuffer(data, ">i8")
        return counts
