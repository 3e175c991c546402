"""Text to token ids, as text: no special token is ever read out of a note, none is added but the one prefix.

The prefix gives the first token something to be predicted from. It is never scored, and the rule that chose it is in
the fingerprint. Without a prefix the first token cannot be scored; its words and bytes are then left out of the
denominators too, so that numerator and denominator cover the same text.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from schemas.errors import UsageError

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

    from scoring.config import PrefixPolicy
    from scoring.token_classes import TokenClasses

ENCODE_BATCH = 64
SPACE_TOKENS = ("\u2581", "\u0120")
"""A lone space, as SentencePiece and as byte-level BPE write it."""
Offsets = tuple[int, int]
"""First character of a token, and the one after its last."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A record ready to be scored.

    Attributes:
        positions: int64 ids [N] of the prefix, if any, the context, if any, and the tokens.
        num_tokens: Tokens of the text, the prefix not counted.
        num_words: White-space separated words of the scored text.
        num_bytes: UTF-8 bytes of the scored text.
        is_sampled: In the sample of the precision check.
        labels: uint8 [num_tokens], the class of each token; none where losses are not split.
        num_context: Ids of the context, which are never scored; see ``scoring.context``.
    """

    positions: NDArray[np.int64]
    num_tokens: int
    num_words: int
    num_bytes: int
    is_sampled: bool = False
    labels: NDArray[np.uint8] | None = None
    num_context: int = 0

    @property
    def num_own(self) -> int:
        """Positions without the context: prefix and tokens."""
        return len(self.positions) - self.num_context


@dataclass(frozen=True, slots=True)
class Encoder:
    """A tokenizer with its prefix token, and what tells the classes of tokens, if that is asked for."""

    tokenizer: Tokenizer
    prefix_id: int | None
    classes: TokenClasses | None = None

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """Encode records; each result depends on its own text alone."""
        starts = range(0, len(texts), ENCODE_BATCH)
        return [record for start in starts for record in self._encode_batch(list(texts[start : start + ENCODE_BATCH]))]

    def _encode_batch(self, texts: list[str]) -> list[Encoded]:
        if self.prefix_id is not None and self.classes is None:
            batch = self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)  # tells no offsets
            return [self._with_prefix(text, item.ids) for text, item in zip(texts, batch, strict=True)]
        batch = self.tokenizer.encode_batch(texts, add_special_tokens=False)
        spaces = {self.tokenizer.token_to_id(token) for token in SPACE_TOKENS}
        return [
            self._with_offsets(text, item.ids, _without_added_spaces(text, item, spaces))
            for text, item in zip(texts, batch, strict=True)
        ]

    def _with_offsets(self, text: str, ids: list[int], offsets: list[Offsets]) -> Encoded:
        encoded = _without_prefix(text, ids, offsets) if self.prefix_id is None else self._with_prefix(text, ids)
        return encoded if self.classes is None else replace(encoded, labels=self.classes.labels(text, offsets))

    def _with_prefix(self, text: str, ids: list[int]) -> Encoded:
        positions = np.array([self.prefix_id, *ids], dtype=np.int64)
        return Encoded(positions, len(ids), len(text.split()), len(text.encode()))


def make_encoder(tokenizer: Tokenizer, *, policy: PrefixPolicy, bos_id: int | None, eos_id: int | None) -> Encoder:
    """Switch off all that is not text, and choose the prefix.

    Args:
        tokenizer: Changed in place: no truncation, no padding, special tokens in text are text.
        policy: ``auto`` takes BOS, else EOS, else none.
        bos_id: The tokenizer's own beginning-of-sequence token.
        eos_id: The tokenizer's own end-of-sequence token.

    Raises:
        UsageError: the policy asks for a token that the tokenizer lacks.
    """
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    if policy == "auto":
        return Encoder(tokenizer, bos_id if bos_id is not None else eos_id)
    prefix_id = {"bos": bos_id, "eos": eos_id, "none": None}[policy]
    if prefix_id is None and policy != "none":
        raise UsageError(f"prefix: the tokenizer has no {policy.upper()} token; use --prefix auto or none")
    return Encoder(tokenizer, prefix_id)


def _without_added_spaces(text: str, item: Encoding, spaces: Container[int | None]) -> list[Offsets]:
    """Offsets in which a space that the tokenizer puts before a text holds no character; it claims the first one's."""
    return [
        (start, start) if token in spaces and not text[start:stop].isspace() else (start, stop)
        for token, (start, stop) in zip(item.ids, item.offsets, strict=True)
    ]


def _without_prefix(text: str, ids: list[int], offsets: list[Offsets]) -> Encoded:
    scored = text[offsets[0][1] :] if offsets else ""
    return Encoded(np.array(ids, dtype=np.int64), len(ids), len(scored.split()), len(scored.encode()))
