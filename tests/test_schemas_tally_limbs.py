"""Sums and tallies travel without loss: as int64 limbs through any number of ranks, and as canonical JSON."""

from __future__ import annotations

import json
import math
import random
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.tally import COUNT_FIELDS, MAX_UNITS_BITS, NUM_LIMBS, ExactSum, ExactSumJSON, Tally, pool

TINIEST = 5e-324
LARGEST = sys.float_info.max
COUNTS = st.integers(0, 10**12)
SUMS = st.builds(ExactSum, st.integers(-(2**MAX_UNITS_BITS) + 1, 2**MAX_UNITS_BITS - 1))
TALLIES = st.builds(
    Tally,
    loss_nats=st.builds(ExactSum.of, st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=10)),
    num_tokens=COUNTS,
    num_words=COUNTS,
    num_bytes=COUNTS,
    num_records=COUNTS,
)
MOST_ADDITIONS = 10**12
MOST_RANKS = 10**4


@given(total=SUMS)
def test_limbs_round_trip(total: ExactSum) -> None:
    """68 limbs in their ranges give the sum back."""
    limbs = total.to_limbs()

    assert len(limbs) == NUM_LIMBS
    assert all(0 <= limb < 2**32 for limb in limbs[:-1])
    assert -(2**31) <= limbs[-1] < 2**31
    assert ExactSum.from_limbs(limbs) == total


@given(tallies=st.lists(TALLIES, max_size=12))
def test_adding_limbs_over_ranks_equals_merging(tallies: list[Tally]) -> None:
    """An int64 ``all_reduce`` of limbs, as numpy and torch add, gives the pooled tally."""
    import torch

    width = len(Tally().to_limbs())
    limbs_RL = np.array([tally.to_limbs() for tally in tallies], dtype=np.int64).reshape(-1, width)

    by_numpy = Tally.from_limbs(limbs_RL.sum(axis=0, dtype=np.int64).tolist())
    by_torch = Tally.from_limbs(torch.from_numpy(limbs_RL).sum(dim=0, dtype=torch.int64).tolist())

    assert by_numpy == by_torch == pool(tallies)


@pytest.mark.parametrize("value", [LARGEST, -LARGEST, TINIEST, -TINIEST, math.nextafter(1, 0), -1.0])
def test_the_largest_job_fits_the_limbs(value: float) -> None:
    """10¹² additions of an extreme on each of 10⁴ ranks fit, and no int64 overflows while ranks are added."""
    one_rank = ExactSum(ExactSum.of([value]).units * MOST_ADDITIONS)
    limbs = one_rank.to_limbs()
    summed = [limb * MOST_RANKS for limb in limbs]

    total = ExactSum.from_limbs(summed)

    assert Fraction(total.units, 2**1074) == Fraction(value) * MOST_ADDITIONS * MOST_RANKS
    assert max(map(abs, summed)) < 2**46
    assert ExactSum.from_limbs(total.to_limbs()) == total
    by_int64 = np.array(limbs, dtype=np.int64) * np.int64(MOST_RANKS)
    assert by_int64.tolist() == summed


@given(total=SUMS)
def test_no_normalised_limb_can_overflow_over_ten_thousand_ranks(total: ExactSum) -> None:
    """Whatever a rank holds, 10⁴ times its limbs stay below 2⁴⁶."""
    limbs = total.to_limbs()

    assert max(map(abs, limbs)) * MOST_RANKS < 2**46


@pytest.mark.parametrize("sign", [1, -1])
def test_the_limbs_refuse_what_they_cannot_hold(sign: int) -> None:
    """The last sum that fits is exact, and the next one is an error instead of a wrap-around."""
    last = ExactSum(sign * (2**MAX_UNITS_BITS - 1))

    assert ExactSum.from_limbs(last.to_limbs()) == last
    with pytest.raises(OverflowError, match="bits"):
        last.merge(ExactSum(sign)).to_limbs()


@pytest.mark.parametrize("num_limbs", [0, NUM_LIMBS - 1, NUM_LIMBS + 1])
def test_another_number_of_limbs_is_refused(num_limbs: int) -> None:
    """A short or long list is an error, never padded."""
    with pytest.raises(ValueError, match="limbs"):
        ExactSum.from_limbs([0] * num_limbs)


@pytest.mark.parametrize("num_limbs", [NUM_LIMBS, NUM_LIMBS + len(COUNT_FIELDS) - 1, NUM_LIMBS + len(COUNT_FIELDS) + 1])
def test_a_tally_of_another_width_is_refused(num_limbs: int) -> None:
    """A reduced tensor of the wrong width is no tally."""
    with pytest.raises(ValueError, match="zip"):
        Tally.from_limbs([0] * num_limbs)


@given(total=SUMS)
def test_json_round_trip(total: ExactSum) -> None:
    """Through real JSON text and back, the sum is equal."""
    text = json.dumps(total.to_json())

    assert ExactSum.from_json(json.loads(text)) == total


@given(first=SUMS, second=SUMS)
def test_json_is_canonical(first: ExactSum, second: ExactSum) -> None:
    """Equal sums have equal JSON, different sums different JSON; the mantissa is odd."""
    value = first.to_json()

    assert (value == second.to_json()) == (first == second)
    assert value == ExactSum(first.units).to_json()
    assert int(value["mantissa"]) % 2 == 1 or value == {"mantissa": "0", "exponent": 0}


@pytest.mark.parametrize(
    "value",
    [
        {"mantissa": "2", "exponent": 0},
        {"mantissa": "01", "exponent": 0},
        {"mantissa": "+1", "exponent": 0},
        {"mantissa": " 1", "exponent": 0},
        {"mantissa": "1_1", "exponent": 0},
        {"mantissa": "٣", "exponent": 0},
        {"mantissa": "-0", "exponent": 0},
        {"mantissa": "0", "exponent": 1},
        {"mantissa": "1", "exponent": -1075},
        {"mantissa": "1", "exponent": 10**9},
        {"mantissa": "1" * 5000, "exponent": 0},
        {"mantissa": "", "exponent": 0},
        {"mantissa": "1.5", "exponent": 0},
    ],
)
def test_another_spelling_of_a_sum_is_refused(value: ExactSumJSON) -> None:
    """Only the canonical JSON of a sum is read, so equal files stay the only way to equal sums."""
    with pytest.raises(ValueError, match=r"sum|literal"):
        ExactSum.from_json(value)


@given(tallies=st.lists(TALLIES, max_size=8), seed=st.integers(0, 1000))
def test_pooling_is_a_sum_in_any_order(tallies: list[Tally], seed: int) -> None:
    """Every count and the loss add; order does not matter; the empty tally is neutral."""
    shuffled = random.Random(seed).sample(tallies, len(tallies))

    whole = pool(tallies)

    assert pool(shuffled) == whole == whole.merge(Tally()) == Tally().merge(whole)
    for name in COUNT_FIELDS:
        assert getattr(whole, name) == sum(getattr(tally, name) for tally in tallies)
    assert whole.loss_nats.units == sum(tally.loss_nats.units for tally in tallies)


@given(tally=TALLIES)
def test_a_tally_survives_its_limbs(tally: Tally) -> None:
    """Loss and counts come back from 72 int64 values."""
    limbs = tally.to_limbs()

    assert len(limbs) == NUM_LIMBS + len(COUNT_FIELDS) == 72
    assert all(-(2**63) <= limb < 2**63 for limb in limbs)
    assert Tally.from_limbs(limbs) == tally
