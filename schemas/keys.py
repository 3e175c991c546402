"""Data keys and the services that guard them.

Envelope encryption (NIST SP 800-57 Part 1, "key-wrapping key"): whatever is encrypted has a random data key (DEK) of
its own, and only the DEK wrapped by a key-encrypting key (KEK) is stored. KEKs stay with a ``KeyProvider``: a local
keyring, or a key management service. A KEK has a purpose, so that who may read losses need not read notes::

    <department code>/text      opens shards of the department
    <department code>/results   opens partials of the department, and its name in the view
    scratch                     opens unfinished work of builds

Each wrapping is bound to its context (which build, which shard), which is not secret but must be told again to unwrap.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from pydantic import Field

from schemas.documents import Value
from schemas.errors import IntegrityError, UsageError

KEY_BYTES = 32
SCRATCH = "scratch"
Purpose = Literal["text", "results"]
PURPOSES: tuple[Purpose, ...] = ("text", "results")
KEK_ID = r"^(d-[0-9a-f]{12}/(text|results)|scratch)$"

Context = Mapping[str, str]


class WrappedKey(Value):
    """A data key that only its KEK opens.

    Attributes:
        kek_id: Which KEK.
        version: Of the KEK, from 1; 0 where the service keeps versions to itself.
        ciphertext: Base64, or the service's own form.
    """

    kek_id: str = Field(pattern=KEK_ID)
    version: int = Field(ge=0)
    ciphertext: str = Field(min_length=1, max_length=4096)


@dataclass(frozen=True, slots=True)
class DataKey:
    """A data key in the clear, for as long as a file is written, and as it is stored."""

    plaintext: bytes = field(repr=False)
    wrapped: WrappedKey


class KeyProvider(Protocol):
    """What a principal may do with keys.

    All raise AccessDeniedError where the principal was not granted the KEK, IntegrityError where the wrapping is
    damaged or of another context, and TemporaryError where a service cannot be reached.
    """

    def generate_data_key(self, kek_id: str, context: Context) -> DataKey:
        """A new random data key of 32 bytes, wrapped by the newest version of the KEK."""

    def decrypt(self, wrapped: WrappedKey, context: Context) -> bytes:
        """The data key, 32 bytes."""

    def rewrap(self, wrapped: WrappedKey, context: Context) -> WrappedKey:
        """The same data key under the newest version of its KEK."""


class KeyAdministration(Protocol):
    """What whoever administers keys may do with them."""

    def make_kek(self, kek_id: str) -> bool:
        """Make a KEK unless it is there; true if it was made now."""

    def rotate_keks(self, kek_ids: Sequence[str]) -> None:
        """Give KEKs a new version; earlier ones still unwrap until they are retired."""

    def retire_keks(self, kek_ids: Sequence[str]) -> None:
        """Let no version but the newest unwrap any more."""

    def set_grants(self, principal: str, grantee: str | None, kek_ids: Sequence[str]) -> None:
        """From now on the principal may use these KEKs and no others; ``grantee`` is the service's name of it."""


def kek_of(code: str, purpose: Purpose) -> str:
    """The id of a department's KEK."""
    return f"{code}/{purpose}"


def require_kek_id(kek_id: str) -> None:
    """The id is one that there can be.

    Raises:
        UsageError: it is not.
    """
    if not re.fullmatch(KEK_ID, kek_id):
        raise UsageError("key: no id of a KEK; write DEPARTMENT_CODE/text, DEPARTMENT_CODE/results or scratch")


def sound_data_key(key: bytes, *, where: str) -> bytes:
    """What was unwrapped, if it can be a data key.

    Raises:
        IntegrityError: it has another length.
    """
    if len(key) != KEY_BYTES:
        raise IntegrityError(f"{where}: the wrapped key has {len(key)} bytes, not {KEY_BYTES}; restore the file")
    return key
