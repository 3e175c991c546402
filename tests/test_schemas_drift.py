"""The drift of a reduced precision: what a sample says of it, in any order and any parts."""

from __future__ import annotations

import json
import math
import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.drift import BandDrift, DriftSums, add_sums, drifts_of, sums_of
from schemas.errors import IntegrityError
from schemas.precision import Band, PrecisionPolicy, is_sampled
from schemas.student import t_quantile
from tests.made_partials import row, table_of

POLICY = PrecisionPolicy((Band(compute="fp32", up_to=10), Band(compute="mixed", up_to=100), Band(compute="bf16")), 1.0)
PAIRS = st.lists(st.tuples(st.floats(0, 1e4), st.floats(-0.5, 0.5), st.integers(10, 300)), max_size=20)


def rows_of(pairs: list[tuple[float, float, int]]) -> list[dict[str, Any]]:
    """Rows of a partial under the policy, each with the fp32 loss and how far its own is from it."""
    rows = []
    for number, (check, difference, num_tokens) in enumerate(pairs):
        precision = POLICY.bands[POLICY.band_of(num_tokens + 1)].compute
        made = row(number, loss_nats=check + difference, num_tokens=num_tokens)
        rows.append(made | {"precision": precision, "check_loss_nats": check})
    return rows


def drift_of(rows: list[dict[str, Any]], band: int = 1, *, limit: float = 0.003) -> BandDrift:
    """The drift that rows give for one band."""
    found = drifts_of(sums_of(table_of(rows), POLICY, "here"), POLICY, limit=limit)
    return next(item for item in found if item.band == band)


@given(pairs=PAIRS, cuts=st.lists(st.integers(0, 20), max_size=4), seed=st.integers())
def test_parts_in_any_order_have_the_drift_of_the_whole(
    pairs: list[tuple[float, float, int]], cuts: list[int], seed: int
) -> None:
    """Sums of shuffled parts, through JSON, are those of the whole, to the bit."""
    rows = rows_of(pairs)
    whole = drifts_of(sums_of(table_of(rows), POLICY, "here"), POLICY, limit=0.003)
    shuffled = random.Random(seed).sample(rows, len(rows))
    edges = [0, *sorted(cuts), len(rows)]

    parts = [sums_of(table_of(shuffled[start:stop]), POLICY, "here") for start, stop in pairwise(edges)]

    assert drifts_of(add_sums(parts), POLICY, limit=0.003) == whole
    assert [BandDrift.model_validate(json.loads(item.model_dump_json())) for item in whole] == whole


@given(pairs=PAIRS)
def test_drift_and_interval_are_those_of_the_definition(pairs: list[tuple[float, float, int]]) -> None:
    """The exact sums give what a plain computation of the ratio estimator gives."""
    own = [
        (row["loss_nats"] - row["check_loss_nats"], row["num_tokens"])
        for row in rows_of(pairs)
        if row["precision"] == "mixed"
    ]
    differences, tokens = np.array([pair[0] for pair in own]), np.array([pair[1] for pair in own])

    found = drift_of(rows_of(pairs))

    assert found.sums["num_records"] == found.sums["num_sampled"] == len(own)
    if not own:
        assert (found.verdict, found.drift, found.low) == ("undefined", None, None)
        return
    ratio = differences.sum() / tokens.sum()
    assert found.drift == pytest.approx(math.expm1(ratio), rel=1e-9, abs=1e-12)
    assert found.verdict == ("within" if abs(found.drift or 0) <= 0.003 else "above")
    if len(own) == 1:
        assert found.low is None
        return
    variance = ((differences - ratio * tokens) ** 2).sum() * len(own) / (len(own) - 1) / tokens.sum() ** 2
    margin = t_quantile(0.975, len(own) - 1) * math.sqrt(variance)
    assert found.low == pytest.approx(math.expm1(ratio - margin), rel=1e-6, abs=1e-7)
    assert found.high == pytest.approx(math.expm1(ratio + margin), rel=1e-6, abs=1e-7)


def test_a_sample_of_its_own_covers_the_drift() -> None:
    """Of 200 samples of 60 records with a known drift, the interval misses few: 95 % hold it."""
    generator, held = np.random.Generator(np.random.PCG64(5)), 0
    for _ in range(200):
        tokens = generator.integers(12, 99, 60)
        differences = tokens * generator.normal(0.001, 0.01, 60)
        found = drift_of(rows_of([(50.0, float(d), int(t)) for d, t in zip(differences, tokens, strict=True)]))
        held += (found.low or 0) <= math.expm1(0.001) <= (found.high or 0)

    assert 178 <= held <= 200


@pytest.mark.parametrize(
    ("drift", "verdict"), [(0.0029, "within"), (-0.0029, "within"), (0.0031, "above"), (-0.0031, "above")]
)
def test_the_verdict_goes_by_the_size_of_the_drift(drift: float, verdict: str) -> None:
    """A perplexity that falls too far is as wrong as one that rises."""
    rows = rows_of([(40.0, 20 * math.log1p(drift), 20), (80.0, 40 * math.log1p(drift), 40)])

    found = drift_of(rows)

    assert found.drift == pytest.approx(drift, rel=1e-9)
    assert found.verdict == verdict
    assert f": {verdict}" in found.text


def test_a_drift_beyond_numbers_is_above() -> None:
    """A mean difference whose exponential FP64 cannot hold is no number in the document, and above every limit."""
    found = drift_of([rows_of([(1.0, 0.0, 20)])[0] | {"loss_nats": 1e6}], limit=1e9)

    assert (found.drift, found.verdict) == (None, "above")
    assert "infinite" in found.text


def test_only_the_sample_counts() -> None:
    """Sampled records of reduced bands count, those without a finite fp32 loss as sampled only; skipped ones do not."""
    policy = PrecisionPolicy(POLICY.bands, check=0.4)
    sampled = [number for number in range(40) if is_sampled(number.to_bytes(16, "big"), 0.4)]
    rows = [row(number, num_tokens=50) | {"precision": "mixed"} for number in range(40)]
    for number in sampled[2:]:
        rows[number]["check_loss_nats"] = 1.0
    rows += [row(100, num_tokens=5), row(101, status="no_tokens")]

    sums = sums_of(table_of(rows), policy, "here")

    assert (sums[1].num_sampled, sums[1].num_records) == (len(sampled), len(sampled) - 2)
    assert sums[2] == DriftSums()
    assert 0 not in sums


@pytest.mark.parametrize(
    "change",
    [
        {"precision": "bf16"},
        {"precision": "fp32"},
        {"num_tokens": 100},
        {"num_tokens": 9, "check_loss_nats": 1.0, "precision": "fp32"},
    ],
)
def test_rows_that_break_the_policy_are_refused(change: dict[str, Any]) -> None:
    """A record in another precision than its length asks for, or one checked without need, is no sound row."""
    rows = [row(0, num_tokens=50) | {"precision": "mixed"} | change]

    with pytest.raises(IntegrityError, match="here: rows are not computed in the precisions of the run"):
        sums_of(table_of(rows), POLICY, "here")
