"""Exact sums inside a group-by: FP64 values as small integers on a fixed grid, which any engine adds without rounding.

A finite FP64 number is ``m * 2**(s - 1074)`` with an integer |m| < 2**53 and 0 <= s <= 2045 (IEEE 754-2019 §3.4).
``s = 32 * limb + r`` puts it at one of 64 places of the grid; there ``m * 2**r`` is cut into three integers below
2**32. Rows of the same group and ``limb`` are summed in int64: below 2**31 rows nothing can overflow, and the few sums
that remain join as Python integers.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl
from numpy.typing import NDArray

from schemas.tally import LIMB_BITS, ExactSum

LIMB = "limb"
PARTS = ("low", "middle", "high")
MAX_ROWS = 1 << 31

_LIMB_MASK = np.uint64((1 << LIMB_BITS) - 1)
_FRACTION_BITS = np.uint64(52)
_FRACTION_MASK = np.uint64((1 << 52) - 1)
_EXPONENT_MASK = np.uint64(0x7FF)
_LIMB_SHIFT = np.uint64(LIMB_BITS)


def split(values: NDArray[np.float64]) -> pl.DataFrame:
    """Cut finite FP64 values of shape [N] into ``limb`` (int16) and the three signed int64 ``PARTS``.

    Raises:
        ValueError: a value is NaN or infinite.
    """
    values = np.ascontiguousarray(values, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError("only finite values can be summed exactly")
    bits = values.view(np.uint64)
    exponents = (bits >> _FRACTION_BITS) & _EXPONENT_MASK
    normal = (exponents > 0).astype(np.uint64)
    mantissas = (bits & _FRACTION_MASK) | (normal << _FRACTION_BITS)
    shifts = exponents - normal
    rest = shifts % _LIMB_SHIFT
    lower = (mantissas & _LIMB_MASK) << rest  # below 2**63
    upper = (mantissas >> _LIMB_SHIFT) << rest  # below 2**52
    # The r lowest bits of upper are 0 and lower >> 32 has r bits, so the two do not meet and nothing is carried.
    parts = (lower & _LIMB_MASK, (lower >> _LIMB_SHIFT) | (upper & _LIMB_MASK), upper >> _LIMB_SHIFT)
    signs = np.where(np.signbit(values), np.int64(-1), np.int64(1))
    columns = {name: part.astype(np.int64) * signs for name, part in zip(PARTS, parts, strict=True)}
    return pl.DataFrame({LIMB: (shifts // _LIMB_SHIFT).astype(np.int16), **columns})


def join(sums: Iterable[tuple[int, int, int, int]]) -> ExactSum:
    """The exact sum from ``(limb, low, middle, high)`` rows whose parts were summed."""
    units = 0
    for limb, low, middle, high in sums:
        units += (low + (middle << LIMB_BITS) + (high << 2 * LIMB_BITS)) << (LIMB_BITS * limb)
    return ExactSum(units)
