"""The class of each token of a text: number, unit, section header, a term of a lexicon, or other.

Each class is a set of spans of characters, and a token, by the offsets that the tokenizer tells, is of the first class
in the order ``number``, ``unit``, ``section_header``, lexicons as they were given, that it shares a character with.

A *number* is a run of digits. A *unit* is one of ``scoring.units``. A *section header* is the head of a line up to a
colon, at most 60 characters that begin with a letter and hold no sign that ends a sentence, with white space or the
line's end behind the colon, unless it is full-width; or a whole line of at most 60 characters, two or more of them
capital letters and none a small one, that ends in no sign of punctuation. Terms are those of ``scoring.lexicons``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scoring.lexicons import Lexicon
from scoring.units import Units

RULES = 1
"""Version of the rules above; another one makes other runs."""
OTHER = "other"

_NUMBER = re.compile(r"\d+")
_HEAD = re.compile(r"(?<![^\r\n])[^\S\r\n]*([^\W\d_][^\r\n:：.!?;]{0,59}(?::(?!\S)|：))")
_LINE = re.compile(r"(?<![^\r\n])[^\S\r\n]*(\S[^\r\n]{0,58}[^\s.!?,;:])[^\S\r\n]*(?![^\r\n])")
_MIN_CAPITALS = 2


@dataclass(frozen=True, slots=True)
class TokenClasses:
    """What tells the classes of tokens.

    Attributes:
        units: Of measurement.
        lexicons: In their order.
    """

    units: Units
    lexicons: tuple[Lexicon, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All classes in their order; a label is a place in it."""
        return ("number", "unit", "section_header", *(lexicon.name for lexicon in self.lexicons), OTHER)

    def labels(self, text: str, offsets: Sequence[tuple[int, int]]) -> NDArray[np.uint8]:
        """The class of each token.

        Args:
            text: Of the record.
            offsets: First character of each token, and the one after its last; tokens may share characters.

        Returns:
            uint8 [N], places in ``names``; a token of no character is ``other``.
        """
        finders = (_numbers, self.units.spans, section_headers, *(lexicon.spans for lexicon in self.lexicons))
        classes_C = np.full(len(text) + 1, len(finders), dtype=np.uint8)
        for label in reversed(range(len(finders))):
            for start, stop in finders[label](text):
                classes_C[start:stop] = label
        return _least_of_each(classes_C, np.array(offsets, dtype=np.int64).reshape(-1, 2))


def section_headers(text: str) -> Iterator[tuple[int, int]]:
    """Where section headers stand, as character offsets."""
    yield from (found.span(1) for found in _HEAD.finditer(text))
    yield from (found.span(1) for found in _LINE.finditer(text) if _is_all_capitals(found[1]))


def _numbers(text: str) -> Iterable[tuple[int, int]]:
    return (found.span() for found in _NUMBER.finditer(text))


def _is_all_capitals(line: str) -> bool:
    return sum(map(str.isupper, line)) >= _MIN_CAPITALS and not any(map(str.islower, line))


def _least_of_each(classes_C: NDArray[np.uint8], offsets_N2: NDArray[np.int64]) -> NDArray[np.uint8]:
    """The least class among the characters of each span; the last class, which stands behind the text, for none."""
    if not len(offsets_N2):
        return np.empty(0, dtype=np.uint8)
    # At even places the least from a span's start to its stop, or the start's own where the span is empty.
    labels_N = np.minimum.reduceat(classes_C, offsets_N2.ravel())[::2].copy()
    labels_N[offsets_N2[:, 0] >= offsets_N2[:, 1]] = classes_C[-1]
    return labels_N
