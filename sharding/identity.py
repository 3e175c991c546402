"""Ids that tell nothing: keyed BLAKE2b-128 digests under a secret of the corpus.

The key is the same for all builds of a corpus, so an id stays the same from night to night; without the key nobody can
try names or record numbers against an id. Each kind of id has its own domain tag (RFC 7693 personalisation), so a
patient and an encounter of the same number do not share an id.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from schemas.closed import CLOSED, CLOSED_FILE, make_closed
from schemas.errors import IntegrityError, UsageError
from schemas.manifests import SECRET_FOLDER
from schemas.seals import label, publish, wrapped_write

KEY_BYTES = 32
ID_BYTES = 16
KEY_FILE = "record-id.key"

RECORD = b"xppl.record"
PATIENT = b"xppl.patient"
ENCOUNTER = b"xppl.encounter"
DEPARTMENT = b"xppl.department"
_TABLE = b"xppl.table"
_KEY_ID = b"xppl.key-id"

_NULL = (2**64 - 1).to_bytes(8, "little")
_HEX_KEY = re.compile(r"[0-9a-f]{64}\n?")


@dataclass(frozen=True, slots=True)
class RecordKey:
    """The secret of a corpus; it never shows in a repr."""

    secret: bytes = field(repr=False)

    @property
    def key_id(self) -> str:
        """A short public digest by which two builds can be known to share a key."""
        return hashlib.blake2b(key=self.secret, person=_KEY_ID, digest_size=8).hexdigest()

    def digest(self, domain: bytes, parts: Sequence[bytes | None]) -> bytes:
        """The 16-byte id of some values: each is length-prefixed, and null is not the empty string."""
        message = b"".join(_NULL if part is None else len(part).to_bytes(8, "little") + part for part in parts)
        return hashlib.blake2b(message, key=self.secret, person=domain, digest_size=ID_BYTES).digest()

    def digests(self, domain: bytes, values: Iterable[bytes | memoryview]) -> Iterator[bytes]:
        """The id of each value, as ``digest`` gives it for one value alone."""
        # The keyed state is made once: it takes as long as the digest of a short value.
        start = hashlib.blake2b(key=self.secret, person=domain, digest_size=ID_BYTES)
        for value in values:
            state = start.copy()
            state.update(len(value).to_bytes(8, "little"))
            state.update(value)
            yield state.digest()

    def table_digest(self, table: Mapping[str, str]) -> str:
        """A digest of names and codes that tells none of them, the same for any order."""
        return self.digest(_TABLE, [part.encode() for entry in sorted(table.items()) for part in entry]).hex()

    def department_code(self, name: str | None) -> str:
        """The opaque code of a department."""
        encoded = None if name is None else name.encode()
        return f"d-{self.digest(DEPARTMENT, [encoded]).hex()[:12]}"


def corpus_key_path(corpus: Path) -> Path:
    """Where a corpus keeps its key."""
    return corpus / SECRET_FOLDER / KEY_FILE


def load_key(path: Path) -> RecordKey:
    """Read a key file: 64 lower-case hex digits.

    Raises:
        UsageError: there is no such file.
        IntegrityError: it holds something else.
    """
    try:
        content = path.read_bytes()[:128].decode("ascii", "replace")
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise UsageError(f"{label(path)}: {reason}; name a readable key file, or leave out --record-key") from None
    if not _HEX_KEY.fullmatch(content):
        raise IntegrityError(f"{label(path)}: no key of 64 lower-case hex digits; restore it or name another")
    return RecordKey(bytes.fromhex(content.strip()))


def make_key(path: Path) -> bool:
    """Make the corpus' key if it has none, readable by its owner only; true if it was made now.

    Raises:
        TemporaryError: the disk failed.
        UsageError: the place cannot be written to.
    """
    try:
        if path.exists():
            return False
        make_closed(path.parent)
        path.parent.chmod(CLOSED)
    except OSError as error:
        raise wrapped_write(path, error) from None
    try:
        publish(path, secrets.token_bytes(KEY_BYTES).hex().encode() + b"\n", mode=CLOSED_FILE)
    except IntegrityError:
        return False  # somebody else made one meanwhile
    return True
