"""Classes of tokens: one for each token of any text, by characters, whatever the tokenizer does to them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers

from scoring.lexicons import read_lexicon
from scoring.token_classes import TokenClasses, section_headers
from scoring.tokens import Encoder, make_encoder
from scoring.units import read_units
from tests.models import make_tokenizer
from tests.sessions import encoder_of

LINES = ["Plan:", "\n", "\r\n", " ", "VITALS", "诊断："]
PIECES = [*LINES, "5", "12.5", "mg", "mg/dL", "°C", "心力衰竭", "asthma", "Heart failure", "é", "٣"]
ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
TEXTS = st.lists(st.sampled_from(PIECES) | ANY, max_size=20).map("".join)
KINDS = ["bytes", "bare", "pieces"]


def sentence_pieces() -> Encoder:
    """An encoder as Llama 2 has it: a space put before the text, and bytes for letters that it does not know."""
    letters = [f"<0x{byte:02X}>" for byte in range(256)]
    tokens = ["<unk>", "<s>", *letters, "\u2581", *"0123456789abcmgx", "mg", "\u2581mg"]
    model = models.BPE(
        vocab={token: number for number, token in enumerate(tokens)},
        merges=[("m", "g"), ("\u2581", "mg")],
        byte_fallback=True,
        unk_token="<unk>",
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    return make_encoder(tokenizer, policy="bos", bos_id=1, eos_id=None)


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> TokenClasses:
    """The package's units and one lexicon."""
    file = tmp_path_factory.mktemp("terms") / "terms.txt"
    file.write_text("asthma\nheart failure\n心力衰竭\n", encoding="utf-8")
    return TokenClasses(read_units(None), (read_lexicon(str(file)),))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Encoder]:
    """Encoders without classes: byte-level with and without a prefix, and of sentence pieces."""
    folder = make_tokenizer(tmp_path_factory.mktemp("bytes"))
    return {"bytes": encoder_of(folder), "bare": encoder_of(folder, "none"), "pieces": sentence_pieces()}


@given(text=TEXTS, kind=st.sampled_from(KINDS))
def test_each_token_has_the_first_class_it_shares_a_character_with(
    classes: TokenClasses, plain: dict[str, Encoder], text: str, kind: str
) -> None:
    """Token by token and character by character, the slow way gives the same classes, one for each token."""
    [encoded] = replace(plain[kind], classes=classes).encode([text])
    whole = plain[kind].tokenizer.encode(text, add_special_tokens=False)
    is_added = whole.tokens[:1] == ["\u2581"] and not text[0].isspace()
    spans: list[list[tuple[int, int]]] = [
        [(at, at + 1) for at, letter in enumerate(text) if letter.isdecimal()],
        list(classes.units.spans(text)),
        list(section_headers(text)),
        list(classes.lexicons[0].spans(text)),
    ]

    slow = [
        next((label for label, found in enumerate(spans) if any(a < stop and start < b for a, b in found)), len(spans))
        for start, stop in whole.offsets
    ]

    if is_added:
        slow[0] = len(spans)  # it claims the first character
    assert encoded.labels is not None
    assert encoded.labels.tolist() == slow
    assert encoded.labels.dtype == np.uint8


@given(texts=st.lists(TEXTS, max_size=5), kind=st.sampled_from(KINDS))
def test_classes_change_nothing_else_and_know_no_neighbour(
    classes: TokenClasses, plain: dict[str, Encoder], texts: list[str], kind: str
) -> None:
    """Ids, words and bytes are those without classes, and each record's classes those that it has alone."""
    encoder = replace(plain[kind], classes=classes)

    found, without = encoder.encode(texts), plain[kind].encode(texts)

    for text, one, other in zip(texts, found, without, strict=True):
        assert one.positions.tolist() == other.positions.tolist()
        assert (one.num_tokens, one.num_words, one.num_bytes) == (other.num_tokens, other.num_words, other.num_bytes)
        [alone] = encoder.encode([text])
        assert one.labels is not None
        assert alone.labels is not None
        assert one.labels.tolist() == alone.labels.tolist()


@given(text=st.text("0123456789 abcxmgé心😀\n.", max_size=30), kind=st.sampled_from(KINDS))
def test_numbers_are_the_tokens_that_hold_digits(
    classes: TokenClasses, plain: dict[str, Encoder], text: str, kind: str
) -> None:
    """By the tokens' own strings, beside letters of several bytes, leading spaces and a space that was put in front."""
    encoder = replace(plain[kind], classes=classes)

    [encoded] = encoder.encode([text])

    ids = encoded.positions[len(encoded.positions) - encoded.num_tokens :].tolist()
    tokens = map(encoder.tokenizer.id_to_token, ids)
    holds = [not token.startswith("<0x") and any(map(str.isdecimal, token)) for token in tokens]
    assert encoded.labels is not None
    assert (encoded.labels == 0).tolist() == holds


def test_a_space_put_in_front_is_no_character_of_the_text() -> None:
    """Without a prefix token that space is what is not scored, so all words and bytes of the text are counted."""
    encoder = replace(sentence_pieces(), prefix_id=None)

    [encoded] = encoder.encode(["5 mg"])

    assert encoder.tokenizer.id_to_token(int(encoded.positions[0])) == "\u2581"
    assert (encoded.num_words, encoded.num_bytes) == (2, 4)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Plan: rest\nFollow up:\n", ["Plan:", "Follow up:"]),
        ("  HISTORY OF PRESENT ILLNESS  \nno", ["HISTORY OF PRESENT ILLNESS"]),
        ("A\nOK\nOK.\nOk", ["OK"]),
        ("MEDICATIONS: none", ["MEDICATIONS:"]),
        ("at 12:30, see http://x: y", []),
        ("He rested. Then: pain", []),
        ("诊断：肺炎 \n诊断： 肺炎", ["诊断：", "诊断："]),
        ("x" * 61 + ":", []),
        ("one\rPlan:\rtwo", ["Plan:"]),
    ],
)
def test_headers_are_heads_of_lines_or_lines_of_capitals(text: str, expected: list[str]) -> None:
    """What stands before a colon at a line's beginning, or alone on a line in capitals; not times, links, sentences."""
    assert [text[start:stop] for start, stop in section_headers(text)] == expected


def test_the_order_of_classes_decides(classes: TokenClasses) -> None:
    """A number in a header is a number, its unit a unit, a term in a header the header's."""
    text = "Asthma day 2 mg: asthma"
    spans = [(0, 6), (7, 10), (11, 12), (13, 15), (15, 16), (17, 23), (23, 23)]

    labels = [classes.names[label] for label in classes.labels(text, spans)]

    assert labels == ["section_header"] * 2 + ["number", "unit", "section_header", "lexicon", "other"]


def test_no_token_has_no_class(classes: TokenClasses, tmp_path: Path) -> None:
    """An empty text has an empty list of classes."""
    assert classes.labels("", []).tolist() == []
