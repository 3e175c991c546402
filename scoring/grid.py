"""A record's token losses on a grid so coarse that their sums are exact, and so fine that nobody sees it.

Multiples of 2**k that stay below 2**(k + 53) add without rounding in fp64. On such a grid the losses of a record's
windows, classes and bands add up to the record's own, bit for bit and in any order. The grid follows from the record's
sum: a token moves by less than 1.2e-16 of that sum, where fp32 logits leave 1e-7 of the token.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

_MANTISSA_BITS = 53


def on_grid(losses_N: NDArray[np.float64]) -> NDArray[np.float64]:
    """The losses of one record, rounded to its grid.

    Args:
        losses_N: nats, float64, all of the record.

    Returns:
        Losses of which every subset has an exact sum in float64; as they came where one is NaN or infinite, or the sum
        of their sizes is.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        bound = float(np.abs(losses_N).sum())
    if not math.isfinite(2 * bound):
        return losses_N
    # One bit above the sum holds what rounding to the grid can add.
    exponent = math.frexp(bound)[1] + 1 - _MANTISSA_BITS
    return np.ldexp(np.rint(np.ldexp(losses_N, -exponent)), exponent)
