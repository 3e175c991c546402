"""The tokenizer inside a GGUF file, with the pre-tokenizer rule that the file names.

transformers converts a GGUF's vocabulary and merges but drops ``tokenizer.ggml.pre``, the rule by which text is cut
before merging. With the wrong rule numbered lists alone move a perplexity by 5 %. The rules below are those of the
models' own tokenizers; an unknown rule is refused, because a guess would be a wrong number.
Format: GGUF v3, https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schemas.errors import UsageError
from schemas.seals import label

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CONTROL_TOKEN = 3
USER_DEFINED_TOKEN = 4

_CASED_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_AFTER_NUMBERS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3_PATTERN = _CASED_WORDS + r"\p{N}{1,3}" + _AFTER_NUMBERS
QWEN2_PATTERN = _CASED_WORDS + r"\p{N}" + _AFTER_NUMBERS


@dataclass(frozen=True, slots=True)
class PreTokenizerRule:
    """How text is cut before byte-pair merges.

    Attributes:
        pattern: Regular expression of one piece; none for GPT-2's own.
        single_digits: Every digit is a piece, before all else.
        ignore_merges: A piece that is a vocabulary entry is one token, whatever the merges say.
        nfc: Text is put into Unicode normal form C first.
    """

    pattern: str | None = None
    single_digits: bool = False
    ignore_merges: bool = False
    nfc: bool = False


RULES = {
    "gpt-2": PreTokenizerRule(),
    "llama-bpe": PreTokenizerRule(pattern=LLAMA3_PATTERN, ignore_merges=True),
    "qwen2": PreTokenizerRule(pattern=QWEN2_PATTERN, nfc=True),
    "smollm": PreTokenizerRule(single_digits=True),
    "starcoder": PreTokenizerRule(single_digits=True),
}


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The tokenizer section of a GGUF file."""

    rule: str
    tokens: list[str]
    token_types: list[int]
    merges: list[tuple[str, str]]
    bos_id: int | None
    eos_id: int | None


def read_vocabulary(path: Path) -> Vocabulary:
    """Read the tokenizer section.

    Raises:
        UsageError: the file is no GGUF, or its tokenizer is not byte-level BPE with a known rule; with the cure.
    """
    field = _fields(path)
    cure = "give the model's own tokenizer with --tokenizer FOLDER"
    try:
        model, vocabulary = field("tokenizer.ggml.model"), _parsed(field)
    except (ValueError, TypeError, AttributeError, IndexError):  # no UTF-8, or a field of another type
        raise UsageError(f"{label(path)}: the tokenizer section is broken; copy the file again, or {cure}") from None
    if model != "gpt2":
        raise UsageError(f"{label(path)}: tokenizer type {model or 'none'} has no known exact form here; {cure}")
    if vocabulary.rule not in RULES:
        found = vocabulary.rule or "none"
        raise UsageError(f"{label(path)}: pre-tokenizer rule {found} is not among {', '.join(RULES)}; {cure}")
    if not _is_sound(vocabulary):
        raise UsageError(f"{label(path)}: the vocabulary or its merges are broken; copy the file again, or {cure}")
    return vocabulary


def build_tokenizer(vocabulary: Vocabulary) -> Tokenizer:
    """A fast tokenizer that cuts and merges as the model was trained."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    rule = RULES[vocabulary.rule]
    ids = {token: index for index, token in enumerate(vocabulary.tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=vocabulary.merges, ignore_merges=rule.ignore_merges))
    steps: list[Any] = []
    if rule.single_digits:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    if rule.pattern:
        steps.append(pre_tokenizers.Split(Regex(rule.pattern), behavior="isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=rule.pattern is None))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    if rule.nfc:
        tokenizer.normalizer = normalizers.NFC()
    for kind, add in ((CONTROL_TOKEN, tokenizer.add_special_tokens), (USER_DEFINED_TOKEN, tokenizer.add_tokens)):
        names = [token for token, is_a in zip(vocabulary.tokens, vocabulary.token_types, strict=True) if is_a == kind]
        add([AddedToken(name, normalized=False, special=kind == CONTROL_TOKEN) for name in names])
    return tokenizer


def _parsed(field: Callable[[str], Any]) -> Vocabulary:
    tokens = list(field("tokenizer.ggml.tokens") or [])
    return Vocabulary(
        rule=str(field("tokenizer.ggml.pre") or ""),
        tokens=tokens,
        token_types=list(field("tokenizer.ggml.token_type") or [1] * len(tokens)),
        merges=[tuple(merge.split(" ")) for merge in field("tokenizer.ggml.merges") or []],
        bos_id=field("tokenizer.ggml.bos_token_id"),
        eos_id=field("tokenizer.ggml.eos_token_id"),
    )


def _is_sound(vocabulary: Vocabulary) -> bool:
    """Tokens are distinct and typed, merges join tokens to tokens, and the prefix tokens exist."""
    tokens, known = vocabulary.tokens, set(vocabulary.tokens)
    prefixes = [index for index in (vocabulary.bos_id, vocabulary.eos_id) if index is not None]
    return (
        len(known) == len(tokens) == len(vocabulary.token_types)
        and bool(vocabulary.merges)
        and all(len(merge) == 2 and known.issuperset((*merge, "".join(merge))) for merge in vocabulary.merges)
        and all(isinstance(index, int) and 0 <= index < len(tokens) for index in prefixes)
    )


def _fields(path: Path) -> Callable[[str], Any]:
    try:
        from gguf import GGUFReader, GGUFValueType
    except ImportError:
        raise UsageError('GGUF files need the gguf extra; install it with pip install "exactppl[gguf]"') from None
    try:
        fields = GGUFReader(path).fields
    except (ValueError, IndexError, KeyError, OSError, OverflowError, MemoryError):
        raise UsageError(f"{label(path)}: not a readable GGUF file; copy it again") from None

    def value(name: str) -> Any:
        field = fields.get(name)
        if field is None:
            return None
        # ``field.contents()`` decodes element by element through numpy; direct bytes are four times as fast.
        if field.types[0] == GGUFValueType.ARRAY and field.types[-1] == GGUFValueType.STRING:
            return [field.parts[index].tobytes().decode() for index in field.data]
        return field.contents()

    return value
