"""Exact sums inside a group-by against rational arithmetic."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregate.limbs import LIMB, PARTS, join, split
from schemas.tally import UNIT_EXPONENT, ExactSum

FINITE = st.floats(allow_nan=False, allow_infinity=False, width=64)
EDGES = [
    0.0,
    -0.0,
    5e-324,
    -5e-324,
    2.2250738585072014e-308,
    1.7976931348623157e308,
    -1.7976931348623157e308,
    0.1,
    1e16,
]


def summed(values: list[float]) -> ExactSum:
    """Group, sum in int64 and join, as the strata do."""
    parts = split(np.array(values, dtype=np.float64))
    return join(parts.group_by(LIMB).agg(pl.col(PARTS).sum()).iter_rows())


@given(st.lists(st.one_of(FINITE, st.sampled_from(EDGES))))
def test_limb_sums_equal_rational_sums(values: list[float]) -> None:
    """The sum of any finite FP64 values is the rational sum, over the whole range with subnormals and both signs."""
    expected = sum(map(Fraction, values), Fraction(0))

    found = summed(values)

    assert Fraction(found.units) * Fraction(2) ** UNIT_EXPONENT == expected
    assert found == ExactSum.of(values)


@given(st.lists(FINITE, max_size=30), st.integers(0, 2**32))
def test_order_does_not_change_a_limb_sum(values: list[float], seed: int) -> None:
    """Any order of the values gives the same integer."""
    shuffled = random.Random(seed).sample(values, len(values))

    assert summed(shuffled) == summed(values)


@given(FINITE)
def test_parts_stay_below_32_bits(value: float) -> None:
    """No part reaches 2**32, which is what keeps 2**31 rows inside int64."""
    parts = split(np.array([value]))

    assert max(abs(parts[name][0]) for name in PARTS) < 2**32
    assert 0 <= parts[LIMB][0] < 64


def test_a_group_of_two_to_the_31_largest_parts_fits_in_int64() -> None:
    """The bound of the module: 2**31 rows of the largest part do not overflow, and join gives their exact sum."""
    largest, rows = 2**32 - 1, 2**31

    assert largest * rows < 2**63
    assert join([(3, largest * rows, 0, 0)]).units == (largest * rows) << 96


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_loss_that_is_not_finite_is_refused(value: float) -> None:
    """NaN and infinities have no exact sum."""
    values = np.array([1.0, value])

    with pytest.raises(ValueError, match="finite"):
        split(values)
