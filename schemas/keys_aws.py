"""A key provider whose KEKs never leave AWS KMS.

Each version of a KEK is a KMS key of its own, since the service's own rotation keeps versions to itself and retires
none. Aliases lead to them: ``alias/<prefix>/<kek_id>/v<version>`` to each version, and ``alias/<prefix>/<kek_id>`` to
the newest; the description of a key is its first alias. The context of a wrapping is KMS's encryption context.

Tested against moto, which refuses another context, a changed ciphertext, and another key for Decrypt, and against an
HTTP server that gives the refusals of the API reference. Not tested against AWS itself: moto enforces neither grants
nor disabled keys and does not compare the source key of ReEncrypt, so tests show only that the right calls are made.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, field
from typing import Any

from schemas.aws_kms import AwsSettings, Kms
from schemas.errors import IntegrityError
from schemas.keys import Context, DataKey, WrappedKey, require_kek_id, sound_data_key


@dataclass(frozen=True)
class AwsKeys:
    """A ``KeyProvider`` with the credentials that boto3 finds.

    Attributes:
        kms: The connection.
    """

    kms: Kms
    _versions: dict[str, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    def generate_data_key(self, kek_id: str, context: Context) -> DataKey:
        """A new data key, made by the service (GenerateDataKey)."""
        answer = self.kms.call(
            "generate_data_key",
            where=f"key {kek_id}",
            KeyId=newest_alias(self.kms.settings, kek_id),
            KeySpec="AES_256",
            EncryptionContext=dict(context),
        )
        return DataKey(sound_data_key(answer["Plaintext"], where=f"key {kek_id}"), self._wrapped(answer, kek_id))

    def decrypt(self, wrapped: WrappedKey, context: Context) -> bytes:
        """The data key, if the service grants Decrypt on the version that wrapped it."""
        answer = self.kms.call(
            "decrypt",
            where=f"key {wrapped.kek_id}",
            KeyId=alias_of(self.kms.settings, wrapped.kek_id, wrapped.version),
            CiphertextBlob=_blob(wrapped),
            EncryptionContext=dict(context),
        )
        return sound_data_key(answer["Plaintext"], where=f"key {wrapped.kek_id}")

    def rewrap(self, wrapped: WrappedKey, context: Context) -> WrappedKey:
        """The same data key under the newest version; it does not leave the service (ReEncrypt)."""
        answer = self.kms.call(
            "re_encrypt",
            where=f"key {wrapped.kek_id}",
            CiphertextBlob=_blob(wrapped),
            SourceKeyId=alias_of(self.kms.settings, wrapped.kek_id, wrapped.version),
            SourceEncryptionContext=dict(context),
            DestinationKeyId=newest_alias(self.kms.settings, wrapped.kek_id),
            DestinationEncryptionContext=dict(context),
        )
        return self._wrapped(answer, wrapped.kek_id)

    def _wrapped(self, answer: dict[str, Any], kek_id: str) -> WrappedKey:
        """What was wrapped, with the version that did it: the alias may have moved since a key was last made."""
        key = answer["KeyId"]
        if key not in self._versions:
            described = self.kms.call("describe_key", where=f"key {kek_id}", KeyId=key)
            self._versions[key] = version_of(described, self.kms.settings, kek_id)
        ciphertext = base64.b64encode(answer["CiphertextBlob"]).decode("ascii")
        return WrappedKey(kek_id=kek_id, version=self._versions[key], ciphertext=ciphertext)


def newest_alias(settings: AwsSettings, kek_id: str) -> str:
    """The alias that leads to the newest version of a KEK.

    Raises:
        UsageError: no KEK can have this id.
    """
    require_kek_id(kek_id)
    return f"alias/{settings.prefix}/{kek_id}"


def alias_of(settings: AwsSettings, kek_id: str, version: int) -> str:
    """The alias of one version of a KEK."""
    return f"{newest_alias(settings, kek_id)}/v{version}"


def description_of(settings: AwsSettings, kek_id: str, version: int) -> str:
    """By which a KMS key tells what it is."""
    return alias_of(settings, kek_id, version).removeprefix("alias/")


def version_of(described: dict[str, Any], settings: AwsSettings, kek_id: str) -> int:
    """The version that a KMS key is of, by its description (an answer of DescribeKey).

    Raises:
        IntegrityError: it is no version of this KEK.
    """
    description = described["KeyMetadata"].get("Description", "")
    found = re.fullmatch(r".*/v([1-9][0-9]{0,8})", description)
    if not found or description != description_of(settings, kek_id, int(found[1])):
        raise IntegrityError(
            f"key {kek_id}: its alias leads to a KMS key that does not describe itself as a version of it; "
            "set the alias or the description right"
        )
    return int(found[1])


def _blob(wrapped: WrappedKey) -> bytes:
    try:
        return base64.b64decode(wrapped.ciphertext, validate=True)
    except (binascii.Error, ValueError):
        raise IntegrityError(f"key {wrapped.kek_id}: the wrapped key is no base64; restore the file") from None
