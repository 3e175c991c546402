"""The last step: views, manifest, COMMITTED, CURRENT, in this order, so that a reader finds a whole build or none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from schemas.access import Access, KeySource
from schemas.audit_events import AuditHead
from schemas.audit_logs import corpus_log, heads_of
from schemas.build_keys import DepartmentKeys, keys_path, results_context, shard_context
from schemas.documents import Document, write_document
from schemas.errors import AccessDeniedError, IntegrityError, TemporaryError
from schemas.folders import BUILD_ID
from schemas.keys import WrappedKey
from schemas.manifests import (
    BUILDS_FOLDER,
    COMMITTED_FILE,
    CURRENT_FILE,
    MANIFEST_FILE,
    VIEWS_FOLDER,
    BuildManifest,
    Commit,
    DepartmentView,
    InputFile,
    ShardEntry,
    ShardProof,
)
from schemas.names import sealed_name
from schemas.proofs import proofs_of, root_of
from schemas.seals import TEMPORARY_PREFIX, Seal, label, publish, wrapped_write
from schemas.tables import schema_fingerprint, shard_schema
from schemas.verification import (
    check_manifest,
    department_entries,
    inputs_digest,
    json_digest,
    shards_digest,
    signed_files,
)
from schemas.version import VERSION
from sharding.config import ShardingSettings
from sharding.identity import RecordKey
from sharding.phi import scanner_version
from sharding.phi_ledger import sum_of_phi
from sharding.scratch import Scratch
from sharding.scratch_documents import Plan, ResultsKeys, ShardReceipt
from sharding.survey import SealedFile

ENCRYPTED: Literal["parquet-aes-256-gcm"] = "parquet-aes-256-gcm"
# To be raised when scratch files or digests of the same inputs become others, so that no build goes on from old ones.
BUILD_FORMAT = 3


@dataclass(frozen=True, slots=True)
class Identity:
    """What makes a build this build and no other."""

    build_id: str
    config: dict[str, Any]
    inputs_digest: str
    schema_fingerprint: str

    def folder(self, corpus: Path) -> Path:
        """Where the build lies in its corpus."""
        return corpus / BUILDS_FOLDER / self.build_id


def identify(
    settings: ShardingSettings, sealed: Sequence[SealedFile], key: RecordKey, *, is_encrypted: bool = False
) -> Identity:
    """The id of a build: a digest of configuration, inputs with their formats, schema, program and build format."""
    config = {
        **settings.model_dump(mode="json"),
        # Their names are confidential.
        "departments": key.table_digest(settings.departments) if settings.departments else None,
        "key_id": key.key_id,
        **({"phi_scanner": scanner_version()} if settings.phi_scan else {}),
        **({"encryption": ENCRYPTED} if is_encrypted else {}),
    }
    fingerprint = schema_fingerprint(shard_schema(settings.feature_names))
    material = {
        "config": config,
        "format": BUILD_FORMAT,
        "inputs": sorted([item.seal.sha256, *item.file.read_as] for item in sealed),
        "schema": fingerprint,
        "version": VERSION,
    }
    return Identity(
        build_id=f"b-{json_digest(material)[:16]}",
        config=config,
        inputs_digest=inputs_digest(item.seal for item in sealed),
        schema_fingerprint=fingerprint,
    )


@dataclass(frozen=True, slots=True)
class Keys:
    """What an encrypted build was made with: a builder's keyring, the policy, and all wrapped keys."""

    access: Access
    policy_digest: str
    results: ResultsKeys
    shards: dict[str, WrappedKey]


def keys_of(
    source: KeySource | None, policy_digest: str | None, receipts: Iterable[ShardReceipt], *, scratch: Scratch
) -> Keys | None:
    """The keys of a build whose shards are all written; None for one in the clear.

    Raises:
        TemporaryError: keys were rotated since a shard was written; the next try writes it under a new key.
    """
    if source is None or policy_digest is None:
        return None
    wrapped = {receipt.entry.shard_id: receipt.wrapped for receipt in receipts if receipt.wrapped is not None}
    access, drawn = source.open(), scratch.read_document(scratch.results_keys(), ResultsKeys)
    rewrap, build_id = access.keys.rewrap, scratch.build_id
    try:  # under the newest versions: since they were wrapped, somebody may have been revoked
        shards = {shard: rewrap(key, shard_context(build_id, shard)) for shard, key in wrapped.items()}
        results = {code: rewrap(key, results_context(build_id, code)) for code, key in drawn.keys.items()}
    except AccessDeniedError:
        raise TemporaryError(f"{scratch.build_id}: keys were rotated meanwhile; run the command again") from None
    return Keys(access, policy_digest, drawn.model_copy(update={"keys": results}), shards)


