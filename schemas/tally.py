"""Exact sums: the same bits in any order and for any tree of merges.

A finite FP64 number is an integer times 2**-1074 (IEEE 754-2019 §3.3), so a sum of them is one Python integer, and
integers add without rounding. Rounding happens once, when somebody asks for an FP64 result.

For ``all_reduce`` the integer travels as 68 int64 limbs of 32 bits each, two's complement, the top limb signed.
Bound: a single |x| < 2**2098 units; 10**12 additions on each of 10**4 ranks give < 2**(2098 + 40 + 14) = 2**2152, and
68 limbs hold |sum| < 2**2175. Each rank normalises its limbs to [0, 2**32) first (the top limb to |top| < 2**31), so
the sum of one limb over 10**4 < 2**14 ranks stays below 2**46: no int64 can overflow on the way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

UNIT_EXPONENT = -1074
LIMB_BITS = 32
NUM_LIMBS = 68
MAX_UNITS_BITS = LIMB_BITS * NUM_LIMBS - 1

_UNITS_PER_ONE = 1 << -UNIT_EXPONENT
_LIMB_MASK = (1 << LIMB_BITS) - 1
_MANTISSA_BITS = 53
_HALF_BITS = 27


class ExactSumJSON(TypedDict):
    """``mantissa * 2**exponent``; the mantissa is a decimal string and odd, or "0" with exponent 0."""

    mantissa: str
    exponent: int


@dataclass(frozen=True, slots=True)
class ExactSum:
    """A sum of FP64 numbers, held in integer units of 2**-1074."""

    units: int = 0

    @staticmethod
    def of(values: Iterable[float]) -> ExactSum:
        """Sum finite FP64 values exactly.

        Raises:
            ValueError: a value is NaN or infinite.
        """
        return ExactSum(sum(map(_units, values)))

    @staticmethod
    def of_array(values: NDArray[np.float64]) -> ExactSum:
        """As ``of``, vectorised over a one-dimensional array of shape [N]."""
        return ExactSum(_units_of_array(values))

    def add(self, value: float) -> ExactSum:
        """This sum and one more FP64 value."""
        return ExactSum(self.units + _units(value))

    def merge(self, other: ExactSum) -> ExactSum:
        """The sum of two sums."""
        return ExactSum(self.units + other.units)

    def to_float(self) -> float:
        """The nearest FP64 number, ties to even; infinite (with the sign) beyond the FP64 range."""
        try:
            return self.units / _UNITS_PER_ONE
        except OverflowError:
            return math.inf if self.units > 0 else -math.inf

    def divided_by(self, count: int) -> float:
        """The nearest FP64 number to ``sum / count``: one rounding for both steps.

        Args:
            count: A positive number of things.

        Raises:
            ZeroDivisionError: ``count`` is 0.
        """
        try:
            return self.units / (_UNITS_PER_ONE * count)
        except OverflowError:
            return math.inf if self.units > 0 else -math.inf

    def to_limbs(self) -> list[int]:
        """68 int64 limbs, least significant first: 67 in [0, 2**32), the top one signed.

        Raises:
            OverflowError: |sum| needs more than 2175 bits, which 10**16 additions cannot reach.
        """
        if self.units.bit_length() > MAX_UNITS_BITS:
            raise OverflowError(f"exact sum needs {self.units.bit_length()} bits, {MAX_UNITS_BITS} fit in the limbs")
        limbs = [(self.units >> (LIMB_BITS * index)) & _LIMB_MASK for index in range(NUM_LIMBS - 1)]
        return [*limbs, self.units >> (LIMB_BITS * (NUM_LIMBS - 1))]

    @staticmethod
    def from_limbs(limbs: Sequence[int]) -> ExactSum:
        """The inverse of ``to_limbs``; also takes limb-wise sums that were not normalised.

        Raises:
            ValueError: there are not exactly 68 limbs.
        """
        if len(limbs) != NUM_LIMBS:
            raise ValueError(f"{len(limbs)} limbs, {NUM_LIMBS} were expected")
        return ExactSum(sum(int(limb) << (LIMB_BITS * index) for index, limb in enumerate(limbs)))

    def to_json(self) -> ExactSumJSON:
        """A canonical JSON value: equal sums give equal values."""
        if not self.units:
            return {"mantissa": "0", "exponent": 0}
        shift = (self.units & -self.units).bit_length() - 1
        return {"mantissa": str(self.units >> shift), "exponent": shift + UNIT_EXPONENT}

    @staticmethod
    def from_json(value: ExactSumJSON) -> ExactSum:
        """The inverse of ``to_json``.

        Raises:
            ValueError: the value is not in canonical form, or below the FP64 grid.
        """
        shift = value["exponent"] - UNIT_EXPONENT
        if not 0 <= shift <= MAX_UNITS_BITS or len(value["mantissa"]) > 700:
            raise ValueError("exact sum is outside the range of FP64 sums")
        total = ExactSum(int(value["mantissa"]) << shift)
        if total.to_json() != {"mantissa": value["mantissa"], "exponent": value["exponent"]}:
            raise ValueError("exact sum is not in canonical form")
        return total


@dataclass(frozen=True, slots=True)
class Tally:
    """What is known of a set of records; adding two disjoint sets' tallies gives the tally of their union.

    Patients are not here: one patient can have records in two sets, so patient counts do not add.

    Attributes:
        loss_nats: Exact sum of the records' negative log-likelihoods, in nats.
        num_tokens: Scored tokens (a prefix token is never one).
        num_words: White-space separated words of the scored text.
        num_bytes: UTF-8 bytes of the scored text.
        num_records: Scored records.
    """

    loss_nats: ExactSum = field(default_factory=ExactSum)
    num_tokens: int = 0
    num_words: int = 0
    num_bytes: int = 0
    num_records: int = 0

    def merge(self, other: Tally) -> Tally:
        """The tally of the union of two disjoint sets of records."""
        counts = {name: getattr(self, name) + getattr(other, name) for name in COUNT_FIELDS}
        return Tally(loss_nats=self.loss_nats.merge(other.loss_nats), **counts)

    def to_limbs(self) -> list[int]:
        """The loss limbs, then the counts in the order of ``COUNT_FIELDS``: 72 int64 values."""
        return [*self.loss_nats.to_limbs(), *(getattr(self, name) for name in COUNT_FIELDS)]

    @staticmethod
    def from_limbs(limbs: Sequence[int]) -> Tally:
        """The inverse of ``to_limbs``, also for limb-wise sums of several tallies."""
        counts = dict(zip(COUNT_FIELDS, map(int, limbs[NUM_LIMBS:]), strict=True))
        return Tally(loss_nats=ExactSum.from_limbs(limbs[:NUM_LIMBS]), **counts)


COUNT_FIELDS = tuple(item.name for item in fields(Tally))[1:]


def pool(tallies: Iterable[Tally]) -> Tally:
    """Merge any number of tallies of disjoint sets."""
    total = Tally()
    for tally in tallies:
        total = total.merge(tally)
    return total


def _units(value: float) -> int:
    if not math.isfinite(value):
        raise ValueError("only finite values can be summed exactly")
    numerator, denominator = float(value).as_integer_ratio()
    # The denominator is 2**k with k <= 1074, so this shift is never negative.
    return numerator << (-UNIT_EXPONENT - denominator.bit_length() + 1)


def _units_of_array(values: NDArray[np.float64]) -> int:
    """Sum mantissas per exponent in int64: a 27-bit half times 2**36 values cannot overflow."""
    values = np.ascontiguousarray(values, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError("only finite values can be summed exactly")
    fractions, exponents = np.frexp(values)
    mantissas = np.ldexp(fractions, _MANTISSA_BITS).astype(np.int64)
    shifts = exponents.astype(np.int64) - _MANTISSA_BITS - UNIT_EXPONENT
    lowest = int(shifts.min(initial=0))
    num_shifts = int(shifts.max(initial=0)) - lowest + 1
    total = 0
    for half, extra in ((mantissas >> _HALF_BITS, _HALF_BITS), (mantissas & ((1 << _HALF_BITS) - 1), 0)):
        sums = np.zeros(num_shifts, dtype=np.int64)
        np.add.at(sums, shifts - lowest, half)
        for index in np.flatnonzero(sums):
            total += _shifted(int(sums[index]), int(index) + lowest + extra)
    return total


def _shifted(value: int, bits: int) -> int:
    # A subnormal's mantissa ends in as many zero bits as its shift is negative, so nothing is cut off here.
    return value << bits if bits >= 0 else value >> -bits
