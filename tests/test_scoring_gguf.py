"""GGUF: the weights of the file, and the tokenizer that the model was trained with."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import PipelineError, UsageError
from scoring.cli import cli
from scoring.gguf import RULES, Vocabulary, build_tokenizer, read_vocabulary
from tests.commands import run_command
from tests.models import SENTENCES, make_tokenizer
from tests.sessions import score_texts, scoring

pytest.importorskip("gguf", reason="GGUF files need the gguf extra")

from tests.gguf_files import tokenizer_fields, write_gguf, write_pair

NOTES = [*SENTENCES, "1. aspirin 81 mg\n2. metoprolol 25 mg\n10. see 2024-01-31", "", "x" * 300]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A GGUF file in F32 and the folder with the same weights; read only."""
    root = tmp_path_factory.mktemp("pair")
    write_pair(root / "tiny.gguf", root / "folder")
    return root / "tiny.gguf", root / "folder"


@pytest.fixture(scope="module")
def fields(pair: tuple[Path, Path]) -> dict[str, Any]:
    """A sound tokenizer section."""
    return tokenizer_fields(pair[1], rule="smollm")


def bytes_vocabulary(rule: str, *merged: str) -> Vocabulary:
    """All bytes as tokens, and a chain of merges for each of some words."""
    from tokenizers.pre_tokenizers import ByteLevel

    tokens, merges = sorted(ByteLevel.alphabet()), []
    for word in merged:
        for end in range(1, len(word)):
            merges.append((word[:end], word[end]))
            tokens.append(word[: end + 1])
    return Vocabulary(rule, tokens, [1] * len(tokens), merges, None, None)


def pieces(rule: str, text: str) -> list[str]:
    """How a rule cuts a text, in readable characters."""
    tokenizer = build_tokenizer(bytes_vocabulary(rule))
    normal = tokenizer.normalizer.normalize_str(text) if tokenizer.normalizer else text
    cut = tokenizer.pre_tokenizer.pre_tokenize_str(normal)
    return [piece.replace("Ġ", " ").replace("Ċ", "\n").replace("č", "\r") for piece, _ in cut]


@pytest.mark.parametrize("quantization", ["F32", "F16", "Q8_0"])
def test_losses_are_those_of_the_same_weights(quantization: str, tmp_path: Path) -> None:
    """A GGUF scores as the folder with the numbers that it holds, quantised or not, with the folder's tokenizer."""
    write_pair(tmp_path / "tiny.gguf", tmp_path / "folder", quantization=quantization)
    with scoring(tmp_path / "folder") as session:
        expected = score_texts(session, NOTES)

    with scoring(tmp_path / "tiny.gguf", tokenizer=tmp_path / "folder") as session:
        found = score_texts(session, NOTES)
        architecture = session.fingerprint["model"]

    assert found == expected
    assert architecture["format"] == "gguf"
    assert architecture["files_sha256"].keys() == {"tiny.gguf"}


def test_the_tokenizer_inside_cuts_digits_as_the_rule_says(pair: tuple[Path, Path]) -> None:
    """With its own smollm tokenizer a file scores as the folder whose tokenizer.json splits digits by hand."""
    from tokenizers import Tokenizer, pre_tokenizers

    path, folder = pair
    by_hand = Tokenizer.from_file(str(folder / "tokenizer.json"))
    by_hand.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    by_hand.encode_special_tokens = True

    with scoring(path) as session:
        encoded = session.encoder.encode(NOTES)
        prefix = session.encoder.prefix_id

    expected = [by_hand.encode(text, add_special_tokens=False).ids for text in NOTES]
    assert [item.positions[1:].tolist() for item in encoded] == expected
    assert prefix == by_hand.token_to_id("<s>")


