"""Types of the arrays of counts and of estimates."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["FloatArray", "IntArray"]

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
