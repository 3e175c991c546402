"""How far a reduced precision moves the perplexity, from records that were computed in fp32 too.

With differences d of n records' losses (reduced less fp32) and their tokens t, the mean NLL moves by r = Σd / Σt and
token perplexity by exp(r) - 1. Records are the sampled units, so r is a ratio estimator; by linearisation its variance
is n / (n - 1) · Σ(d - r·t)² / (Σt)² (Cochran, Sampling Techniques, 3rd ed., 2.11 and 6.3; without the correction for
finite populations), and its interval takes Student's t with n - 1 degrees. All sums are exact, so neither the order of
records nor the number of ranks can change a bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from schemas.documents import Value
from schemas.errors import IntegrityError
from schemas.precision import PrecisionPolicy, is_sampled
from schemas.student import t_quantile
from schemas.tables import STATUS_SCORED
from schemas.tally import ExactSum

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class DriftSums:
    """What is known of the sample of one band; adding two disjoint samples' sums gives those of both.

    Attributes:
        num_sampled: Scored records in the sample.
        num_records: Those with a finite fp32 loss: n.
        num_tokens: Their tokens: Σt.
        num_tokens_squared: Σt².
        difference_nats: Σd.
        difference_squared: Σd², of the squares as FP64 numbers.
        difference_by_tokens: Σd·t, of the products as FP64 numbers.
    """

    num_sampled: int = 0
    num_records: int = 0
    num_tokens: int = 0
    num_tokens_squared: int = 0
    difference_nats: ExactSum = field(default_factory=ExactSum)
    difference_squared: ExactSum = field(default_factory=ExactSum)
    difference_by_tokens: ExactSum = field(default_factory=ExactSum)

    def merge(self, other: DriftSums) -> DriftSums:
        """The sums of two disjoint samples."""
        merged: dict[str, Any] = {}
        for item in fields(self):
            one, two = getattr(self, item.name), getattr(other, item.name)
            merged[item.name] = one.merge(two) if isinstance(one, ExactSum) else one + two
        return DriftSums(**merged)

    def to_json(self) -> dict[str, Any]:
        """A canonical JSON value: equal sums give equal values."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: dict(value.to_json()) if isinstance(value, ExactSum) else value for name, value in values.items()}


class BandDrift(Value):
    """The drift of one reduced band.

    Attributes:
        band: Its number in the policy, from 0.
        precision: That it was computed in.
        up_to: Most positions of its records; None for the last one.
        sums: ``DriftSums`` that all else follows from.
        drift: exp(r) - 1; None without a record, or where it is infinite.
        low: Lower end of its 95 % interval; None with fewer than two records.
        high: Upper end; None also where it is infinite.
        limit: On the size of the drift.
        verdict: ``undefined`` where the sample holds no record.
    """

    band: int
    precision: str
    up_to: int | None
    sums: dict[str, Any]
    drift: float | None
    low: float | None
    high: float | None
    limit: float
    verdict: Literal["within", "above", "undefined"]

    @property
    def name(self) -> str:
        """The band as it is written in the policy."""
        return self.precision if self.up_to is None else f"{self.precision}:{self.up_to}"

    @property
    def text(self) -> str:
        """The finding in words."""
        if self.verdict == "undefined":
            return f"{self.name}: no record sampled, drift unknown"
        drift = "infinite" if self.drift is None else percent(self.drift)
        ends = "" if self.low is None else f" [{percent(self.low)}, {percent(self.high)}]"
        counts = f"{self.sums['num_records']:,} records, {self.sums['num_tokens']:,} tokens"
        return (
            f"{self.name}: {drift}{ends} of token perplexity against fp32, {counts}, "
            f"limit {100 * self.limit:g} %: {self.verdict}"
        )


class Fallback(Value):
    """A run that was started anew with bands in fp32, since their precision moved the perplexity too far.

    ``asked`` and ``check`` are the precisions and the checked share that were asked for, ``drift`` is what was found.
    """

    asked: str
    check: float
    drift: list[BandDrift]

    @property
    def mark(self) -> str:
        """What a reader must know before any figure of the run."""
        return f"asked for in {self.asked}, scored in fp32 where that drifts over the limit"


def percent(share: float | None) -> str:
    """A signed share in words; None is infinite."""
    return "infinite" if share is None else f"{100 * share:+.4f} %"


