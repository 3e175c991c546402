"""Keyring files: what one principal holds, and nothing that it was not granted.

``FOLDER/<principal>.json`` is a sealed document of mode 0600 with the KEKs of the principal's grants, the key by which
it signs, and the public keys by which it knows what others have signed. The folder of whoever administers keys has all
files; a node gets a copy of its own one.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from pydantic import Field, field_validator

from schemas.closed import CLOSED_FILE, make_closed, read_closed, require_closed_folder
from schemas.documents import Document, Value, document_bytes, parse_document
from schemas.errors import AccessDeniedError, IntegrityError, UsageError
from schemas.keys import KEK_ID, KEY_BYTES
from schemas.seals import label, publish, wrapped_write
from schemas.services import KeyService

PRINCIPAL = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"
MAX_KEYRING_BYTES = 1 << 24
_HEX_KEY = re.compile(rf"[0-9a-f]{{{2 * KEY_BYTES}}}")


class Signer(Value):
    """Whose signatures are believed: Ed25519 public key in hex, and of what."""

    public_key: str = Field(pattern=r"^[0-9a-f]{64}$")
    may_build: bool
    may_administer: bool
    may_score: bool


class Keyring(Document):
    """What one principal holds.

    Attributes:
        principal: Its name.
        keks: ``keks[kek_id][version]`` is a key of 32 bytes in hex; versions count from 1.
        seed: Of its Ed25519 signing key, in hex.
        signers: By principal.
        service: Where KEKs are instead of here.
    """

    kind = "exactppl.keyring"

    principal: str = Field(pattern=PRINCIPAL)
    keks: dict[str, dict[int, str]] = Field(default_factory=dict, repr=False)
    seed: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$", repr=False)
    signers: dict[str, Signer] = Field(default_factory=dict)
    service: KeyService | None = None

    @field_validator("keks")
    @classmethod
    def _sound(cls, keks: dict[str, dict[int, str]]) -> dict[str, dict[int, str]]:
        sound = all(
            re.fullmatch(KEK_ID, kek_id)
            and versions
            and min(versions) >= 1
            and all(_HEX_KEY.fullmatch(key) for key in versions.values())
            for kek_id, versions in keks.items()
        )
        if not sound:
            raise ValueError("no KEKs by id and version")
        return keks


def keyring_path(folder: Path, principal: str) -> Path:
    """Where a principal's keyring lies.

    Raises:
        UsageError: no principal can have this name.
    """
    if not re.fullmatch(PRINCIPAL, principal):
        raise UsageError("principal: 1 to 64 letters, digits, - or _ make a name; rename it in the policy")
    return folder / f"{principal}.json"


def read_keyring(path: Path) -> Keyring:
    """A keyring that nobody but its owner could have read.

    Raises:
        AccessDeniedError: there is none, or it cannot be opened.
        UsageError: it is a link or no file, others may read or write it or its folder, or it is another user's.
        IntegrityError: it is damaged, or another principal's than its name says.
    """
    require_closed_folder(path.parent, what="keyring")
    content = read_closed(
        path,
        what="keyring",
        absent="ask for one, and name its folder and your principal",
        max_bytes=MAX_KEYRING_BYTES,
    )
    keyring = parse_document(content, Keyring, label(path))
    if path.name != f"{keyring.principal}.json":
        raise IntegrityError(f"{label(path)}: the keyring of another principal than its name says; restore the file")
    return keyring


def write_keyring(folder: Path, keyring: Keyring) -> Path:
    """Replace a principal's keyring, closed to others from its first byte on.

    Raises:
        TemporaryError: the disk failed.
        UsageError: the folder cannot be written to.
    """
    path = keyring_path(folder, keyring.principal)
    try:
        make_closed(folder)
    except OSError as error:
        raise wrapped_write(path, error) from None
    publish(path, document_bytes(keyring), replace=True, mode=CLOSED_FILE)
    return path


def principals_in(folder: Path) -> list[str]:
    """Whose keyrings lie in a folder, by name."""
    try:
        names = [path.name.removesuffix(".json") for path in folder.iterdir() if path.suffix == ".json"]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise AccessDeniedError(f"{label(folder)}: {os.strerror(error.errno or 0)}; run as its owner") from None
    return sorted(name for name in names if re.fullmatch(PRINCIPAL, name))
