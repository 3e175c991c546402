"""A key provider whose KEKs never leave a Vault transit engine.

A KEK is a transit key ``<prefix>-<department code>-<purpose>`` of type aes256-gcm96, and its versions are the key's.
It is *derived*: each context has a key of its own, made by the engine from the KEK's, so a wrapping opens in its
context only (https://developer.hashicorp.com/vault/api-docs/secret/transit, "derived" of Create Key). The context of a
request is the base64 of canonical JSON. An engine would take a context for a key that is not derived, and ignore it;
administration refuses such keys, a principal has no right to look.

Tested against a stand-in that follows the API documentation, with real ciphers, versions and policies, and against an
HTTP server that gives the documented refusals. Not tested against Vault itself.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Any

from schemas.canonical import canonical_json
from schemas.errors import IntegrityError, UsageError
from schemas.keys import KEY_BYTES, Context, DataKey, WrappedKey, require_kek_id, sound_data_key
from schemas.vault import Vault, VaultSettings

_CIPHERTEXT = re.compile(r"vault:v([1-9][0-9]{0,8}):[A-Za-z0-9+/]+={0,2}")


@dataclass(frozen=True)
class VaultKeys:
    """A ``KeyProvider`` with the token of one principal.

    Attributes:
        vault: The connection.
    """

    vault: Vault

    def generate_data_key(self, kek_id: str, context: Context) -> DataKey:
        """A new data key, made by the engine (Generate Data Key)."""
        path = data_key_path(self.vault.settings, kek_id)
        answer = self._asked(path, kek_id, context, bits=8 * KEY_BYTES)
        return DataKey(_plaintext(answer, kek_id), _wrapped(answer, kek_id))

    def decrypt(self, wrapped: WrappedKey, context: Context) -> bytes:
        """The data key, if a policy of the token lets it decrypt with the KEK (Decrypt Data)."""
        path = decrypt_path(self.vault.settings, wrapped.kek_id)
        answer = self._asked(path, wrapped.kek_id, context, ciphertext=_ciphertext(wrapped))
        return _plaintext(answer, wrapped.kek_id)

    def rewrap(self, wrapped: WrappedKey, context: Context) -> WrappedKey:
        """The same data key under the newest version; it does not leave the engine (Rewrap Data)."""
        path = rewrap_path(self.vault.settings, wrapped.kek_id)
        answer = self._asked(path, wrapped.kek_id, context, ciphertext=_ciphertext(wrapped))
        return _wrapped(answer, wrapped.kek_id)

    def _asked(self, path: str, kek_id: str, context: Context, **parameters: Any) -> dict[str, Any]:
        return self.vault.call("POST", path, where=f"key {kek_id}", context=_encoded(context), **parameters)


def key_name(settings: VaultSettings, kek_id: str) -> str:
    """What the transit key of a KEK is called.

    Raises:
        UsageError: no KEK can have this id.
    """
    require_kek_id(kek_id)
    return f"{settings.prefix}-{kek_id.replace('/', '-')}"


def decrypt_path(settings: VaultSettings, kek_id: str) -> str:
    """Where wrappings of a KEK are opened."""
    return f"{settings.mount}/decrypt/{key_name(settings, kek_id)}"


def data_key_path(settings: VaultSettings, kek_id: str) -> str:
    """Where data keys are made, in the clear and wrapped by a KEK."""
    return f"{settings.mount}/datakey/plaintext/{key_name(settings, kek_id)}"


def rewrap_path(settings: VaultSettings, kek_id: str) -> str:
    """Where wrappings of a KEK get its newest version."""
    return f"{settings.mount}/rewrap/{key_name(settings, kek_id)}"


def _encoded(context: Context) -> str:
    return base64.b64encode(canonical_json(dict(context))).decode("ascii")


def _ciphertext(wrapped: WrappedKey) -> str:
    """What the engine wrapped, if it is of the version that stands beside it."""
    found = _CIPHERTEXT.fullmatch(wrapped.ciphertext)
    if not found or int(found[1]) != wrapped.version:
        raise IntegrityError(
            f"key {wrapped.kek_id}: the wrapped key is not one of Vault of version {wrapped.version}; restore the file"
        )
    return wrapped.ciphertext


def _wrapped(answer: dict[str, Any], kek_id: str) -> WrappedKey:
    ciphertext = _text(answer, "ciphertext", kek_id)
    found = _CIPHERTEXT.fullmatch(ciphertext)
    if not found:
        raise UsageError(f"key {kek_id}: Vault answers with no ciphertext of the transit engine; look at its mount")
    return WrappedKey(kek_id=kek_id, version=int(found[1]), ciphertext=ciphertext)


def _plaintext(answer: dict[str, Any], kek_id: str) -> bytes:
    try:
        key = base64.b64decode(_text(answer, "plaintext", kek_id), validate=True)
    except (binascii.Error, ValueError):
        raise UsageError(f"key {kek_id}: Vault answers with no base64; look at its address and mount") from None
    return sound_data_key(key, where=f"key {kek_id}")


def _text(answer: dict[str, Any], name: str, kek_id: str) -> str:
    data = answer.get("data")
    found = data.get(name) if isinstance(data, dict) else None
    if not isinstance(found, str):
        raise UsageError(f"key {kek_id}: Vault answers without {name}; look at its address and mount")
    return found
