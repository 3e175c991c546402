"""The grid of a record's losses: every subset adds up exactly, and nobody sees the rounding."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scoring.grid import on_grid

LOSSES = st.lists(st.floats(-1e-3, 1e300) | st.floats(0, 30) | st.floats(0, 1e-300), min_size=1, max_size=60)


@given(losses=LOSSES, order=st.randoms(use_true_random=False), cut=st.integers(0, 60))
def test_every_subset_adds_up_exactly(losses: list[float], order: object, cut: int) -> None:
    """Two parts of a record in any order, summed in floating point, add up to the whole as fractions do."""
    grid = on_grid(np.array(losses)).tolist()
    order.shuffle(grid)  # type: ignore[attr-defined]

    whole, part, rest = (float(np.sum(values)) for values in (grid, grid[:cut], grid[cut:]))

    assert Fraction(part) + Fraction(rest) == Fraction(whole) == sum(map(Fraction, grid))


@given(losses=LOSSES)
def test_a_token_moves_by_less_than_a_rounding_of_the_sum(losses: list[float]) -> None:
    """No loss moves by more than 2**-53 of twice the sum of their sizes, and none of one token moves at all."""
    before = np.array(losses)

    after = on_grid(before)

    assert (np.abs(after - before) <= max(2.0**-52 * np.abs(before).sum(), 5e-324)).all()
    assert on_grid(before[:1])[0] == pytest.approx(before[0], rel=2.0**-51)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_stays_so(bad: float) -> None:
    """A bad loss is found after rounding as before, and so is a sum beyond the range."""
    assert not math.isfinite(on_grid(np.array([1.0, bad])).sum())
    assert on_grid(np.array([1.7e308, 1.7e308])).tolist() == [1.7e308, 1.7e308]


def test_nothing_is_nothing() -> None:
    """No loss, and losses of zero, stay as they are."""
    assert on_grid(np.empty(0)).tolist() == []
    assert on_grid(np.zeros(3)).tolist() == [0, 0, 0]
