"""Faults of similar systems in reading text, each on a tokenizer or model that invites it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from schemas.tables import STATUS_NO_SCORED_TOKENS, STATUS_NO_TOKENS, STATUS_SCORED
from tests.models import GENERATION_LIMIT, SENTENCES, make_tokenizer
from tests.sessions import encoder_of, score_texts, scoring

ModelOf = Callable[[str], Path]


def test_bos_twice(tiny_llama: Path) -> None:
    """A tokenizer that adds BOS itself and a policy that asks for BOS make one BOS, not two."""
    encoder = encoder_of(tiny_llama, "bos")

    positions = encoder.encode([SENTENCES[0]])[0].positions.tolist()

    assert positions.count(encoder.tokenizer.token_to_id("<s>")) == 1
    assert positions[0] == encoder.tokenizer.token_to_id("<s>")


def test_no_bos_token(model_of: ModelOf) -> None:
    """A tokenizer that has only EOS is scored after EOS, and no token is lost."""
    encoder = encoder_of(model_of("qwen2"))

    encoded = encoder.encode([SENTENCES[0]])[0]

    assert encoded.positions[0] == encoder.tokenizer.token_to_id("<|endoftext|>")
    assert len(encoded.positions) == encoded.num_tokens + 1


def test_eos_for_bos(tmp_path: Path) -> None:
    """EOS stands in for BOS only where there is no BOS."""
    encoder = encoder_of(make_tokenizer(tmp_path, bos="<s>", eos="</s>"))

    assert encoder.prefix_id == encoder.tokenizer.token_to_id("<s>")


def test_silent_truncation(model_of: ModelOf) -> None:
    """A tokenizer limit and a generation default of 20 tokens cut nothing."""
    text = " ".join(SENTENCES[:2])
    num_tokens = encoder_of(model_of("gpt2")).encode([text])[0].num_tokens

    with scoring(model_of("gpt2")) as session:
        result = score_texts(session, [text])[0]

    assert num_tokens > 25 > GENERATION_LIMIT
    assert result.num_tokens == num_tokens


@pytest.mark.parametrize(
    "kind",
    ["llama", "gpt2", "gemma2"],
)
def test_special_token_strings_in_text(kind: str, model_of: ModelOf) -> None:
    """A note that spells special tokens holds their characters: none of the ids is special, all are counted."""
    encoder = encoder_of(model_of(kind))
    special = {index for index, token in encoder.tokenizer.get_added_tokens_decoder().items() if token.special}
    names = [token.content for token in encoder.tokenizer.get_added_tokens_decoder().values()]
    text = f"before {' '.join(names)} after {names[0]}"

    encoded = encoder.encode([text])[0]

    assert special
    assert special.isdisjoint(encoded.positions[1:].tolist())
    assert encoder.tokenizer.decode(encoded.positions[1:].tolist(), skip_special_tokens=False) == text
    assert encoded.num_bytes == len(text.encode())


@pytest.mark.parametrize("text", ["[1, 2, 3]", "007", "None", "1e5", "NA", "null", "true", '{"a": 1}', "nan"])
def test_text_that_looks_like_data(text: str, tiny_llama: Path) -> None:
    """A number, list or null in a note is its characters."""
    encoder = encoder_of(tiny_llama)

    encoded = encoder.encode([text])[0]

    assert encoder.tokenizer.decode(encoded.positions[1:].tolist()) == text
    assert encoded.num_bytes == len(text)


def test_no_token(tiny_llama: Path) -> None:
    """An empty note is skipped with a reason; a blank or a zero-width space is a token like any other."""
    with scoring(tiny_llama) as session:
        empty, blank, zero_width = score_texts(session, ["", " ", "\u200b"])

    assert (empty.status, empty.loss_nats, empty.num_tokens) == (STATUS_NO_TOKENS, None, 0)
    assert (blank.status, blank.num_tokens, blank.num_words, blank.num_bytes) == (STATUS_SCORED, 1, 0, 1)
    assert (zero_width.status, zero_width.num_bytes) == (STATUS_SCORED, 3)


def test_one_token_without_a_prefix(tiny_llama: Path) -> None:
    """Without a prefix a note of one token has nothing to score: skipped with a reason, in no count."""
    with scoring(tiny_llama, prefix="none") as session:
        empty, blank, one, two = score_texts(session, ["", " ", "a", "zq"])

    assert empty.status == STATUS_NO_TOKENS
    assert (blank.status, one.status) == (STATUS_NO_SCORED_TOKENS, STATUS_NO_SCORED_TOKENS)
    assert (one.loss_nats, one.num_tokens, one.num_words, one.num_bytes) == (None, 0, 0, 0)
    assert (two.status, two.num_tokens, two.num_bytes) == (STATUS_SCORED, 1, 1)
