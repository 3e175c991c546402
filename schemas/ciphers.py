"""The few ciphers that everything encrypted here is made of; Parquet files have their own.

AES-256-GCM (NIST SP 800-38D) under a key that is used for one file or one wrapping, HKDF-SHA-256 (RFC 5869) to derive
such keys, and AES-256-GCM-SIV (RFC 8452) where equal contents must give equal bytes: a partial that two launches score
must come out the same, and with a fixed nonce it tells nothing but that equality.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets

from schemas.canonical import canonical_json
from schemas.errors import IntegrityError
from schemas.keys import KEY_BYTES, Context

NONCE_BYTES = 12
TAG_BYTES = 16
_FIXED_NONCE = bytes(NONCE_BYTES)


def random_key() -> bytes:
    """A new key of 32 random bytes."""
    return secrets.token_bytes(KEY_BYTES)


def derived_key(key: bytes, purpose: str, *parts: str) -> bytes:
    """A key of 32 bytes for one purpose (HKDF-SHA-256, empty salt); parts are told apart whatever they hold."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    info = canonical_json(["exactppl", purpose, *parts])
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=info).derive(key)


def key_check(key: bytes) -> str:
    """64 hex digits by which a random key is known again, and that tell nothing of it."""
    return hmac.digest(key, b"exactppl key check", hashlib.sha256).hex()


def wrap(key: bytes, kek: bytes, context: Context) -> str:
    """A key under another, bound to its context, as base64 of nonce, ciphertext and tag."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = secrets.token_bytes(NONCE_BYTES)
    return base64.b64encode(nonce + AESGCM(kek).encrypt(nonce, key, canonical_json(dict(context)))).decode()


def unwrap(ciphertext: str, kek: bytes, context: Context, *, where: str) -> bytes:
    """What ``wrap`` wrapped.

    Raises:
        IntegrityError: damaged, or of another key or context.
    """
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        content = base64.b64decode(ciphertext, validate=True)
        key = AESGCM(kek).decrypt(content[:NONCE_BYTES], content[NONCE_BYTES:], canonical_json(dict(context)))
    except (binascii.Error, ValueError, InvalidTag):
        raise IntegrityError(
            f"{where}: the wrapped key does not open; it is damaged or of another build or shard; restore the file"
        ) from None
    if len(key) != KEY_BYTES:
        raise IntegrityError(f"{where}: the wrapped key has {len(key)} bytes, not {KEY_BYTES}; restore the file")
    return key


def sealed_content(content: bytes, key: bytes, *, bound_to: bytes) -> bytes:
    """Content under a key that encrypts nothing else, the same bytes every time (AES-256-GCM-SIV)."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV

    return AESGCMSIV(key).encrypt(_FIXED_NONCE, content, bound_to)


def opened_content(content: bytes, key: bytes, *, bound_to: bytes, where: str) -> bytes:
    """What ``sealed_content`` encrypted.

    Raises:
        IntegrityError: damaged, or of another key or place.
    """
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV

    try:
        return AESGCMSIV(key).decrypt(_FIXED_NONCE, content, bound_to)
    except (InvalidTag, ValueError):
        raise IntegrityError(
            f"{where}: does not open with its department's key; it is damaged, forged or misplaced; make it again"
        ) from None
