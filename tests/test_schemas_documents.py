"""A sealed document is read exactly as it was written, or refused with one line that quotes nothing of it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.canonical import canonical_json, parse_json
from schemas.documents import Document, document_bytes, parse_document, read_document, write_document
from schemas.errors import IntegrityError
from schemas.seals import read_verified

SECRET = "synthetic note: chest pain"


class Sample(Document):
    """A document with every kind of JSON value."""

    kind = "exactppl.sample"

    name: str
    num_things: int
    share: float
    flags: dict[str, bool]
    parts: list[str | None]


class Holder(Document):
    """A document whose body is any JSON value."""

    kind = "exactppl.holder"

    value: Any


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SAMPLES = st.builds(
    Sample,
    name=TEXT,
    num_things=st.integers(-(2**70), 2**70),
    share=st.floats(allow_nan=False, allow_infinity=False),
    flags=st.dictionaries(TEXT, st.booleans(), max_size=3),
    parts=st.lists(st.none() | TEXT, max_size=3),
)
SAMPLE = Sample(name="科室 é", num_things=12, share=0.1, flags={"a": True}, parts=["x", None])


def sealed(body: Any, *, kind: Any = "exactppl.sample", version: Any = 1) -> bytes:
    """A document whose digest is right, made without our writer."""
    digest = hashlib.sha256(canonical_json(body)).hexdigest()
    return canonical_json({"body": body, "kind": kind, "schema_version": version, "sha256": digest})


def refusal(content: bytes, model: type[Document] = Sample) -> str:
    """The one-line message with which a document is refused."""
    with pytest.raises(IntegrityError) as caught:
        parse_document(content, model, "run/file.json")
    message = str(caught.value)
    assert caught.value.exit_code == 65
    assert message.startswith("run/file.json: ")
    assert len(message) < 400
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return message


# --- laws


@given(document=SAMPLES)
def test_a_document_round_trips(document: Sample) -> None:
    """Reading what was written gives an equal value, whose bytes are equal again."""
    content = document_bytes(document)

    again = parse_document(content, Sample, "x")

    assert again == document
    assert document_bytes(again) == content


@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | TEXT, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner)
    )
)
def test_canonical_bytes_are_a_function_of_the_value(value: Any) -> None:
    """Key order and white space of a source do not survive; the bytes are plain JSON with a newline at the end."""
    content = canonical_json(value)

    shuffled = json.loads(json.dumps(value, sort_keys=False))

    assert parse_json(content, "x") == value
    assert canonical_json(shuffled) == content
    assert content.endswith(b"\n")


def test_any_changed_byte_is_refused() -> None:
    """Every byte of a document, changed to every other value, is found."""
    content = document_bytes(SAMPLE)

    for place in range(len(content)):
        for value in range(256):
            damaged = content[:place] + bytes([value]) + content[place + 1 :]
            if damaged != content:
                with pytest.raises(IntegrityError):
                    parse_document(damaged, Sample, "x")


def test_any_cut_dropped_or_repeated_byte_is_refused() -> None:
    """A document cut anywhere, or with one byte missing or doubled, is found."""
    content = document_bytes(SAMPLE)

    for place in range(len(content)):
        for damaged in (
            content[:place],
            content[:place] + content[place + 1 :],
            content[: place + 1] + content[place:],
        ):
            with pytest.raises(IntegrityError):
                parse_document(damaged, Sample, "x")


@given(content=st.binary(max_size=80))
def test_noise_is_refused(content: bytes) -> None:
    """Random bytes are an error line, never a crash."""
    assert refusal(content)


# --- each way of being wrong


def test_a_newer_schema_is_refused() -> None:
    """A file of another schema version is named as such, so that the cure is another release."""
    message = refusal(sealed(SAMPLE.model_dump(), version=2))

    assert "schema version differs, this program reads 1" in message


@pytest.mark.parametrize("version", [1.0, True, "1", None, [1], 0, -1, 10**400])
def test_a_version_is_the_integer_one(version: Any) -> None:
    """Nothing that merely equals 1 in some language passes for schema version 1."""
    assert refusal(sealed(SAMPLE.model_dump(), version=version))


@pytest.mark.parametrize("kind", ["exactppl.other", "", None, 1, ["exactppl.sample"], {"a": 1}])
def test_another_kind_is_refused(kind: Any) -> None:
    """A valid document of another kind is not read as this one, and its kind is not echoed."""
    message = refusal(sealed(SAMPLE.model_dump(), kind=kind))

    assert "another kind of document, exactppl.sample was expected" in message


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_numbers_that_are_not_finite_are_refused(literal: str) -> None:
    """NaN, infinities, and decimal numbers beyond FP64, which parsers turn into infinities."""
    content = document_bytes(SAMPLE).replace(b"0.1", literal.encode())

    assert literal.encode() in content
    assert "not valid JSON" in refusal(content)


def test_a_non_finite_number_cannot_be_written() -> None:
    """The writer refuses what the reader would."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"share": float("nan")})


