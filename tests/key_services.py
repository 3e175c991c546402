"""The key services that the contract tests run over: one folder of keyrings, AWS KMS in moto, a stand-in for Vault."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from schemas.keyrings import keyring_path, read_keyring
from schemas.keys import KeyAdministration, KeyProvider
from schemas.keys_local import LocalAdministration, LocalKeys
from tests.aws import REGION, moto_kms

OWNER = "owner"
ARN = "arn:aws:iam::123456789012:role/"
PREFIX = "contract"


@dataclass(frozen=True)
class Service:
    """One service as the contract has it.

    Attributes:
        administration: Of its keys.
        keys_of: What a principal can do at this moment; the owner can do everything.
        grantee: What the names of principals begin with in the service, where it has names of its own.
        secrets: What may never be shown: tokens and the like.
    """

    administration: KeyAdministration
    keys_of: Callable[[str], KeyProvider]
    grantee: str = ""
    secrets: tuple[str, ...] = ()

    def grant(self, principal: str, kek_ids: list[str]) -> None:
        """From now on the principal may use these KEKs and no others."""
        self.administration.set_grants(principal, f"{self.grantee}{principal}" if self.grantee else None, kek_ids)


@contextmanager
def local_service(folder: Path) -> Iterator[Service]:
    """Keyrings; each principal reads its file as it is at the moment."""
    yield Service(
        LocalAdministration(folder, OWNER),
        lambda principal: LocalKeys(read_keyring(keyring_path(folder, principal))),
    )


@contextmanager
def aws_service(folder: Path) -> Iterator[Service]:
    """AWS KMS in moto, which does not enforce grants: every principal is the account here."""
    pytest.importorskip("boto3")
    from schemas.aws_kms import AwsSettings, Kms
    from schemas.keys_aws import AwsKeys
    from schemas.keys_aws_admin import AwsAdministration

    with moto_kms(folder):
        kms = Kms(AwsSettings(region=REGION, prefix=PREFIX))
        yield Service(AwsAdministration(kms), lambda principal: AwsKeys(kms), grantee=ARN)


@contextmanager
def vault_service(folder: Path) -> Iterator[Service]:
    """A stand-in for Vault; each principal has a token with the policy of its name."""
    pytest.importorskip("hvac")
    from schemas.keys_vault import VaultKeys
    from schemas.keys_vault_admin import VaultAdministration, policy_name
    from schemas.vault import Vault, VaultSettings
    from tests.vault_standin import ROOT_TOKEN, vault_standin

    with vault_standin() as standin:

        def vault_of(principal: str) -> Vault:
            token = ROOT_TOKEN if principal == OWNER else f"hvs.token-of-{principal}"
            standin.tokens[token] = [policy_name(principal, PREFIX)]
            file = folder / f"{principal}.token"
            file.touch(mode=0o600)
            file.write_text(token)
            return Vault(VaultSettings(address=standin.url, prefix=PREFIX, token_file=file, num_attempts=1))

        yield Service(
            VaultAdministration(vault_of(OWNER)),
            lambda principal: VaultKeys(vault_of(principal)),
            secrets=(ROOT_TOKEN, "hvs.token-of-"),
        )


SERVICES = {"local": local_service, "aws": aws_service, "vault": vault_service}
# moto enforces neither grants nor disabled keys.
ENFORCING = ("local", "vault")
