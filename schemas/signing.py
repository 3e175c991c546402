"""Signatures: Ed25519 (RFC 8032) in DSSE envelopes, which whoever has the public key can check.

DSSE signs ``DSSEv1 <length of type> <type> <length of payload> <payload>`` and puts payload and signatures into a JSON
object (https://github.com/secure-systems-lab/dsse, protocol 1.0.0). The envelope lies beside the file that it is of, as
``<file>.dsse``; its payload must be that file, byte for byte, so neither can be taken for the other's.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from schemas.canonical import MAX_JSON_BYTES, canonical_json, parse_json
from schemas.errors import IntegrityError, UsageError
from schemas.seals import Seal, label, opened, publish

PAYLOAD_TYPE = "application/vnd.exactppl.document+json"
SUFFIX = ".dsse"
SEED_BYTES = 32
MAX_KEY_BYTES = 1 << 16
MAX_SIGNATURES = 16
_HEX_KEY = re.compile(r"[0-9a-f]{64}\n?")


@dataclass(frozen=True, order=True, slots=True)
class PublicKey:
    """By which signatures are checked: 32 bytes as 64 hex digits."""

    hex: str

    @property
    def key_id(self) -> str:
        """The first 16 hex digits of its SHA-256: a hint in envelopes, never what decides."""
        return hashlib.sha256(bytes.fromhex(self.hex)).hexdigest()[:16]

    def to_pem(self) -> str:
        """As other tools have it (SubjectPublicKeyInfo, RFC 8410)."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(self.hex))
        return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether the signature of the message is by this key."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(bytes.fromhex(self.hex)).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True


@dataclass(frozen=True, slots=True)
class SigningKey:
    """The secret of one who signs; it never shows in a repr."""

    seed: bytes = field(repr=False)

    @property
    def public(self) -> PublicKey:
        """What others check by."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return PublicKey(Ed25519PrivateKey.from_private_bytes(self.seed).public_key().public_bytes_raw().hex())

    def sign(self, content: bytes) -> bytes:
        """The envelope of some content: equal content and key give equal bytes."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        signature = Ed25519PrivateKey.from_private_bytes(self.seed).sign(_message(content))
        return canonical_json(
            {
                "payload": base64.b64encode(content).decode(),
                "payloadType": PAYLOAD_TYPE,
                "signatures": [{"keyid": self.public.key_id, "sig": base64.b64encode(signature).decode()}],
            }
        )


def make_signing_key() -> SigningKey:
    """A new key from the system's randomness."""
    return SigningKey(secrets.token_bytes(SEED_BYTES))


def read_public_key(path: Path) -> PublicKey:
    """A public key from a PEM file, or from one of 64 lower-case hex digits.

    Raises:
        UsageError: the file is absent or holds no Ed25519 public key.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        with opened(path) as file:
            content = file.read(MAX_KEY_BYTES)
    except IntegrityError:
        raise UsageError(f"{label(path)}: no such file; name a file with an Ed25519 public key") from None
    if _HEX_KEY.fullmatch(content.decode("ascii", "replace")):
        return PublicKey(content.decode().strip())
    try:
        key = load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise UsageError(f"{label(path)}: no Ed25519 public key; name a PEM file, or one of 64 hex digits")
    return PublicKey(key.public_bytes_raw().hex())


def payload_of(envelope: bytes, trusted: Sequence[PublicKey], where: str) -> bytes:
    """What an envelope holds, if a trusted key has signed it.

    Raises:
        IntegrityError: it is no envelope, of another type, or has no valid signature of a trusted key.
    """
    return _verified(envelope, trusted, where)[0]


def signer_of(envelope: bytes, trusted: Sequence[PublicKey], where: str) -> PublicKey:
    """By which trusted key an envelope is signed, the first of several; errors as ``payload_of``."""
    return _verified(envelope, trusted, where)[1]


def _verified(envelope: bytes, trusted: Sequence[PublicKey], where: str) -> tuple[bytes, PublicKey]:
    """What an envelope holds, and a trusted key that has signed it."""
    fields = parse_json(envelope, where)
    try:
        payload_type, signatures = fields["payloadType"], [item["sig"] for item in fields["signatures"]]
        payload, *found = (base64.b64decode(text, validate=True) for text in [fields["payload"], *signatures])
    except (TypeError, KeyError, ValueError, binascii.Error):
        raise IntegrityError(f"{where}: no DSSE envelope; restore it or make it again") from None
    if len(found) > MAX_SIGNATURES:
        raise IntegrityError(f"{where}: {len(found)} signatures, at most {MAX_SIGNATURES} are checked; restore it")
    if payload_type != PAYLOAD_TYPE:
        raise IntegrityError(f"{where}: the signature is of another type of document than {PAYLOAD_TYPE}; restore it")
    message = _message(payload)
    for key in trusted:
        if any(key.verifies(signature, message) for signature in found):
            return payload, key
    names = ", ".join(sorted(key.key_id for key in trusted)) or "none"
    raise IntegrityError(
        f"{where}: no valid signature by a trusted key ({names}); the document was changed or signed by others"
    )


def write_signature(path: Path, content: bytes, key: SigningKey, *, replace: bool = False) -> Seal:
    """Publish the envelope of a file beside it; see ``seals.publish`` for ``replace`` and the errors."""
    return publish(signature_path(path), key.sign(content), replace=replace)


def require_signature(path: Path, content: bytes, trusted: Sequence[PublicKey]) -> None:
    """The envelope beside a file is of just this content, and by a trusted key.

    Raises:
        IntegrityError: there is none, it is not valid, or it is of another content.
    """
    beside = signature_path(path)
    with opened(beside) as file:
        num_bytes = os.fstat(file.fileno()).st_size
        if num_bytes > MAX_JSON_BYTES:
            raise IntegrityError(f"{label(beside)}: {num_bytes} bytes, at most {MAX_JSON_BYTES} are read; restore it")
        envelope = file.read(num_bytes)
    if payload_of(envelope, trusted, label(beside)) != content:
        raise IntegrityError(f"{label(path)}: differs from what was signed; restore the file or make it again")


def signature_path(path: Path) -> Path:
    """Where the envelope of a file lies."""
    return path.with_name(path.name + SUFFIX)


def _message(payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding: both lengths are signed, so no byte can move from one part to the other."""
    kind = PAYLOAD_TYPE.encode()
    return b" ".join([b"DSSEv1", str(len(kind)).encode(), kind, str(len(payload)).encode(), payload])
