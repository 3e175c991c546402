"""Administration of KEKs in Vault: versions are those of transit keys, grants are ACL policies.

A principal's grants are the policy ``<prefix>.<principal>``, which names the paths of its KEKs and nothing else; the
dot, which neither name can have, keeps corpora apart. Whoever runs Vault attaches that policy to the tokens of the
principal, and no other one that reaches the engine. A policy is replaced in one call and takes effect at once
(https://developer.hashicorp.com/vault/api-docs/system/policies); it covers all versions of a key, so a rotation needs
no new grants. Retirement raises ``min_decryption_version``, which whoever may configure the key can lower again.

Tested against a stand-in that follows the API documentation and enforces policies and versions; not against Vault.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from schemas.errors import UsageError
from schemas.keys_vault import data_key_path, decrypt_path, key_name, rewrap_path
from schemas.vault import Vault

KEY_TYPE = "aes256-gcm96"
# What a transit key must be: bound to contexts, never the same ciphertext twice, and never outside the engine.
FORM: dict[str, Any] = {
    "type": KEY_TYPE,
    "derived": True,
    "convergent_encryption": False,
    "exportable": False,
    "allow_plaintext_backup": False,
}


@dataclass(frozen=True)
class VaultAdministration:
    """A ``KeyAdministration`` with a token that may make, read, rotate and configure keys and write policies.

    Attributes:
        vault: The connection.
        builders: Principals who may also make and rewrap data keys.
    """

    vault: Vault
    builders: frozenset[str] = frozenset()

    def make_kek(self, kek_id: str) -> bool:
        """Make version 1 of a KEK unless there is one."""
        if self._newest(kek_id):
            return False
        self.vault.call("POST", self._key_path(kek_id), where=f"key {kek_id}", **FORM)
        self._require(kek_id)
        return True

    def _rotate(self, kek_id: str) -> None:
        """Let the engine make the next version; a request that is repeated after a failure may make one more."""
        self._require(kek_id)
        self.vault.call("POST", f"{self._key_path(kek_id)}/rotate", where=f"key {kek_id}")

    def _retire(self, kek_id: str) -> None:
        """Let the engine open no version but the newest."""
        newest = self._require(kek_id)
        self.vault.call(
            "POST", f"{self._key_path(kek_id)}/config", where=f"key {kek_id}", min_decryption_version=newest
        )

    def rotate_keks(self, kek_ids: Sequence[str]) -> None:
        """Give each KEK its next version; see ``_rotate``."""
        for kek_id in kek_ids:
            self._rotate(kek_id)

    def retire_keks(self, kek_ids: Sequence[str]) -> None:
        """Let each KEK's newest version alone unwrap; see ``_retire``."""
        for kek_id in kek_ids:
            self._retire(kek_id)

    def set_grants(
        self,
        principal: str,
        grantee: str | None,  # noqa: ARG002 - a token has the policy of a principal, whatever it is called otherwise
        kek_ids: Sequence[str],
    ) -> None:
        """Replace a principal's policy; one without grants has none. ``grantee`` plays no part here.

        Raises:
            UsageError: a KEK is not there, or no policy can have the principal's name.
        """
        name = policy_name(principal, self.vault.settings.prefix)
        path, where = f"sys/policies/acl/{name}", f"principal {principal}"
        missing = [kek_id for kek_id in sorted(set(kek_ids)) if not self._newest(kek_id)]
        if missing:
            raise UsageError(f"{len(missing)} keys are not there, such as key {missing[0]}; make them first")
        if kek_ids:
            self.vault.call("POST", path, where=where, policy=self._policy(principal, kek_ids))
        else:
            self.vault.call("DELETE", path, where=where, absent=True)

    def _policy(self, principal: str, kek_ids: Sequence[str]) -> str:
        paths_of = [decrypt_path, *([data_key_path, rewrap_path] if principal in self.builders else [])]
        paths = sorted({path_of(self.vault.settings, kek_id) for path_of in paths_of for kek_id in kek_ids})
        return "".join(f'path "{path}" {{\n  capabilities = ["update"]\n}}\n' for path in paths)

    def _require(self, kek_id: str) -> int:
        newest = self._newest(kek_id)
        if not newest:
            raise UsageError(f"key {kek_id}: not in Vault; make it first")
        return newest

    def _newest(self, kek_id: str) -> int:
        """The newest version of a KEK, 0 where there is none.

        Raises:
            UsageError: the key in its place is of another form.
        """
        answer = self.vault.call("GET", self._key_path(kek_id), where=f"key {kek_id}", absent=True)
        if not answer:
            return 0
        found: dict[str, Any] = answer.get("data") or {}
        wrong = sorted(name for name, value in FORM.items() if found.get(name, False) != value)
        versions = found.get("keys") or {}
        if wrong or not versions:
            raise UsageError(
                f"key {kek_id}: the transit key in its place is not as it must be ({', '.join(wrong) or 'versions'}); "
                "set another prefix, so that keys are made in the right form"
            )
        return max(int(version) for version in versions)

    def _key_path(self, kek_id: str) -> str:
        return f"{self.vault.settings.mount}/keys/{key_name(self.vault.settings, kek_id)}"


def policy_name(principal: str, prefix: str) -> str:
    """What the policy with the grants of a principal is called.

    Raises:
        UsageError: Vault would take its name for that of another one.
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,63}", principal):
        raise UsageError(f"principal {principal}: Vault has no capitals in names of policies; rename it in the policy")
    return f"{prefix}.{principal}"
