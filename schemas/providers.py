"""The keys that a keyring leads to: its own, or those of the service that it names."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from schemas.keyrings import Keyring
from schemas.keys import KeyAdministration, KeyProvider
from schemas.keys_local import LocalAdministration, LocalKeys
from schemas.services import KeyService


def provider_of(keyring: Keyring) -> KeyProvider:
    """What its principal may do with keys."""
    service = keyring.service
    if service is not None and service.aws is not None:
        from schemas.aws_kms import Kms
        from schemas.keys_aws import AwsKeys

        return AwsKeys(Kms(service.aws))
    if service is not None and service.vault is not None:
        from schemas.keys_vault import VaultKeys
        from schemas.vault import Vault

        return VaultKeys(Vault(service.vault))
    return LocalKeys(keyring)


def administration_of(
    folder: Path, principal: str, service: KeyService | None, *, builders: Iterable[str]
) -> KeyAdministration:
    """What an administrator may do with keys; ``builders`` are those who may make data keys too."""
    if service is not None and service.aws is not None:
        from schemas.aws_kms import Kms
        from schemas.keys_aws_admin import AwsAdministration

        return AwsAdministration(Kms(service.aws), frozenset(builders))
    if service is not None and service.vault is not None:
        from schemas.keys_vault_admin import VaultAdministration
        from schemas.vault import Vault

        return VaultAdministration(Vault(service.vault), frozenset(builders))
    return LocalAdministration(folder, principal)
