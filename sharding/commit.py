"""The last step: views, manifest, COMMITTED, CURRENT, in this order, so that a reader finds a whole build or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from schemas.documents import write_document
from schemas.errors import IntegrityError
from schemas.folders import BUILD_ID
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
)
from schemas.seals import TEMPORARY_PREFIX, label, publish, wrapped_write
from schemas.tables import schema_fingerprint, shard_schema
from schemas.verification import check_manifest, department_entries, inputs_digest, json_digest, shards_digest
from schemas.version import VERSION
from sharding.config import ShardingSettings
from sharding.identity import RecordKey
from sharding.phi import scanner_version
from sharding.phi_ledger import sum_of_phi
from sharding.scratch import Plan, Scratch, ShardReceipt, read_receipt
from sharding.survey import SealedFile

ENCRYPTION: Literal["none"] = "none"
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


def identify(settings: ShardingSettings, sealed: Sequence[SealedFile], key: RecordKey) -> Identity:
    """The id of a build: a digest of configuration, inputs with their formats, schema, program and build format."""
    config = {
        **settings.model_dump(mode="json"),
        # Their names are confidential.
        "departments": key.table_digest(settings.departments) if settings.departments else None,
        "key_id": key.key_id,
        **({"phi_scanner": scanner_version()} if settings.phi_scan else {}),
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


def make_manifest(
    identity: Identity, plan: Plan, sealed: Sequence[SealedFile], *, settings: ShardingSettings, scratch: Scratch
) -> BuildManifest:
    """What the build says of itself, from the plan and the receipts of its shards."""
    shards = [read_receipt(scratch.shard(shard.shard_id), ShardReceipt).entry for shard in plan.shards]
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
        encryption=ENCRYPTION,
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
        shards=shards,
    )


def commit_build(folder: Path, manifest: BuildManifest, plan: Plan) -> None:
    """Write views and manifest beside the shards, check that nothing else is there, and commit.

    Raises:
        IntegrityError: the manifest does not agree with itself, or a foreign file lies in the build.
    """
    check_manifest(manifest, label(folder / MANIFEST_FILE))
    views = {}
    for entry in manifest.departments:
        view = DepartmentView(
            build_id=manifest.build_id,
            code=entry.code,
            name=plan.names[entry.code],
            ledger=plan.departments[entry.code],
            phi=plan.phi.get(entry.code, {}),
            shards=[shard for shard in manifest.shards if shard.department == entry.code],
        )
        views[entry.code] = write_document(folder / VIEWS_FOLDER / f"{entry.code}.json", view)
    seal = write_document(folder / MANIFEST_FILE, manifest)
    _check_no_strays(folder, manifest.shards, codes=set(views))
    write_document(folder / COMMITTED_FILE, Commit(build_id=manifest.build_id, manifest=seal, views=views))


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


def _check_no_strays(folder: Path, shards: Sequence[ShardEntry], *, codes: set[str]) -> None:
    """Remove what killed workers left half written; anything else that is not listed is foreign."""
    expected = {MANIFEST_FILE, *(shard.path for shard in shards), *(f"{VIEWS_FOLDER}/{code}.json" for code in codes)}
    for path in sorted(folder.rglob("*")):
        if path.name.startswith(TEMPORARY_PREFIX):
            path.unlink(missing_ok=True)
        elif not path.is_dir() and path.relative_to(folder).as_posix() not in expected:
            raise IntegrityError(f"{label(path)}: does not belong to the build; remove it and run again")
