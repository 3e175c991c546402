"""Terms of a user's lexicon in text: in any case of letters, at word borders, whatever white space is between words.

A text and a term are cut alike into atoms: a word, one ideograph or kana, a run of white space, or one other sign. An
occurrence of a term is its atoms one after the other, so it begins and ends at word borders. Terms make a tree of
atoms, which is walked from each atom of the text: the work hardly depends on how many terms there are.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from schemas.errors import UsageError
from schemas.seals import label, open_regular

NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
MAX_LEXICON_BYTES = 1 << 28
Atom = tuple[str, int, int]
"""Its text, white space and case folded; its first character; the one after its last."""

_IDEOGRAPHS = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
_ATOM = re.compile(rf"\s+|[{_IDEOGRAPHS}]|[^\W{_IDEOGRAPHS}]+|[^\w\s]")


@dataclass(slots=True)
class Node:
    """What may follow some first atoms of terms; ``ends`` where a term is complete."""

    next: dict[str, Node] = field(default_factory=dict)
    ends: bool = False


@dataclass(frozen=True, slots=True)
class Lexicon:
    """A file of terms; they are in memory only, never in an output.

    Attributes:
        name: Of its class of tokens.
        sha256: Of the file.
        terms: As a tree of atoms.
    """

    name: str
    sha256: str
    terms: Node = field(repr=False)

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Where the longest term from each word on stands, as character offsets."""
        atoms = [(_folded(found[0]), *found.span()) for found in _ATOM.finditer(text)]
        for first, (_, start, _) in enumerate(atoms):
            stop = self._longest(atoms, first)
            if stop is not None:
                yield start, stop

    def _longest(self, atoms: Sequence[Atom], first: int) -> int | None:
        """Where the longest term ends that begins with an atom."""
        node, stop = self.terms.next.get(atoms[first][0]), None
        while node is not None:
            if node.ends:
                stop = atoms[first][2]
            first += 1
            node = node.next.get(atoms[first][0]) if first < len(atoms) else None
        return stop


def read_lexicon(given: str) -> Lexicon:
    """Read ``FILE`` or ``NAME=FILE``: UTF-8, one term a line, blank lines left out.

    Raises:
        UsageError: the file cannot be read, or holds no term; no term is ever quoted.
    """
    name, sign, path = given.partition("=")
    is_named = bool(sign) and NAME.fullmatch(name) is not None
    file = Path(path if is_named else given)
    content = _content(file)
    try:
        terms = _tree(content.decode("utf-8-sig").split("\n"))
    except UnicodeDecodeError:
        raise UsageError(f"lexicon {label(file)}: not UTF-8; convert it") from None
    if not terms.next:
        raise UsageError(f"lexicon {label(file)}: holds no term; write one a line")
    return Lexicon(f"lexicon.{name}" if is_named else "lexicon", hashlib.sha256(content).hexdigest(), terms)


def _content(file: Path) -> bytes:
    try:
        with open_regular(file) as opened:
            content = opened.read(MAX_LEXICON_BYTES + 1)
    except OSError as error:
        raise UsageError(f"lexicon {label(file)}: {os.strerror(error.errno or 0)}; name a readable file") from None
    if len(content) > MAX_LEXICON_BYTES:
        raise UsageError(f"lexicon {label(file)}: over {MAX_LEXICON_BYTES} bytes; name a list of terms")
    return content


def _tree(terms: Iterable[str]) -> Node:
    root = Node()
    for term in terms:
        node = root
        for found in _ATOM.finditer(term.strip()):
            node = node.next.setdefault(_folded(found[0]), Node())
        node.ends = node is not root
    return root


def _folded(atom: str) -> str:
    return " " if atom.isspace() else atom.casefold()
