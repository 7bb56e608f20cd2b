"""Frames of reports for tests and benchmarks, from rows of cells instead of packed bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from blendstream.streams.wire.frames import encode_packed_reports


def encode_reports(
    epoch: int,
    head_list_id: bytes,
    contributors: Sequence[bytes] | bytes,
    cells: NDArray[np.integer],
    width: int,
    *,
    log_position: int = 1,
) -> bytes:
    """Pack client reports on one head list: `cells` has a row for each contributor key."""
    packed = cells.astype(f"<u{width}")
    assert np.array_equal(packed, cells), f"cells must fit into {width} bytes"
    return encode_packed_reports(
        epoch,
        head_list_id,
        contributors if isinstance(contributors, bytes) else b"".join(contributors),
        packed.tobytes(),
        cells_per_entry=cells.shape[1],
        width=width,
        log_position=log_position,
    )
