"""Figures from sums: values, statuses and averages."""

from __future__ import annotations

import math
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from aggregate.figures import figures, macro
from aggregate.strata import Cell
from schemas.report import Figures, NoNumber, Number
from schemas.tally import ExactSum, Tally


def figures_of(loss: float, *, tokens: int = 1, words: int = 1, num_bytes: int = 1) -> Figures:
    """Figures of one record."""
    tally = Tally(ExactSum.of([loss]), num_tokens=tokens, num_words=words, num_bytes=num_bytes, num_records=1)
    return figures(Cell((), tally, num_skipped=0, num_patients=0, num_without_patient=1))


@given(st.lists(st.floats(0, 1e6), min_size=1), st.integers(1, 10**12))
def test_nll_per_token_is_rounded_once(losses: list[float], num_tokens: int) -> None:
    """The figure is the FP64 number nearest to the rational quotient."""
    tally = Tally(ExactSum.of(losses), num_tokens=num_tokens, num_words=1, num_bytes=1, num_records=len(losses))

    found = figures(Cell((), tally, num_skipped=0, num_patients=0, num_without_patient=0))

    exact = sum(map(Fraction, losses), Fraction(0)) / num_tokens
    assert found.nll_per_token == Number(value=exact.numerator / exact.denominator)


@given(st.floats(0, 700), st.integers(1, 1000), st.integers(1, 1000), st.integers(1, 1000))
def test_perplexities_are_exp_of_the_mean_loss_of_their_unit(loss: float, tokens: int, words: int, size: int) -> None:
    """Each perplexity is exp of nats per its own unit, and byte perplexity is 2 to the power of bits per byte."""
    found = figures_of(loss, tokens=tokens, words=words, num_bytes=size)

    assert found.token_perplexity == Number(value=math.exp(loss / tokens))
    assert found.word_perplexity == Number(value=math.exp(loss / words))
    assert isinstance(found.byte_perplexity, Number)
    assert isinstance(found.bits_per_byte, Number)
    assert math.isclose(2**found.bits_per_byte.value, found.byte_perplexity.value, rel_tol=1e-12)


def test_a_figure_over_nothing_is_undefined_with_a_reason() -> None:
    """No token, word or byte gives a status, never NaN."""
    found = figures_of(2.0, words=0, num_bytes=0)

    assert found.word_perplexity == NoNumber(status="undefined", reason="no scored words")
    assert found.byte_perplexity == found.bits_per_byte == NoNumber(status="undefined", reason="no scored bytes")
    assert found.token_perplexity == Number(value=math.exp(2.0))


def test_a_sum_beyond_fp64_is_infinite_and_kept_exactly() -> None:
    """Two losses whose sum FP64 cannot hold leave the exact sum in the report, and the mean where that is finite."""
    largest = 1.7976931348623157e308
    tally = Tally(ExactSum.of([largest, largest]), num_tokens=2, num_words=1, num_bytes=1, num_records=2)

    found = figures(Cell((), tally, num_skipped=0, num_patients=0, num_without_patient=0))

    assert found.loss_nats.status == "infinite"
    assert found.nll_per_token == Number(value=largest)
    assert ExactSum.from_json(found.loss_nats_exact.model_dump()) == tally.loss_nats  # type: ignore[arg-type]


def test_macro_leaves_out_strata_without_tokens_and_says_so() -> None:
    """A stratum of skipped records only has no perplexity: it is counted, not averaged as zero."""
    empty = figures(Cell((), Tally(), num_skipped=3, num_patients=0, num_without_patient=0))

    found = macro([figures_of(1.0), empty, figures_of(3.0)])

    assert (found.num_strata, found.num_strata_without_tokens) == (2, 1)
    assert found.nll_per_token == Number(value=2.0)
    assert found.token_perplexity == Number(value=(math.exp(1.0) + math.exp(3.0)) / 2)


def test_macro_over_no_scored_stratum_is_undefined() -> None:
    """Without any scored stratum there is no mean."""
    found = macro([])

    assert found.token_perplexity == NoNumber(status="undefined", reason="no published stratum has scored tokens")


def test_macro_with_an_infinite_stratum_is_infinite() -> None:
    """One infinite perplexity makes their mean infinite by status, while the mean NLL stays a number."""
    found = macro([figures_of(1.0), figures_of(800.0)])

    assert found.token_perplexity == NoNumber(status="infinite", reason="infinite in 1 of 2 strata")
    assert found.nll_per_token == Number(value=400.5)
