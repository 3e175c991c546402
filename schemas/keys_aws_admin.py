"""Administration of KEKs in AWS KMS: versions are keys with aliases, grants are KMS grants.

A principal has a grant on every version in use of its KEKs, known again by its name, a digest of the principal. Each
change can be done again after it was cut short; a killed one may leave a KMS key without an alias, which nothing uses.
Grants take effect after up to five minutes
(https://docs.aws.amazon.com/kms/latest/developerguide/grants.html, "Eventual consistency for grants"), and they only
add to what IAM and key policies allow: a principal must have no ``kms:Decrypt`` of its own there.

Tested against moto, which keeps keys, aliases, states and grants but enforces neither states nor grants.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from schemas.aws_kms import ALREADY_THERE, NOT_FOUND, Kms
from schemas.canonical import canonical_json
from schemas.errors import UsageError
from schemas.keys import KEK_ID
from schemas.keys_aws import alias_of, description_of, newest_alias, version_of

GRANT = "exactppl-"
READER_OPERATIONS = ("Decrypt", "DescribeKey")
BUILDER_OPERATIONS = (*READER_OPERATIONS, "GenerateDataKey", "ReEncryptFrom", "ReEncryptTo")

# KMS keys by KEK and version.
Versions = dict[str, dict[int, str]]


@dataclass(frozen=True)
class AwsAdministration:
    """A ``KeyAdministration`` with credentials that may create, describe, disable and grant keys and move aliases.

    Attributes:
        kms: The connection.
        builders: Principals who may also make and rewrap data keys.
    """

    kms: Kms
    builders: frozenset[str] = frozenset()

    def make_kek(self, kek_id: str) -> bool:
        """Make version 1 of a KEK unless there is one."""
        alias = newest_alias(self.kms.settings, kek_id)
        if self._described(kek_id, alias):
            return False
        key = self._made(kek_id, 1)
        made = self.kms.call(
            "create_alias", where=f"key {kek_id}", absent=ALREADY_THERE, AliasName=alias, TargetKeyId=key
        )
        return bool(made)

    def _rotate(self, kek_id: str) -> None:
        """Make the next version, give it the grants of the newest, and only then let it be the newest."""
        newest, version = self._newest(kek_id)
        key = self._made(kek_id, version + 1)
        there = {grant["Name"] for grant in self._grants(kek_id, key)}
        for grant in self._grants(kek_id, newest):
            if grant["Name"] not in there:
                self._grant(kek_id, key, grant)
        alias = newest_alias(self.kms.settings, kek_id)
        self.kms.call("update_alias", where=f"key {kek_id}", AliasName=alias, TargetKeyId=key)

    def _retire(self, kek_id: str) -> None:
        """Disable the keys of all versions but the newest; whoever may enable keys can undo it until they are gone."""
        _, newest = self._newest(kek_id)
        for version in range(1, newest):
            described = self._described(kek_id, alias_of(self.kms.settings, kek_id, version))
            if described and described["Enabled"]:
                self.kms.call("disable_key", where=f"key {kek_id}", KeyId=described["KeyId"])

    def rotate_keks(self, kek_ids: Sequence[str]) -> None:
        """Give each KEK its next version; see ``_rotate``."""
        for kek_id in kek_ids:
            self._rotate(kek_id)

    def retire_keks(self, kek_ids: Sequence[str]) -> None:
        """Let each KEK's newest version alone unwrap; see ``_retire``."""
        for kek_id in kek_ids:
            self._retire(kek_id)

    def set_grants(self, principal: str, grantee: str | None, kek_ids: Sequence[str]) -> None:
        """Take all other grants from a principal first, then give it those that it lacks.

        Raises:
            UsageError: a KEK is not there, or the principal has no ARN.
        """
        if not grantee:
            raise UsageError(f"principal {principal}: AWS KMS knows it by its ARN; give it a grantee in the policy")
        versions = self._all()
        if missing := sorted(set(kek_ids) - versions.keys()):
            raise UsageError(f"{len(missing)} keys are not there, such as key {missing[0]}; make them first")
        meant = {
            "Name": grant_name(principal, self.kms.settings.prefix),
            "GranteePrincipal": grantee,
            "Operations": sorted(BUILDER_OPERATIONS if principal in self.builders else READER_OPERATIONS),
        }
        missing_on = [
            (kek_id, key)
            for kek_id, keys in sorted(versions.items())
            for key in keys.values()
            if not self._kept(kek_id, key, meant, wanted=kek_id in kek_ids)
        ]
        for kek_id, key in missing_on:
            if self._described(kek_id, key)["Enabled"]:
                self._grant(kek_id, key, meant)

    def _kept(self, kek_id: str, key: str, meant: dict[str, Any], *, wanted: bool) -> bool:
        """Revoke the principal's grants on a key that are not meant; whether nothing is left to be granted."""
        kept = not wanted
        for grant in self._grants(kek_id, key):
            if grant["Name"] == meant["Name"]:
                if wanted and all(grant[name] == value for name, value in meant.items()):
                    kept = True
                else:
                    self.kms.call("revoke_grant", where=f"key {kek_id}", KeyId=key, GrantId=grant["GrantId"])
        return kept

    def _grant(self, kek_id: str, key: str, grant: dict[str, Any]) -> None:
        parameters = {name: grant[name] for name in ("Name", "GranteePrincipal", "Operations")}
        self.kms.call("create_grant", where=f"key {kek_id}", KeyId=key, **parameters)

    def _grants(self, kek_id: str, key: str) -> list[dict[str, Any]]:
        """Grants on a key that were made here."""
        pages = self.kms.pages("list_grants", where=f"key {kek_id}", KeyId=key)
        found = [grant for page in pages for grant in page["Grants"] if (grant.get("Name") or "").startswith(GRANT)]
        return [{**grant, "Operations": sorted(grant["Operations"])} for grant in found]

    def _made(self, kek_id: str, version: int) -> str:
        """The key of a version, made unless it is there."""
        settings, where = self.kms.settings, f"key {kek_id}"
        alias = alias_of(settings, kek_id, version)
        if there := self._described(kek_id, alias):
            return str(there["KeyId"])
        description = description_of(settings, kek_id, version)
        made = self.kms.call("create_key", where=where, Description=description, KeySpec="SYMMETRIC_DEFAULT")
        key = str(made["KeyMetadata"]["KeyId"])
        self.kms.call("create_alias", where=where, absent=ALREADY_THERE, AliasName=alias, TargetKeyId=key)
        # Of two administrators at once, the first one's key has the alias.
        return str(self._described(kek_id, alias)["KeyId"])

    def _described(self, kek_id: str, key: str) -> dict[str, Any]:
        answer = self.kms.call("describe_key", where=f"key {kek_id}", absent=NOT_FOUND, KeyId=key)
        found: dict[str, Any] = answer.get("KeyMetadata", {})
        return found

    def _newest(self, kek_id: str) -> tuple[str, int]:
        described = self._described(kek_id, newest_alias(self.kms.settings, kek_id))
        if not described:
            raise UsageError(f"key {kek_id}: not in AWS KMS; make it first")
        return str(described["KeyId"]), version_of({"KeyMetadata": described}, self.kms.settings, kek_id)

    def _all(self) -> Versions:
        """The keys of all KEKs under the prefix."""
        form = re.compile(
            rf"alias/{re.escape(self.kms.settings.prefix)}/(?P<kek_id>.+)/v(?P<version>[1-9][0-9]{{0,8}})"
        )
        found: Versions = {}
        for page in self.kms.pages("list_aliases", where="aliases"):
            for alias in page["Aliases"]:
                match = form.fullmatch(alias["AliasName"])
                if match and re.fullmatch(KEK_ID, match["kek_id"]):
                    found.setdefault(match["kek_id"], {})[int(match["version"])] = alias["TargetKeyId"]
        return found


def grant_name(principal: str, prefix: str) -> str:
    """By which the grants of a principal are known again."""
    return GRANT + hashlib.sha256(canonical_json([prefix, principal])).hexdigest()[:32]
