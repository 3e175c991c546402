"""The keys of a build: which are wrapped where, and who can open them.

``builds/<build_id>/keys/<code>.json.dsse`` holds a department's data keys, one per shard under the KEK ``<code>/text``
and one for its losses under ``<code>/results``. A rotation wraps them anew and signs the file anew; neither the
manifest nor a shard changes, since the manifest knows each key by its check value only.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import Field

from schemas.access import Access
from schemas.ciphers import derived_key, key_check
from schemas.documents import Document, document_content, parse_document
from schemas.errors import AccessDeniedError, IntegrityError
from schemas.keys import Context, WrappedKey
from schemas.manifests import KEYS_FOLDER, ShardEntry
from schemas.patterns import CODE
from schemas.seals import label
from schemas.signing import SUFFIX, PublicKey, payload_of


class DepartmentKeys(Document):
    """A department's wrapped data keys in one build."""

    kind = "exactppl.department-keys"

    build_id: str = Field(pattern=r"^b-[0-9a-f]{16}$")
    code: str = Field(pattern=CODE)
    results: WrappedKey
    shards: dict[str, WrappedKey]


def shard_context(build_id: str, shard_id: str) -> Context:
    """What the wrapping of a shard's key is bound to."""
    return {"build": build_id, "shard": shard_id}


def results_context(build_id: str, code: str) -> Context:
    """What the wrapping of a department's key for losses is bound to."""
    return {"build": build_id, "department": code}


def shard_place(build_id: str, shard_id: str) -> str:
    """What the bytes of an encrypted shard are bound to (AAD prefix)."""
    return f"{build_id}/{shard_id}"


def partial_key(results_key: bytes, run_id: str, block: str) -> bytes:
    """The key of one block's partial in one run; it encrypts nothing else."""
    return derived_key(results_key, "partial", run_id, block)


def keys_path(build: Path, code: str) -> Path:
    """Where a department's wrapped keys lie."""
    return build / KEYS_FOLDER / f"{code}.json{SUFFIX}"


def read_department_keys(build: Path, code: str, access: Access) -> DepartmentKeys:
    """A department's wrapped keys, as a builder whom the keyring knows has signed them; errors as below."""
    return signed_department_keys(build, code, access.builders)


def signed_department_keys(build: Path, code: str, trusted: Sequence[PublicKey]) -> DepartmentKeys:
    """A department's wrapped keys, as one of these has signed them.

    Raises:
        IntegrityError: the file is absent, damaged, not signed so, or of another build or department.
    """
    path = keys_path(build, code)
    payload = payload_of(document_content(path), trusted, label(path))
    document = parse_document(payload, DepartmentKeys, label(path))
    if (document.build_id, document.code) != (build.name, code):
        raise IntegrityError(f"{label(path)}: of another build or department; restore the file")
    return document


def codes_with_keys(build: Path) -> list[str]:
    """Codes of the departments whose wrapped keys lie in a build's folder."""
    return sorted(path.name.partition(".")[0] for path in (build / KEYS_FOLDER).glob(f"d-*{SUFFIX}"))


@dataclass(slots=True)
class BuildKeys:
    """One principal's way into one build; keys are unwrapped when they are first asked for.

    Attributes:
        folder: Of the build.
        build_id: Its id.
        access: The principal's.
        results_checks: Check value of each department's key for losses, from the manifest.
    """

    folder: Path
    build_id: str
    access: Access
    results_checks: Mapping[str, str]
    _documents: dict[str, DepartmentKeys] = field(default_factory=dict, repr=False)
    _results: dict[str, bytes] = field(default_factory=dict, repr=False)

    def shard_key(self, shard: ShardEntry) -> bytes:
        """The data key of a shard.

        Raises:
            AccessDeniedError: the principal was not granted the department's notes.
            IntegrityError: the wrapped key is absent, damaged, or not that of the shard.
        """
        wrapped = self.document(shard.department).shards.get(shard.shard_id)
        where = label(keys_path(self.folder, shard.department))
        if wrapped is None:
            raise IntegrityError(f"{where}: no key of {shard.shard_id}; restore the file")
        key = self.access.keys.decrypt(wrapped, shard_context(self.build_id, shard.shard_id))
        return _checked(key, shard.key_check, f"{where} {shard.shard_id}")

    def results_key(self, code: str) -> bytes:
        """The data key of a department's losses; errors as ``shard_key``."""
        if code not in self._results:
            wrapped = self.document(code).results
            key = self.access.keys.decrypt(wrapped, results_context(self.build_id, code))
            where = f"{label(keys_path(self.folder, code))} results"
            self._results[code] = _checked(key, self.results_checks.get(code), where)
        return self._results[code]

    def document(self, code: str) -> DepartmentKeys:
        """A department's wrapped keys, as a builder or an administrator of keys has signed them."""
        if code not in self._documents:
            self._documents[code] = read_department_keys(self.folder, code, self.access)
        return self._documents[code]

    def may_read_text(self, shard: ShardEntry) -> bool:
        """Whether the principal can open the notes of a shard, and so those of its department."""
        try:
            self.shard_key(shard)
        except AccessDeniedError:
            return False
        return True

    def may_read_results(self, code: str) -> bool:
        """Whether the principal can open the department's losses."""
        try:
            self.results_key(code)
        except AccessDeniedError:
            return False
        return True


def _checked(key: bytes, check: str | None, where: str) -> bytes:
    if check is None or not hmac.compare_digest(key_check(key), check):
        raise IntegrityError(f"{where}: not the key that the manifest knows; restore the file")
    return key