def make_manifest(
    identity: Identity,
    plan: Plan,
    *,
    sealed: Sequence[SealedFile],
    settings: ShardingSettings,
    shards: Sequence[ShardEntry],
    keys: Keys | None = None,
) -> BuildManifest:
    """What the build says of itself, from the plan and what was written of it."""
    return BuildManifest(
        build_id=identity.build_id,
        exactppl_version=VERSION,
        config=identity.config,
        config_digest=json_digest(identity.config),
        inputs=[
            InputFile(seal=item.seal, num_read=num_read) for item, num_read in zip(sealed, plan.num_read, strict=True)
        ],
        inputs_digest=identity.inputs_digest,
        schema_fingerprint=identity.schema_fingerprint,
        features=settings.feature_names,
        encryption=ENCRYPTED if keys else "none",
        policy_digest=keys.policy_digest if keys else None,
        results_checks=keys.results.checks if keys else {},
        merkle_root=root_of(shards),
        limited_to=settings.limit,
        ledger=plan.ledger,
        side_rows=plan.side_rows,
        unresolved=plan.unresolved,
        phi_scanned=plan.phi_scanned,
        phi=sum_of_phi(plan.phi.values()),
        balance=plan.balance,
        multiset_digest=plan.multiset_digest,
        content_digest=shards_digest(shards),
        departments=department_entries(shards),
        shards=list(shards),
    )


def commit_build(folder: Path, manifest: BuildManifest, plan: Plan, keys: Keys | None = None) -> None:
    """Write views, wrapped keys and manifest beside the shards, check that nothing else is there, and commit.

    Raises:
        IntegrityError: the manifest does not agree with itself, or a foreign file lies in the build.
    """
    check_manifest(manifest, label(folder / MANIFEST_FILE))
    proofs, views = proofs_of(manifest.shards), {}
    for entry in manifest.departments:
        view = _view(manifest, plan, entry.code, proofs=proofs, keys=keys)
        views[entry.code] = _write(folder / VIEWS_FOLDER / f"{entry.code}.json", view, keys)
        if keys:
            keys.access.publish_signed(keys_path(folder, entry.code), _department_keys(manifest, view, keys))
    seal = write_document(folder / MANIFEST_FILE, manifest, replace=True)
    _check_no_strays(folder, manifest, is_signed=keys is not None)
    commit = Commit(
        build_id=manifest.build_id,
        manifest=seal,
        views=views,
        merkle_root=manifest.merkle_root,
        num_shards=len(manifest.shards),
        audit=_audited(folder.parents[1], manifest.build_id, keys),
    )
    _write(folder / COMMITTED_FILE, commit, keys)


def has_builds(corpus: Path) -> bool:
    """Whether a corpus holds any build, finished or not.

    Raises:
        TemporaryError: the disk failed.
        UsageError: it cannot be known, since the folder is closed.
    """
    folder = corpus / BUILDS_FOLDER
    try:
        return any(BUILD_ID.fullmatch(path.name) for path in folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise wrapped_write(folder, error) from None


def make_current(corpus: Path, build_id: str) -> None:
    """Let readers of the corpus take this build from now on."""
    publish(corpus / CURRENT_FILE, f"{build_id}\n".encode(), replace=True)


def _audited(corpus: Path, build_id: str, keys: Keys | None) -> dict[str, AuditHead]:
    """Note the build in the corpus' log, and say where that stands."""
    if keys is None:
        return {}
    corpus_log(corpus, keys.access).append("build", build_id, "done")
    return heads_of(corpus)


def _view(
    manifest: BuildManifest, plan: Plan, code: str, *, proofs: Mapping[str, ShardProof], keys: Keys | None
) -> DepartmentView:
    shards = [shard for shard in manifest.shards if shard.department == code]
    name, hidden = plan.names[code], None
    if keys:
        context = results_context(manifest.build_id, code)
        secret = keys.access.keys.decrypt(keys.results.keys[code], context)
        name, hidden = None, sealed_name(name, secret, build_id=manifest.build_id, code=code)
    return DepartmentView(
        build_id=manifest.build_id,
        code=code,
        name=name,
        sealed_name=hidden,
        ledger=plan.departments[code],
        phi=plan.phi.get(code, {}),
        shards=shards,
        proofs=[proofs[shard.shard_id] for shard in shards],
    )


def _department_keys(manifest: BuildManifest, view: DepartmentView, keys: Keys) -> DepartmentKeys:
    return DepartmentKeys(
        build_id=manifest.build_id,
        code=view.code,
        results=keys.results.keys[view.code],
        shards={shard.shard_id: keys.shards[shard.shard_id] for shard in view.shards},
    )


def _write(path: Path, document: Document, keys: Keys | None) -> Seal:
    """Publish a document, with its signature if the build has keys."""
    return keys.access.publish_beside(path, document) if keys else write_document(path, document, replace=True)


def _check_no_strays(folder: Path, manifest: BuildManifest, *, is_signed: bool) -> None:
    """Remove what killed workers left half written; anything else that is not listed is foreign."""
    codes = [entry.code for entry in manifest.departments]
    expected = {MANIFEST_FILE, *(shard.path for shard in manifest.shards)}
    expected |= {f"{VIEWS_FOLDER}/{code}.json" for code in codes}
    if is_signed:
        expected |= signed_files(codes)
    for path in sorted(folder.rglob("*")):
        if path.name.startswith(TEMPORARY_PREFIX):
            path.unlink(missing_ok=True)
        elif not path.is_dir() and path.relative_to(folder).as_posix() not in expected:
            raise IntegrityError(f"{label(path)}: does not belong to the build; remove it and run again")
