"""Lexicons: each occurrence of a term at word borders, and no term in any message."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import UsageError
from scoring.lexicons import Lexicon, read_lexicon

WORDS = st.sampled_from(["heart", "failure", "art", "b12", "T", "wave", "of", "straße", "-"])
TERMS = st.lists(st.lists(WORDS, min_size=1, max_size=3).map(" ".join), min_size=1, max_size=6)


def lexicon_of(folder: Path, *terms: str, end: str = "\n") -> Lexicon:
    """A lexicon of terms."""
    file = folder / "terms.txt"
    file.write_bytes(end.join(terms).encode())
    return read_lexicon(str(file))


def found(lexicon: Lexicon, text: str) -> list[str]:
    """What a lexicon finds in a text."""
    return [text[start:stop] for start, stop in lexicon.spans(text)]


@given(terms=TERMS, words=st.lists(WORDS | st.sampled_from(["arts", "HEART", "Failure,"]), max_size=12))
def test_characters_of_terms_are_those_that_expressions_find(terms: list[str], words: list[str]) -> None:
    """A regular expression for each term, tried at every place, marks the same characters."""
    text = " ".join(words)
    with tempfile.TemporaryDirectory() as name:
        lexicon = lexicon_of(Path(name), *terms)
    marked: set[int] = set()
    for term in terms:
        for at in range(len(text)):
            match = re.compile(re.escape(term), re.IGNORECASE).match(text, at)
            inside = match and (
                (at and text[at - 1].isalnum() and text[at].isalnum())
                or (text[match.end() : match.end() + 1].isalnum() and text[match.end() - 1].isalnum())
            )
            marked.update(range(at, match.end()) if match and not inside else ())

    spans = lexicon.spans(text)

    assert {at for start, stop in spans for at in range(start, stop)} == marked


def test_case_and_white_space_do_not_matter(tmp_path: Path) -> None:
    """Terms are found in capitals and over the end of a line; the longest from each word on is what is found."""
    lexicon = lexicon_of(tmp_path, " Heart  failure ", "heart", "", "strasse", end="\r\n")

    assert found(lexicon, "HEART\n  FAILURE; heartfelt, Heart fail, STRASSE Straße") == [
        "HEART\n  FAILURE",
        "Heart",
        "STRASSE",
        "Straße",
    ]


def test_ideographs_need_no_spaces(tmp_path: Path) -> None:
    """Each ideograph is a word of its own, as there are no borders between them."""
    assert found(lexicon_of(tmp_path, "心力衰竭"), "患者有心力衰竭史") == ["心力衰竭"]


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"secret\xff", "not UTF-8"), (b" \n\r\n", "holds no term"), (None, "No such file")],
)
def test_what_is_no_lexicon_is_refused_without_a_word_of_it(
    content: bytes | None, message: str, tmp_path: Path
) -> None:
    """One line names the file and the cure, and never a term."""
    file = tmp_path / "terms.txt"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(UsageError, match=message) as caught:
        read_lexicon(f"drugs={file}")

    assert "secret" not in str(caught.value)


def test_names_come_before_the_file(tmp_path: Path) -> None:
    """``NAME=FILE`` names the class; other signs before ``=`` are part of the file's name."""
    (tmp_path / "A=b.txt").write_text("\ufeffaspirin")

    lexicons = [read_lexicon(f"drugs={tmp_path}/A=b.txt"), read_lexicon(f"{tmp_path}/A=b.txt")]

    assert [lexicon.name for lexicon in lexicons] == ["lexicon.drugs", "lexicon"]
    assert found(lexicons[0], "Aspirin") == ["Aspirin"]
    assert "aspirin" not in repr(lexicons[0])