def test_the_rule_matters_on_numbered_lists(fields: dict[str, Any], tmp_path: Path) -> None:
    """Two rules over one vocabulary cut a numbered list otherwise, so a dropped rule would show."""
    text = "take 500 mg\n1. 120/80\n2. 500 mg"
    ids = {}
    for rule in ("gpt-2", "smollm"):
        path = write_gguf(tmp_path / f"{rule}.gguf", {**fields, "pre": rule})
        ids[rule] = build_tokenizer(read_vocabulary(path)).encode(text).tokens

    assert "500" in ids["gpt-2"]
    assert "500" not in ids["smollm"]
    assert "".join(ids["gpt-2"]) == "".join(ids["smollm"])


@pytest.mark.parametrize(
    ("rule", "text", "expected"),
    [
        ("smollm", "10. take 25 mg", ["1", "0", ".", " take", " ", "2", "5", " mg"]),
        ("starcoder", "a1b22", ["a", "1", "b", "2", "2"]),
        ("gpt-2", "10. take 25 mg", ["10", ".", " take", " 25", " mg"]),
        ("gpt-2", "I'll  go\n\nnow", ["I", "'ll", " ", " go", "\n", "\n", "now"]),
        ("llama-bpe", "1234567 mg", ["123", "456", "7", " mg"]),
        ("llama-bpe", "I'LL go", ["I", "'LL", " go"]),
        ("llama-bpe", "a  two", ["a", " ", " two"]),
        ("llama-bpe", "x\n\n y", ["x", "\n\n", " y"]),
        ("llama-bpe", "end.\r\nnext", ["end", ".\r\n", "next"]),
        ("llama-bpe", "(ok) 5", ["(ok", ")", " ", "5"]),
        ("llama-bpe", "120/80", ["120", "/", "80"]),
        ("qwen2", "1234 mg", ["1", "2", "3", "4", " mg"]),
        ("qwen2", "don't", ["don", "'t"]),
        ("qwen2", "a 12\n", ["a", " ", "1", "2", "\n"]),
    ],
)
def test_a_rule_cuts_text_as_its_models_do(rule: str, text: str, expected: list[str]) -> None:
    """Pieces that were worked out by hand from the models' published patterns."""
    assert pieces(rule, text) == expected


def test_qwen2_puts_text_into_normal_form_c() -> None:
    """An e and a combining acute are one letter for Qwen2, and two for Llama."""
    composed = build_tokenizer(bytes_vocabulary("qwen2")).encode("\u00e9").ids

    assert build_tokenizer(bytes_vocabulary("qwen2")).encode("e\u0301").ids == composed
    assert build_tokenizer(bytes_vocabulary("llama-bpe")).encode("e\u0301").ids != composed


def test_llama_takes_whole_pieces_before_merges() -> None:
    """A piece that is a vocabulary entry is one token under llama-bpe, though no merge leads to it."""
    sound = bytes_vocabulary("llama-bpe", "ab")
    vocabulary = Vocabulary(sound.rule, [*sound.tokens, "Ġmg"], [1] * (len(sound.tokens) + 1), sound.merges, None, None)

    assert build_tokenizer(vocabulary).encode("ab mg").tokens == ["ab", "Ġmg"]


@pytest.mark.parametrize("rule", sorted(RULES))
def test_every_rule_keeps_the_text(rule: str) -> None:
    """Whatever the rule, tokens decode to the text, and special tokens in it are not special."""
    tokenizer = build_tokenizer(bytes_vocabulary(rule, "in", "mg"))
    text = " ".join(SENTENCES) + "\r\n\t 1. 2. <|endoftext|> "

    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"pre": "never-heard-of"}, "pre-tokenizer rule never-heard-of is not among gpt-2"),
        ({"pre": "default"}, "pre-tokenizer rule default is not among"),
        ({"pre": None}, "pre-tokenizer rule none is not among"),
        ({"model": "llama"}, "tokenizer type llama has no known exact form here"),
        ({"model": None}, "tokenizer type none has no known exact form here"),
        ({"token_merges": None}, "the vocabulary or its merges are broken"),
        ({"token_merges": ["i n", "no such"]}, "the vocabulary or its merges are broken"),
        ({"token_merges": ["i n c"]}, "the vocabulary or its merges are broken"),
        ({"token_types": [1, 1]}, "the vocabulary or its merges are broken"),
        ({"token_list": ["a", "a"]}, "the vocabulary or its merges are broken"),
        ({"bos_token_id": 100_000}, "the vocabulary or its merges are broken"),
    ],
)
def test_a_tokenizer_without_an_exact_form_is_refused(
    change: dict[str, Any], found: str, fields: dict[str, Any], tmp_path: Path
) -> None:
    """A guess would be a wrong number: the message says what was found, and to give --tokenizer."""
    wanted = {name: value for name, value in {**fields, **change}.items() if value is not None}
    path = write_gguf(tmp_path / "tiny.gguf", wanted)

    with pytest.raises(UsageError) as caught:
        read_vocabulary(path)

    assert f"/tiny.gguf: {found}" in str(caught.value)
    assert "--tokenizer FOLDER" in str(caught.value)


