"""The reference scorer and the tiny models are themselves right, or nothing that is compared with them would be."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models import MAX_POSITIONS, MODEL_KINDS, SENTENCES, VOCAB_SIZE, make_model, make_tokenizer
from tests.reference import reference_losses, reference_nll, sequence_of, window_losses

NOTE = " ".join(SENTENCES[:3])
LONG_NOTE = " ".join(SENTENCES)
ModelOf = Callable[[str], Path]


@pytest.mark.parametrize("kind", sorted(MODEL_KINDS))
def test_a_model_is_far_from_uniform_and_reproducible(kind: str, model_of: ModelOf, tmp_path: Path) -> None:
    """Making the same kind twice gives the same weights, whose losses differ from token to token."""
    again = make_model(kind, tmp_path / "again")

    losses = reference_losses(model_of(kind), NOTE, max_length=MAX_POSITIONS, stride=MAX_POSITIONS)

    assert (again / "model.safetensors").read_bytes() == (model_of(kind) / "model.safetensors").read_bytes()
    assert (again / "tokenizer.json").read_bytes() == (model_of(kind) / "tokenizer.json").read_bytes()
    assert max(losses) - min(losses) > 1
    assert all(0 <= loss < math.inf for loss in losses)


@pytest.mark.parametrize("kind", sorted(MODEL_KINDS))
def test_a_loss_equals_the_models_own(kind: str, model_of: ModelOf) -> None:
    """For one window the sum is what ``model(..., labels=...)`` reports as a mean."""
    import torch
    from transformers import AutoModelForCausalLM

    sequence = torch.tensor([sequence_of(model_of(kind), NOTE, prefix=True)])
    with torch.inference_mode():
        theirs = AutoModelForCausalLM.from_pretrained(model_of(kind), dtype=torch.float32)(sequence, labels=sequence)

    loss_nats, num_tokens = reference_nll(model_of(kind), NOTE, max_length=MAX_POSITIONS, stride=MAX_POSITIONS)

    assert num_tokens == sequence.shape[1] - 1
    assert loss_nats / num_tokens == pytest.approx(theirs.loss.item(), rel=1e-5)


@given(max_length=st.integers(2, 24), data=st.data(), prefix=st.booleans(), num_characters=st.integers(0, 120))
def test_every_token_is_scored_once(
    max_length: int, data: st.DataObject, prefix: bool, num_characters: int, tiny_llama: Path
) -> None:
    """T tokens give T losses with a prefix and T-1 without, for every length, window and step."""
    stride = data.draw(st.integers(1, max_length))
    text = NOTE[:num_characters]
    num_tokens = len(sequence_of(tiny_llama, text, prefix=False))

    losses = reference_losses(tiny_llama, text, prefix=prefix, max_length=max_length, stride=stride)

    assert len(losses) == max(num_tokens - (not prefix), 0)


def test_a_token_sees_the_context_of_its_first_window(tiny_llama: Path) -> None:
    """Window k holds input positions k·S to k·S+L and predicts the next of each; the first to cover a target counts."""
    length, step = 8, 3
    sequence = sequence_of(tiny_llama, NOTE, prefix=True)
    whole = {
        start: window_losses(tiny_llama, sequence[start : start + length + 1])
        for start in range(0, len(sequence) - 1, step)
    }
    expected = []
    for target in range(1, len(sequence)):
        first = next(start for start in sorted(whole) if start < target <= start + length)
        expected.append(whole[first][target - first - 1])

    losses = reference_losses(tiny_llama, NOTE, max_length=length, stride=step)

    assert losses == expected


@pytest.mark.parametrize("stride", [0, 9])
def test_a_stride_beyond_the_window_is_refused(stride: int, tiny_llama: Path) -> None:
    """A step that skips tokens is an error."""
    with pytest.raises(ValueError, match="stride"):
        reference_losses(tiny_llama, NOTE, max_length=8, stride=stride)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ({"bos": "<s>", "eos": "</s>"}, "<s>"),
        ({"bos": "<s>", "eos": "</s>", "adds_bos": True}, "<s>"),
        ({"bos": None, "eos": "</s>"}, "</s>"),
        ({"bos": None, "eos": None}, None),
    ],
)
def test_exactly_one_prefix_by_policy(tokens: dict[str, object], expected: str | None, tmp_path: Path) -> None:
    """BOS, else EOS, else nothing stands in front, once, also where the tokenizer adds BOS itself."""
    from transformers import AutoTokenizer

    folder = make_tokenizer(tmp_path, **tokens)  # type: ignore[arg-type]
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    bare = sequence_of(folder, NOTE, prefix=False)

    sequence = sequence_of(folder, NOTE, prefix=True)

    assert sequence == ([] if expected is None else [tokenizer.convert_tokens_to_ids(expected)]) + bare
    assert tokenizer.decode(bare) == NOTE
    assert len(tokenizer(NOTE, verbose=False)["input_ids"]) == len(bare) + bool(tokens.get("adds_bos"))
    assert 300 <= len(tokenizer) <= VOCAB_SIZE


def test_special_token_strings_are_ordinary_text(model_of: ModelOf) -> None:
    """A note that spells the EOS token has no EOS token in it."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_of("gpt2"), local_files_only=True)
    text = "before <|endoftext|> after"

    sequence = sequence_of(model_of("gpt2"), text, prefix=False)

    assert tokenizer.eos_token_id not in sequence
    assert tokenizer.decode(sequence) == text


@pytest.mark.parametrize(("kind", "field"), [("gemma2", "final_logit_softcapping"), ("gemma2", "sliding_window")])
def test_the_traps_of_a_shape_matter(kind: str, field: str, model_of: ModelOf, tmp_path: Path) -> None:
    """Taking the soft cap or the sliding window out of the config changes the loss, so tests notice its loss."""
    import json
    import shutil

    blunt = tmp_path / "blunt"
    shutil.copytree(model_of(kind), blunt)
    config = json.loads((blunt / "config.json").read_text())
    config[field] = {"final_logit_softcapping": None, "sliding_window": MAX_POSITIONS}[field]
    (blunt / "config.json").write_text(json.dumps(config))

    ours, _ = reference_nll(model_of(kind), LONG_NOTE, max_length=MAX_POSITIONS, stride=MAX_POSITIONS)
    theirs, _ = reference_nll(blunt, LONG_NOTE, max_length=MAX_POSITIONS, stride=MAX_POSITIONS)

    assert abs(ours - theirs) > 0.1