@pytest.mark.parametrize("place", ["envelope", "body", "nested"])
def test_repeated_keys_are_refused(place: str) -> None:
    """Two values under one key, of which parsers silently keep the last."""
    content = document_bytes(SAMPLE)
    repeated = {
        "envelope": content.replace(b'"kind"', b'"kind": "exactppl.sample",\n  "kind"', 1),
        "body": content.replace(b'"share"', b'"share": 0.1,\n    "share"', 1),
        "nested": content.replace(b'"a": true', b'"a": true,\n      "a": true', 1),
    }[place]

    assert repeated != content
    assert "not valid JSON" in refusal(repeated)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"1",
        b'"text"',
        b'{"body": {}, "kind": "exactppl.sample", "schema_version": 1}',
        b'{"body": {}, "kind": "exactppl.sample", "schema_version": 1, "sha256": "", "more": 1}',
        b'{"body": "\\ud83d", "kind": "exactppl.sample", "schema_version": 1, "sha256": ""}',
        b'{"body": "\xed\xa0\xbd", "kind": "exactppl.sample", "schema_version": 1, "sha256": ""}',
        b'{"body": {}, "kind": "exactppl.sample", "schema_version": 1, "sha256": null}',
        b'{"body": ' + b"9" * 5000 + b', "kind": "exactppl.sample", "schema_version": 1, "sha256": ""}',
        b"\xef\xbb\xbf" + document_bytes(SAMPLE),
        document_bytes(SAMPLE).decode().encode("utf-16"),
        document_bytes(SAMPLE).decode().encode("utf-32"),
        document_bytes(SAMPLE) + b"\n",
        b"\n" + document_bytes(SAMPLE),
        document_bytes(SAMPLE) + document_bytes(SAMPLE),
        json.dumps(json.loads(document_bytes(SAMPLE))).encode(),
    ],
)
def test_another_form_is_refused(content: bytes) -> None:
    """Other values, missing and extra keys, lone surrogates, other encodings, other white space."""
    assert refusal(content)


@pytest.mark.parametrize("depth", [*range(100, 900, 100), *range(900, 1000), 10_000, 1_000_000])
@pytest.mark.parametrize("brackets", [(b"[", b"]"), (b'{"a":', b"}")])
def test_deep_nesting_is_one_error_line(depth: int, brackets: tuple[bytes, bytes]) -> None:
    """However deep a file nests, the reader neither crashes nor recurses past its stack."""
    value = brackets[0] * depth + (b"1" if brackets[0] != b"[" else b"") + brackets[1] * depth
    content = b'{"body": {"value": ' + value + b'}, "kind": "exactppl.holder", "schema_version": 1, "sha256": ""}'

    message = refusal(content, Holder)

    assert message.count("\n") == 0


def test_a_wrong_field_is_named_without_its_value() -> None:
    """A sealed body that breaks the model names its fields, and quotes no value of them."""
    body = SAMPLE.model_dump() | {"num_things": SECRET, "parts": [SECRET, {"x": SECRET}]}

    message = refusal(sealed(body))

    assert "num_things" in message
    assert "parts.1" in message
    assert "chest" not in message


@pytest.mark.parametrize("model", [Sample, Holder])
def test_unknown_and_missing_fields_are_refused(model: type[Document]) -> None:
    """A body with a field more or less than the model is refused."""
    assert "wrong fields" in refusal(sealed({"surprise": 1}, kind=model.kind), model)


def test_no_message_quotes_the_file() -> None:
    """Damage beside a secret does not bring the secret into the message."""
    content = document_bytes(SAMPLE.model_copy(update={"name": SECRET}))

    for place in range(0, len(content), 7):
        message = refusal(content[:place] + b"\x01" + content[place + 1 :])
        assert "chest" not in message


# --- files


def test_a_document_is_a_file(tmp_path: Path) -> None:
    """Writing returns the seal of the file that reading accepts."""
    path = tmp_path / "run" / "file.json"

    seal = write_document(path, SAMPLE)

    assert read_document(path, Sample) == SAMPLE
    assert read_verified(path, seal) == document_bytes(SAMPLE)
    with pytest.raises(IntegrityError, match="exists with other content"):
        write_document(path, SAMPLE.model_copy(update={"num_things": 13}))
    write_document(path, SAMPLE.model_copy(update={"num_things": 13}), replace=True)
    assert read_document(path, Sample).num_things == 13


def test_an_absent_document_is_named(tmp_path: Path) -> None:
    """A missing file is an error line with its last folders."""
    with pytest.raises(IntegrityError, match=r"run/file\.json: no such file"):
        read_document(tmp_path / "run" / "file.json", Sample)


def test_an_oversized_document_is_not_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit a file is refused by its size, before any parser sees it."""
    monkeypatch.setattr("schemas.canonical.MAX_JSON_BYTES", 100)

    message = refusal(b" " * 101)

    assert "101 bytes of JSON, at most 100 are read" in message


def test_the_bytes_of_a_document_are_frozen() -> None:
    """The format does not drift: these bytes were written by the first release."""
    content = document_bytes(Sample(name="é", num_things=1, share=0.5, flags={"b": False, "a": True}, parts=[None]))

    assert content == (
        b'{\n  "body": {\n    "flags": {\n      "a": true,\n      "b": false\n    },\n    "name": "\xc3\xa9",\n'
        b'    "num_things": 1,\n    "parts": [\n      null\n    ],\n    "share": 0.5\n  },\n'
        b'  "kind": "exactppl.sample",\n  "schema_version": 1,\n'
        b'  "sha256": "7ea4823a3730122d9b3ba61340e19705be6c85ab5ee54c5f5db1fb97e8c21d45"\n}\n'
    )