def test_the_refusal_names_a_cure_that_works(tmp_path: Path) -> None:
    """A file of an unknown rule is refused alone, and scored with --tokenizer, whose digests are in the fingerprint."""
    path, folder = tmp_path / "tiny.gguf", tmp_path / "folder"
    write_pair(path, folder, rule="never-heard-of")
    with pytest.raises(UsageError, match="--tokenizer FOLDER"), scoring(path):
        pass
    other = make_tokenizer(tmp_path / "tokenizer", bos=None, eos="</s>")

    with scoring(path, tokenizer=folder) as own, scoring(path, tokenizer=other) as foreign:
        scored = score_texts(own, NOTES)
        digests = own.fingerprint["tokenizer"]["files_sha256"], foreign.fingerprint["tokenizer"]["files_sha256"]

    assert [result.status for result in scored].count("scored") == len(NOTES) - 1
    assert digests[0].keys() == digests[1].keys() == {"tokenizer.json", "tokenizer_config.json"}
    assert digests[0] != digests[1]
    assert own.run_id != foreign.run_id


def test_damage_is_one_error_line(fields: dict[str, Any], tmp_path: Path) -> None:
    """A file cut anywhere, or with a flipped bit in its header or tokenizer, is read or refused; nothing else."""
    sound = write_gguf(tmp_path / "sound.gguf", fields).read_bytes()
    draw, path, outcomes = random.Random(11), tmp_path / "broken.gguf", set()
    for attempt in range(120):
        content = bytearray(sound)
        if attempt % 3:
            content[draw.randrange(len(sound))] ^= 1 << draw.randrange(8)
        else:
            del content[draw.randrange(len(sound) - 8) :]
        path.write_bytes(content)
        try:
            build_tokenizer(read_vocabulary(path))
        except PipelineError as error:
            outcomes.add(str(error).split(":")[1].split(";")[0].strip())

    assert "not a readable GGUF file" in outcomes
    assert "the vocabulary or its merges are broken" in outcomes


@pytest.mark.parametrize("content", [b"", b"GGUF", b"PK\x03\x04" * 50, b"GGUF\x03\x00\x00\x00" + b"\xff" * 64])
def test_garbage_ends_the_command_with_2(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is no GGUF ends in one error line and exit code 2."""
    (tmp_path / "bad.gguf").write_bytes(content)

    outcome = run_command(cli, ["selftest", "--model", tmp_path / "bad.gguf", "--device", "cpu"], capsys)

    assert outcome.code == 2
    assert outcome.err.splitlines()[-1].startswith("error: ")
    assert "bad.gguf: not a readable GGUF file; copy it again" in outcome.err
    assert outcome.err.count("error:") == 1
    assert outcome.out == ""


def test_truncated_weights_end_the_command_with_2(
    pair: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A copy that stopped in the middle of the weights is one error line, also with --tokenizer."""
    path, folder = pair
    short = tmp_path / "short.gguf"
    short.write_bytes(path.read_bytes()[:-1000])

    outcome = run_command(cli, ["selftest", "--model", short, "--tokenizer", folder, "--device", "cpu"], capsys)

    assert outcome.code == 2
    assert "short.gguf: transformers could not load it (" in outcome.err
    assert outcome.err.count("error:") == 1
