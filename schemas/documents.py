"""Sealed JSON documents: one envelope that any single changed byte breaks.

A document on disk is ``{"body": …, "kind": …, "schema_version": …, "sha256": …}`` in canonical form, where sha256 is
that of the canonical body. A reader parses it, rebuilds the bytes and compares them with the file, so a flipped bit in
white space is found as surely as one in a number.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from schemas.canonical import MAX_JSON_BYTES, canonical_json, parse_json
from schemas.errors import IntegrityError
from schemas.seals import Seal, label, opened, publish
from schemas.tables import SCHEMA_VERSION

DocumentT = TypeVar("DocumentT", bound="Document")


class Value(BaseModel):
    """A frozen value inside a document; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Document(Value):
    """A value that is a whole file."""

    kind: ClassVar[str]


def document_bytes(document: Document) -> bytes:
    """The canonical, sealed bytes of a document."""
    return _sealed(document.kind, document.model_dump(mode="json"))


def write_document(path: Path, document: Document, *, replace: bool = False) -> Seal:
    """Publish a document; see ``seals.publish`` for ``replace`` and the errors."""
    return publish(path, document_bytes(document), replace=replace)


def read_document(path: Path, model: type[DocumentT]) -> DocumentT:
    """Read, check and parse a document.

    Raises:
        IntegrityError: the file is absent, damaged, of another kind, or of another schema version.
    """
    return parse_document(document_content(path), model, label(path))


def document_content(path: Path) -> bytes:
    """The bytes of a document's file, of one that is too large only so many that parsing refuses it.

    Raises:
        IntegrityError: the file is absent or cannot be read.
    """
    with opened(path) as file:
        # No more than there is: ``read`` takes memory for all that it is asked for.
        return file.read(min(os.fstat(file.fileno()).st_size, MAX_JSON_BYTES) + 1)


def parse_document(content: bytes, model: type[DocumentT], where: str) -> DocumentT:
    """As ``read_document``, from bytes; ``where`` names them in messages."""
    envelope = parse_json(content, where)
    if not isinstance(envelope, dict) or envelope.keys() != {"body", "kind", "schema_version", "sha256"}:
        raise IntegrityError(f"{where}: not a sealed {model.kind} document; restore it or make it again")
    if envelope["kind"] != model.kind:
        raise IntegrityError(f"{where}: another kind of document, {model.kind} was expected")
    if envelope["schema_version"] != SCHEMA_VERSION:
        raise IntegrityError(
            f"{where}: schema version differs, this program reads {SCHEMA_VERSION}; use the release that wrote the file"
        )
    if not _is_sealed(content, model.kind, envelope["body"]):
        raise IntegrityError(f"{where}: content does not match its seal; restore the file or make it again")
    return _validated(envelope["body"], model, where)


def _sealed(kind: str, body: Any) -> bytes:
    return canonical_json(
        {
            "body": body,
            "kind": kind,
            "schema_version": SCHEMA_VERSION,
            "sha256": hashlib.sha256(canonical_json(body)).hexdigest(),
        }
    )


def _is_sealed(content: bytes, kind: str, body: Any) -> bool:
    try:
        return _sealed(kind, body) == content
    except (ValueError, RecursionError):  # a lone surrogate or a nesting that we could not have written
        return False


def _validated(body: Any, model: type[DocumentT], where: str) -> DocumentT:
    try:
        return model.model_validate(body, strict=False)
    except ValidationError as error:
        places = sorted({".".join(map(str, item["loc"])) for item in error.errors(include_input=False)})
        raise IntegrityError(f"{where}: {len(places)} wrong fields: {', '.join(places[:8])}") from None
