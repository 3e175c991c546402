"""Numbers of many short ranges at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def ranges(starts: NDArray[np.int64], stops: NDArray[np.int64]) -> NDArray[np.int64]:
    """All numbers from each start to its stop, exclusive, one range after the other."""
    counts = stops - starts
    shifts = np.repeat(starts - (np.cumsum(counts) - counts), counts)
    return shifts + np.arange(len(shifts))
