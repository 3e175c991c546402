"""Text to ids: the text and nothing but the text, behind at most one prefix token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import UsageError
from scoring.config import PrefixPolicy
from scoring.tokens import Encoded, Encoder
from tests.models import SENTENCES, make_tokenizer
from tests.sessions import encoder_of

BOTH: dict[str, Any] = {"bos": "<s>", "eos": "</s>"}
EOS_ONLY: dict[str, Any] = {"bos": None, "eos": "</s>"}
NEITHER: dict[str, Any] = {"bos": None, "eos": None}
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    """An encoder that puts nothing in front."""
    return encoder_of(make_tokenizer(tmp_path_factory.mktemp("bare"), **BOTH), "none")


@pytest.fixture(scope="module")
def prefixed(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    """An encoder that puts BOS in front, of a tokenizer that would do so itself."""
    return encoder_of(make_tokenizer(tmp_path_factory.mktemp("prefixed"), **BOTH, adds_bos=True))


def shown(encoded: Encoded) -> tuple[list[int], int, int, int]:
    """All of an encoded record, to be compared."""
    return encoded.positions.tolist(), encoded.num_tokens, encoded.num_words, encoded.num_bytes


@given(texts)
def test_text_is_read_as_it_is(prefixed: Encoder, text: str) -> None:
    """Any string comes back byte for byte from its tokens, and its words and bytes are those of the string."""
    encoded = prefixed.encode([text])[0]

    assert prefixed.tokenizer.decode(encoded.positions[1:].tolist(), skip_special_tokens=False) == text
    assert (encoded.num_words, encoded.num_bytes) == (len(text.split()), len(text.encode()))
    assert encoded.num_tokens == len(encoded.positions) - 1


@given(st.lists(texts, max_size=8), st.sampled_from(["bare", "prefixed"]))
def test_a_record_does_not_depend_on_its_batch(bare: Encoder, prefixed: Encoder, batch: list[str], which: str) -> None:
    """Each record of a batch, long or short, is encoded as it is alone: no padding, no truncation."""
    encoder = {"bare": bare, "prefixed": prefixed}[which]

    together = encoder.encode(batch)

    assert list(map(shown, together)) == [shown(encoder.encode([text])[0]) for text in batch]


@given(texts)
def test_without_a_prefix_the_first_token_is_in_no_count(bare: Encoder, text: str) -> None:
    """Words and bytes are those of the text after the first token's characters, which are not scored."""
    encoded = bare.encode([text])[0]

    whole = bare.tokenizer.encode(text, add_special_tokens=False)
    rest = text[whole.offsets[0][1] :] if text else ""
    assert encoded.positions.tolist() == whole.ids
    assert (encoded.num_words, encoded.num_bytes) == (len(rest.split()), len(rest.encode()))
    assert rest == "" or len(rest) < len(text)


def test_the_first_word_is_left_out_with_its_token(bare: Encoder) -> None:
    """Of "in clinic" the token "in" is not scored: one word and seven bytes are left."""
    encoded = bare.encode(["in clinic"])[0]

    assert (encoded.num_words, encoded.num_bytes) == (1, 7)


@pytest.mark.parametrize(
    ("tokenizer", "policy", "expected"),
    [
        (BOTH, "auto", "<s>"),
        (BOTH, "bos", "<s>"),
        (BOTH, "eos", "</s>"),
        (BOTH, "none", None),
        (EOS_ONLY, "auto", "</s>"),
        (EOS_ONLY, "eos", "</s>"),
        (NEITHER, "auto", None),
        (NEITHER, "none", None),
        ({**BOTH, "adds_bos": True}, "auto", "<s>"),
        ({**BOTH, "adds_bos": True}, "eos", "</s>"),
        ({**BOTH, "adds_bos": True}, "none", None),
    ],
)
def test_the_policy_chooses_the_prefix(
    tokenizer: dict[str, Any], policy: PrefixPolicy, expected: str | None, tmp_path: Path
) -> None:
    """Exactly the token of the policy stands in front, once, and the text's own tokens follow unchanged."""
    encoder = encoder_of(make_tokenizer(tmp_path, **tokenizer), policy)
    own = encoder.tokenizer.encode(SENTENCES[0], add_special_tokens=False).ids

    encoded = encoder.encode([SENTENCES[0]])[0]

    wanted = [] if expected is None else [encoder.tokenizer.token_to_id(expected)]
    assert encoded.positions.tolist() == wanted + own
    assert encoded.num_tokens == len(own)


def test_limits_of_the_tokenizer_itself_are_lifted(tmp_path: Path) -> None:
    """A tokenizer.json that truncates to 20 tokens and pads to 40 does neither here."""
    from tokenizers import Tokenizer

    folder = make_tokenizer(tmp_path, **BOTH)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    whole = [len(tokenizer.encode(text).ids) for text in (SENTENCES[0] * 5, "a")]
    tokenizer.enable_truncation(20)
    tokenizer.enable_padding(length=40)
    tokenizer.save(str(folder / "tokenizer.json"))

    long, short = encoder_of(folder).encode([SENTENCES[0] * 5, "a"])

    assert [long.num_tokens, short.num_tokens] == whole
    assert whole[0] > 40
    assert len(short.positions) == 2


@pytest.mark.parametrize(("tokenizer", "policy"), [(EOS_ONLY, "bos"), (NEITHER, "bos"), (NEITHER, "eos")])
def test_a_policy_without_its_token_is_refused(tokenizer: dict[str, Any], policy: PrefixPolicy, tmp_path: Path) -> None:
    """A missing BOS or EOS is an error with the cure, never another token in its place."""
    folder = make_tokenizer(tmp_path, **tokenizer)

    with pytest.raises(UsageError, match=f"no {policy.upper()} token; use --prefix auto or none"):
        encoder_of(folder, policy)
