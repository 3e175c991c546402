"""Every shape of model is scored as a plain forward pass over one unpadded row would score it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scoring.engine import RecordResult
from tests.models import MAX_POSITIONS, MODEL_KINDS, SENTENCES
from tests.reference import reference_nll
from tests.sessions import score, score_texts, scoring

ModelOf = Callable[[str], Path]
LONG_NOTE = " ".join(SENTENCES)
NOTES = [*SENTENCES, LONG_NOTE, LONG_NOTE * 2, "a", "before <|endoftext|> after", "007", "x" * 70]


def agree(results: list[RecordResult], model: Path, texts: list[str], **windowing: Any) -> None:
    """Each record has the reference's tokens, and its loss to 1e-6."""
    for result, text in zip(results, texts, strict=True):
        loss_nats, num_tokens = reference_nll(model, text, **windowing)
        assert (result.status, result.num_tokens) == ("scored", num_tokens)
        assert result.loss_nats == pytest.approx(loss_nats, rel=1e-6)


@pytest.mark.parametrize("kind", sorted(MODEL_KINDS))
def test_a_loss_is_that_of_the_model_alone(kind: str, model_of: ModelOf) -> None:
    """For one window a record, with the prefix of its tokenizer, losses equal the reference and so do token counts."""
    with scoring(model_of(kind)) as session:
        results = score_texts(session, NOTES)

    agree(results, model_of(kind), NOTES, max_length=MAX_POSITIONS, stride=MAX_POSITIONS)


@pytest.mark.parametrize("kind", sorted(MODEL_KINDS))
def test_overlapping_windows_are_those_of_the_reference(kind: str, model_of: ModelOf) -> None:
    """With a stride below the window each token has the context that the definition gives it."""
    with scoring(model_of(kind), max_length=50, stride=17) as session:
        results = score_texts(session, NOTES)

    agree(results, model_of(kind), NOTES, max_length=50, stride=17)
    assert max(result.num_windows for result in results) > 5


@pytest.mark.parametrize("kind", sorted(MODEL_KINDS))
def test_without_a_prefix_one_token_less_is_scored(kind: str, model_of: ModelOf) -> None:
    """With --prefix none the first token of a record is context only."""
    texts = [text for text in NOTES if text != "a"]
    with scoring(model_of(kind), prefix="none", max_length=64) as session:
        results = score_texts(session, texts)

    agree(results, model_of(kind), texts, prefix=False, max_length=64, stride=64)


@settings(max_examples=15)
@given(max_length=st.integers(2, 40), data=st.data(), num_characters=st.lists(st.integers(1, 150), max_size=4))
def test_any_windowing_is_that_of_the_reference(
    max_length: int, data: st.DataObject, num_characters: list[int], tiny_llama: Path
) -> None:
    """For every L and S the loss of a record is the reference's, down to windows of two positions."""
    stride = data.draw(st.integers(1, max_length))
    texts = [LONG_NOTE[:number] for number in num_characters]

    with scoring(tiny_llama, max_length=max_length, stride=stride) as session:
        results = score_texts(session, texts)

    agree(results, tiny_llama, texts, max_length=max_length, stride=stride)


@pytest.mark.parametrize("precision", ["mixed", "bf16"])
def test_lower_precisions_are_near(precision: str, tiny_llama: Path) -> None:
    """bf16 moves a loss by some percent on these wild weights, and no count at all."""
    with scoring(tiny_llama, precision=precision) as session:
        results = score(session, [NOTES])[0]

    for result, text in zip(results, NOTES, strict=True):
        loss_nats, num_tokens = reference_nll(tiny_llama, text, max_length=MAX_POSITIONS, stride=MAX_POSITIONS)
        assert result.num_tokens == num_tokens
        assert result.loss_nats == pytest.approx(loss_nats, rel=0.05)
        assert result.loss_nats != loss_nats
