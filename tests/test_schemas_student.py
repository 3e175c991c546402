"""Student's t quantile: the tables' values, and what holds for every number of degrees."""

from __future__ import annotations

from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.student import FEW_DEGREES, t_quantile


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    [(1, 12.7062047362), (2, 4.3026527297), (3, 3.1824463053), (4, 2.7764451052), (10, 2.2281388520),
     (30, 2.0422724563), (100, 1.9839715185), (201, 1.9718365068), (500, 1.9647198375), (100_000, 1.9599877075)],
)  # fmt: skip
def test_quantiles_are_those_of_the_tables(degrees: int, quantile: float) -> None:
    """The 97.5 % quantile agrees with published values to nine digits, by the closed form and by the expansion."""
    assert t_quantile(0.975, degrees) == pytest.approx(quantile, abs=5e-10)


@given(degrees=st.integers(1, 2 * FEW_DEGREES))
def test_more_degrees_have_lighter_tails(degrees: int) -> None:
    """Quantiles fall towards the normal one, also where the closed form ends."""
    assert t_quantile(0.975, degrees) > t_quantile(0.975, degrees + 1) > NormalDist().inv_cdf(0.975)
