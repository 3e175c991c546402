"""Exact sums are exact: over all of FP64, in any order, for any tree of merges, and rounded once."""

from __future__ import annotations

import math
import random
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as stnp

from schemas.tally import MAX_UNITS_BITS, ExactSum

TINIEST = 5e-324
LARGEST = sys.float_info.max
SMALLEST_NORMAL = sys.float_info.min
EDGES = (0.0, -0.0, TINIEST, -TINIEST, SMALLEST_NORMAL, math.nextafter(SMALLEST_NORMAL, 0), LARGEST, -LARGEST, 1.0, 0.1)
FINITE = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(EDGES)
VALUES = st.lists(FINITE, max_size=40)
SUMS = st.builds(ExactSum, st.integers(-(2**MAX_UNITS_BITS) + 1, 2**MAX_UNITS_BITS - 1))


def fraction_of(total: ExactSum) -> Fraction:
    """The value of a sum, as an exact rational number."""
    return Fraction(total.units, 2**1074)


def nearest(value: Fraction) -> float:
    """The nearest FP64 number by the definition: ties to even, infinite from the largest number plus half a step."""
    if abs(value) >= Fraction(2**1024) - Fraction(2**970):
        return math.inf if value > 0 else -math.inf
    guess = float(value) if abs(value) <= Fraction(LARGEST) else math.copysign(LARGEST, float(value / 2))
    around = (math.nextafter(guess, -math.inf), guess, math.nextafter(guess, math.inf))
    finite = [number for number in around if math.isfinite(number)]
    return min(finite, key=lambda number: (abs(Fraction(number) - value), mantissa_of(number) % 2))


def mantissa_of(number: float) -> int:
    """The integer mantissa of an FP64 number, whose last bit decides ties."""
    return int(np.float64(number).view(np.uint64)) & (2**52 - 1)


@given(values=VALUES)
def test_a_sum_is_the_rational_sum(values: list[float]) -> None:
    """No addition rounds, from the smallest subnormal to the largest number."""
    total = ExactSum.of(values)

    assert fraction_of(total) == sum(map(Fraction, values), Fraction(0))


@given(values=VALUES, seed=st.integers(0, 1000))
def test_order_does_not_change_a_bit(values: list[float], seed: int) -> None:
    """The same values in any order give an equal sum."""
    shuffled = random.Random(seed).sample(values, len(values))

    assert ExactSum.of(shuffled) == ExactSum.of(values)


@given(values=VALUES, data=st.data())
def test_any_tree_of_merges_gives_the_same_sum(values: list[float], data: st.DataObject) -> None:
    """Merging parts two by two, in any pairing, equals summing at once."""
    forest = [ExactSum.of([value]) for value in values] or [ExactSum()]

    while len(forest) > 1:
        first = forest.pop(data.draw(st.integers(0, len(forest) - 1)))
        second = forest.pop(data.draw(st.integers(0, len(forest) - 1)))
        forest.append(first.merge(second))

    assert forest == [ExactSum.of(values)]


@given(values=VALUES)
def test_adding_one_by_one_equals_summing_at_once(values: list[float]) -> None:
    """``add`` and ``of`` agree."""
    total = ExactSum()
    for value in values:
        total = total.add(value)

    assert total == ExactSum.of(values)


@given(values=stnp.arrays(np.float64, st.integers(0, 60), elements=FINITE))
@example(values=np.array([TINIEST, -TINIEST, SMALLEST_NORMAL, LARGEST, -LARGEST, 0.0, -0.0]))
def test_the_vectorised_sum_equals_the_plain_one(values: np.ndarray) -> None:
    """``of_array`` gives the bits of ``of`` for every mix of magnitudes."""
    total = ExactSum.of_array(values)

    assert total == ExactSum.of(values.tolist())


@given(power=st.integers(-1074, 1023), times=st.integers(1, 3000), sign=st.sampled_from([-1, 1]))
def test_the_vectorised_sum_takes_many_values_of_one_magnitude(power: int, times: int, sign: int) -> None:
    """Thousands of full mantissas under one exponent do not overflow their int64 halves."""
    value = sign * math.ldexp(2 - 2**-52, power) if power > -1022 else sign * math.ldexp(1, power)

    total = ExactSum.of_array(np.full(times, value))

    assert fraction_of(total) == times * Fraction(value)


def test_strided_and_single_precision_arrays_are_summed_as_their_values() -> None:
    """A view or an fp32 array gives the sum of its own elements."""
    values = np.linspace(-3, 7, 100)

    assert ExactSum.of_array(values[::-3]) == ExactSum.of(values[::-3].tolist())
    assert ExactSum.of_array(values.astype(np.float32)) == ExactSum.of(values.astype(np.float32).tolist())


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_refused(value: float) -> None:
    """NaN and infinities never enter a sum, by any door."""
    for enter in (
        lambda: ExactSum.of([1.0, value]),
        lambda: ExactSum().add(value),
        lambda: ExactSum.of_array(np.array([1.0, value])),
    ):
        with pytest.raises(ValueError, match="finite"):
            enter()


def test_what_fp64_would_lose_is_kept() -> None:
    """A one beside 1e308 survives its neighbour, and cancellation leaves exactly what was small."""
    total = ExactSum.of([1e308, 1.0, TINIEST, -1e308])

    assert fraction_of(total) == 1 + Fraction(TINIEST)


@given(total=SUMS)
@example(total=ExactSum(2**2098))
@example(total=ExactSum(-(2**2174)))
@example(total=ExactSum.of([LARGEST]).merge(ExactSum(2 ** (970 + 1074) - 1)))
@example(total=ExactSum.of([LARGEST]).merge(ExactSum(2 ** (970 + 1074))))
def test_rounding_to_fp64_is_correct(total: ExactSum) -> None:
    """The nearest number, ties to even; infinite with the right sign beyond the range."""
    rounded = total.to_float()

    assert rounded == nearest(fraction_of(total))


@given(values=VALUES)
def test_a_sum_rounds_as_fsum_does(values: list[float]) -> None:
    """Where ``math.fsum`` does not overflow on the way, both agree."""
    try:
        expected = math.fsum(values)
    except OverflowError:
        expected = nearest(sum(map(Fraction, values), Fraction(0)))

    rounded = ExactSum.of(values).to_float()

    assert rounded == expected


@given(total=SUMS, count=st.integers(1, 10**16))
@example(total=ExactSum(3), count=2)
@example(total=ExactSum(1), count=2)
@example(total=ExactSum(1), count=3)
@example(total=ExactSum(2**2174), count=1)
@example(total=ExactSum(-(2**2174)), count=7)
@example(total=ExactSum.of([LARGEST] * 3), count=3)
def test_a_mean_is_rounded_once(total: ExactSum, count: int) -> None:
    """``divided_by`` is the nearest number to the exact quotient, subnormals and overflow included."""
    mean = total.divided_by(count)

    assert mean == nearest(fraction_of(total) / count)


def test_one_rounding_differs_from_two() -> None:
    """Rounding the sum before dividing would give another number; we do not."""
    total = ExactSum.of([2.0**53, 1.0])

    assert total.divided_by(3) != total.to_float() / 3
    assert total.divided_by(3) == nearest(Fraction(2**53 + 1, 3))


def test_a_mean_of_nothing_is_an_error() -> None:
    """Zero tokens have no mean: not NaN, not 0."""
    with pytest.raises(ZeroDivisionError):
        ExactSum().divided_by(0)
