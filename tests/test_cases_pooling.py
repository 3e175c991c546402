"""Pooling faults that users of similar systems reported: the right value for each."""

from __future__ import annotations

import math

import numpy as np
import pytest

from schemas.tally import ExactSum, Tally, pool


@pytest.mark.parametrize("batch_size", [1, 2, 3, 10])
def test_the_mean_is_over_tokens_whatever_the_batches(batch_size: int) -> None:
    """One token of NLL 10 and nine of NLL 1 are 1.9 a token and PPL 6.6859, never the mean of batch means."""
    records = [Tally(ExactSum.of([10.0]), num_tokens=1, num_records=1)]
    records += [Tally(ExactSum.of([1.0]), num_tokens=1, num_records=1) for _ in range(9)]

    whole = pool(pool(records[start : start + batch_size]) for start in range(0, len(records), batch_size))

    assert whole.loss_nats.divided_by(whole.num_tokens) == 1.9
    assert math.exp(whole.loss_nats.divided_by(whole.num_tokens)) == pytest.approx(6.6859, abs=1e-4)


def test_strata_pool_to_the_micro_average() -> None:
    """Strata of (loss 10, 1 token) and (loss 9, 9 tokens) are 19 over 10, not the mean of two perplexities."""
    strata = [Tally(ExactSum.of([10.0]), num_tokens=1), Tally(ExactSum.of([9.0]), num_tokens=9)]

    whole = pool(strata)

    assert math.exp(whole.loss_nats.divided_by(whole.num_tokens)) == pytest.approx(math.exp(1.9), rel=1e-15)


def test_a_counter_passes_the_last_integer_of_fp32() -> None:
    """2²⁴ plus 1, 1, 1 tokens are 16,777,219, through merges and through limbs."""
    parts = [Tally(num_tokens=2**24), *[Tally(num_tokens=1)] * 3]

    whole = pool(parts)

    assert whole.num_tokens == 16_777_219
    assert Tally.from_limbs(np.sum([part.to_limbs() for part in parts], axis=0).tolist()).num_tokens == 16_777_219


def test_ranks_of_uneven_size_are_not_averaged() -> None:
    """Values 0 to 8 on ranks of 5 and 4 have mean 4, not 18/5 or 22/5."""
    ranks = [
        pool(Tally(ExactSum.of([float(value)]), num_tokens=1) for value in part) for part in (range(5), range(5, 9))
    ]

    whole = pool(ranks)

    assert whole.loss_nats.divided_by(whole.num_tokens) == 4.0


def test_no_record_is_counted_twice_to_even_out_ranks() -> None:
    """NLL i for ten records over three ranks has mean 4.5, not 46/12."""
    ranks = [
        pool(Tally(ExactSum.of([float(value)]), num_tokens=1) for value in range(rank, 10, 3)) for rank in range(3)
    ]

    whole = pool(ranks)

    assert (whole.num_tokens, whole.loss_nats.divided_by(whole.num_tokens)) == (10, 4.5)


@pytest.mark.parametrize("mean_nats", [25.0, 710.0, 1e300])
def test_a_large_mean_is_kept(mean_nats: float) -> None:
    """The NLL is kept unclamped where its exponential no longer is a number."""
    tally = pool([Tally(ExactSum.of([mean_nats] * 3), num_tokens=3)])

    assert tally.loss_nats.divided_by(tally.num_tokens) == mean_nats


def test_an_empty_rank_changes_nothing() -> None:
    """More ranks than records is fine: an idle rank's limbs are all zero."""
    busy = Tally(ExactSum.of([2.5]), num_tokens=1, num_records=1)

    limbs = np.sum([busy.to_limbs(), Tally().to_limbs(), Tally().to_limbs()], axis=0)

    assert Tally.from_limbs(limbs.tolist()) == busy