def sums_of(table: pa.Table, policy: PrecisionPolicy, where: str) -> dict[int, DriftSums]:
    """The sums of a partial by number of the checked band.

    Args:
        table: Rows of ``partial_schema``.
        policy: Of the run.
        where: How to name the partial.

    Raises:
        IntegrityError: a record was not computed in its band's precision, or a record outside of the sample was
            computed in fp32 too.
    """
    if not policy.bands:
        return {}
    tokens_N = table.column("num_tokens").to_numpy()
    # The first position is never scored, all others are.
    limits = np.array([band.up_to for band in policy.bands[:-1]], dtype=np.int64)
    bands_N = np.searchsorted(limits, tokens_N + 1)
    scored_N = table.column("status").to_numpy(zero_copy_only=False) == STATUS_SCORED
    names_N = np.array([band.compute for band in policy.bands])[bands_N]
    due_N = scored_N & np.isin(bands_N, policy.checked_bands)
    ids = table.column("record_id")
    due_N[due_N] = [is_sampled(ids[int(at)].as_py(), policy.check) for at in np.flatnonzero(due_N)]
    checked_N = table.column("check_loss_nats").is_valid().to_numpy()
    is_other = table.column("precision").to_numpy(zero_copy_only=False) != names_N
    if (scored_N & is_other).any() or (checked_N & ~due_N).any():
        raise IntegrityError(f"{where}: rows are not computed in the precisions of the run; remove it and score again")
    own = {number: due_N & (bands_N == number) for number in policy.checked_bands}
    return {number: _summed(table.filter(pa.array(mask_N))) for number, mask_N in own.items()}


def _summed(sampled: pa.Table) -> DriftSums:
    known = sampled.filter(sampled.column("check_loss_nats").is_valid())
    tokens_N = known.column("num_tokens").to_numpy()
    differences_N = known.column("loss_nats").to_numpy() - known.column("check_loss_nats").to_numpy()
    return DriftSums(
        num_sampled=sampled.num_rows,
        num_records=known.num_rows,
        num_tokens=int(tokens_N.sum()),
        num_tokens_squared=sum(number * number for number in tokens_N.tolist()),
        difference_nats=ExactSum.of_array(differences_N),
        difference_squared=ExactSum.of_array(differences_N * differences_N),
        difference_by_tokens=ExactSum.of_array(differences_N * tokens_N.astype(np.float64)),
    )


def add_sums(parts: Sequence[dict[int, DriftSums]]) -> dict[int, DriftSums]:
    """The sums of disjoint samples, by band."""
    total: dict[int, DriftSums] = {}
    for part in parts:
        for number, sums in part.items():
            total[number] = total.get(number, DriftSums()).merge(sums)
    return dict(sorted(total.items()))


def drifts_of(sums: dict[int, DriftSums], policy: PrecisionPolicy, *, limit: float) -> list[BandDrift]:
    """The drift of every checked band, with its interval and what it is against the limit."""
    return [_drift(number, sums.get(number, DriftSums()), policy, limit) for number in policy.checked_bands]


def _drift(number: int, sums: DriftSums, policy: PrecisionPolicy, limit: float) -> BandDrift:
    band = policy.bands[number]
    shift, margin = _ratio(sums)
    drift = None if shift is None else _growth(float(shift))
    is_within = drift is not None and abs(drift) <= limit
    return BandDrift(
        band=number,
        precision=band.compute,
        up_to=band.up_to,
        sums=sums.to_json(),
        drift=drift,
        low=None if shift is None or margin is None else _growth(float(shift) - margin),
        high=None if shift is None or margin is None else _growth(float(shift) + margin),
        limit=limit,
        verdict="undefined" if shift is None else "within" if is_within else "above",
    )


def _ratio(sums: DriftSums) -> tuple[Fraction | None, float | None]:
    """r, and half the width of its interval."""
    if not sums.num_records:
        return None, None
    shift = _fraction(sums.difference_nats) / sums.num_tokens
    if sums.num_records < 2:
        return shift, None
    residuals = (
        _fraction(sums.difference_squared)
        - 2 * shift * _fraction(sums.difference_by_tokens)
        + shift * shift * sums.num_tokens_squared
    )
    # The squares were rounded one by one, so equal records can leave a residual below zero.
    variance = max(residuals, Fraction(0)) * sums.num_records / (sums.num_records - 1) / sums.num_tokens**2
    return shift, t_quantile((1 + CONFIDENCE) / 2, sums.num_records - 1) * math.sqrt(variance)


def _fraction(total: ExactSum) -> Fraction:
    value = total.to_json()
    return Fraction(int(value["mantissa"])) * Fraction(2) ** value["exponent"]


def _growth(shift: float) -> float | None:
    """exp(shift) - 1, or None beyond FP64."""
    try:
        return math.expm1(shift)
    except OverflowError:
        return None
