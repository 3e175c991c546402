"""Is a build on disk the build that was sealed? The same checks for whoever wrote it and whoever reads it.

Nothing is believed but the seals under COMMITTED: every file is accounted for, every seal holds, and the manifest, the
views and the Parquet files tell one story. ``deep`` also reads every record.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from schemas.audit_logs import require_heads
from schemas.blocks import block_entries, blocks_digest
from schemas.canonical import canonical_json
from schemas.errors import IntegrityError
from schemas.folders import Build
from schemas.ledgers import BuildLedger, PhiCount
from schemas.manifests import (
    COMMITTED_FILE,
    CURRENT_FILE,
    KEYS_FOLDER,
    MANIFEST_FILE,
    SHARDS_FOLDER,
    VIEWS_FOLDER,
    BuildManifest,
    DepartmentEntry,
    ShardEntry,
)
from schemas.multiset import digest_sum, id_bytes, multiset_hex, row_digests
from schemas.proofs import require_proofs, root_of
from schemas.seals import TEMPORARY_PREFIX, Seal, check_seal, label
from schemas.shard_files import open_shard, read_shard
from schemas.signatures import verify_signatures
from schemas.signing import SUFFIX
from schemas.tables import check, schema_fingerprint, shard_schema

AGAIN = "restore the file or make the build again"


def verify_build(build: Build, *, deep: bool) -> dict[str, int]:
    """Check a committed build.

    Args:
        build: From ``schemas.folders.open_build``, which has checked the commit and the manifest's seal.
        deep: Also read every record: digests of blocks, shards and the whole, and no record twice. Of an encrypted
            build that takes the keys of all departments.

    Returns:
        How many things of each kind were checked and found right.

    Raises:
        IntegrityError: names the first file that is not as sealed, and what differs.
    """
    manifest = build.manifest
    where = label(build.folder / MANIFEST_FILE)
    num_files = check_files(build)
    corpus = build.folder.parents[1]
    if (corpus / CURRENT_FILE).exists():  # a build that was copied alone comes without the corpus' log
        require_heads(corpus, build.commit.audit)
    check_manifest(manifest, where)
    check_views(build)
    for shard in manifest.shards:
        check_seal(build.shard_path(shard), shard.seal)
    checked = {"files": num_files, "departments": len(manifest.departments), "shards": len(manifest.shards)}
    if build.is_encrypted and build.keys:
        checked["signatures"] = verify_signatures(build, build.keys.access.builders)
    if deep or not build.is_encrypted:  # whoever holds no keys sees no blocks
        for shard in manifest.shards:
            check_footer(build, shard)
        checked["blocks"] = sum(len(shard.blocks) for shard in manifest.shards)
    return {**checked, "records": check_records(build)} if deep else checked


def check_files(build: Build) -> int:
    """The build's folder holds what the manifest lists and nothing else; returns the number of files."""
    expected = {COMMITTED_FILE, MANIFEST_FILE}
    expected |= {f"{VIEWS_FOLDER}/{code}.json" for code in build.commit.views}
    expected |= {shard.path for shard in build.manifest.shards}
    if build.is_encrypted:
        expected |= signed_files(build.commit.views)
    num_files = len(expected)
    folders = {parent.as_posix() for path in expected for parent in Path(path).parents}
    for path in sorted(build.folder.rglob("*")):
        name = path.relative_to(build.folder).as_posix()
        if name.startswith(f"{KEYS_FOLDER}/{TEMPORARY_PREFIX}"):
            continue  # a rotation of keys is at work, or was stopped
        plain = path.is_dir() if name in folders else path.is_file() and name in expected
        if path.is_symlink() or not plain:
            raise IntegrityError(f"{label(path)}: not listed in the build, or of another kind; remove or restore it")
        expected.discard(name)
    if expected:
        missing = build.folder / min(expected)
        raise IntegrityError(f"{label(missing)}: {len(expected)} sealed files are absent, this is the first; {AGAIN}")
    return num_files


def signed_files(codes: Iterable[str]) -> set[str]:
    """What lies in an encrypted build besides what any build has: wrapped keys, and signatures."""
    keys = {f"{KEYS_FOLDER}/{code}.json" for code in codes}
    views = {f"{VIEWS_FOLDER}/{code}.json" for code in codes}
    return {f"{name}{SUFFIX}" for name in keys | views | {COMMITTED_FILE}}


def check_manifest(manifest: BuildManifest, where: str) -> None:
    """The manifest agrees with itself: ledger, digests, totals of blocks, shards and departments."""
    ledger, sides, shards = manifest.ledger, manifest.side_rows, manifest.shards
    claims = {
        "config_digest": manifest.config_digest == json_digest(manifest.config),
        "inputs_digest": manifest.inputs_digest == inputs_digest(entry.seal for entry in manifest.inputs),
        "schema_fingerprint": manifest.schema_fingerprint == schema_fingerprint(shard_schema(manifest.features)),
        "content_digest": manifest.content_digest == shards_digest(shards),
        "ledger": ledger.balances and min([0, *ledger.duplicates.values(), *ledger.rejected.values()]) == 0,
        "side_rows": min([0, *sides.rejected.values()]) == 0 and sum(sides.rejected.values()) <= sides.num_read,
        "inputs": ledger.num_read == sum(entry.num_read for entry in manifest.inputs),
        "num_kept": ledger.num_kept == sum(shard.num_records for shard in shards),
        "shards": len({shard.shard_id for shard in shards}) == len(shards) and all(map(_sound_shard, shards)),
        "phi": _sound_phi(manifest.phi, scanned=manifest.phi_scanned),
        "departments": manifest.departments == department_entries(shards),
        "merkle_root": manifest.merkle_root == root_of(shards),
        "encryption": _sound_encryption(manifest),
    }
    wrong = sorted(name for name, holds in claims.items() if not holds)
    if wrong:
        raise IntegrityError(f"{where}: {', '.join(wrong)} do not agree with the rest of the manifest; {AGAIN}")


def check_views(build: Build) -> None:
    """Each department's view is sealed, lists just its shards, and its ledger is a balanced part of the whole one."""
    manifest = build.manifest
    parts: Counter[tuple[str, str]] = Counter()
    phi: Counter[tuple[str, str]] = Counter()
    for entry in manifest.departments:
        where = label(build.folder / VIEWS_FOLDER / f"{entry.code}.json")
        view = build.view(entry.code)
        if view.shards != [shard for shard in manifest.shards if shard.department == entry.code]:
            raise IntegrityError(f"{where}: shards differ from the manifest's; {AGAIN}")
        require_proofs(view, build.commit, where)
        if not view.ledger.balances or view.ledger.num_kept != entry.num_records:
            raise IntegrityError(f"{where}: the ledger does not balance; {AGAIN}")
        parts.update(_ledger_counts(view.ledger))
        phi.update(_phi_counts(view.phi))
    if phi != Counter(_phi_counts(manifest.phi)):
        raise IntegrityError(f"{label(build.folder / VIEWS_FOLDER)}: phi does not sum to the manifest's; {AGAIN}")
    whole = Counter(_ledger_counts(manifest.ledger))
    # Records without a readable department are in the whole ledger only, so the parts may sum to less.
    if any(count > whole[reason] for reason, count in parts.items()):
        raise IntegrityError(f"{label(build.folder / VIEWS_FOLDER)}: ledgers sum to more than the manifest's; {AGAIN}")


def check_footer(build: Build, shard: ShardEntry) -> None:
    """A shard's row groups and columns are those of the manifest."""
    where = label(build.shard_path(shard))
    with open_shard(build, shard) as file:
        counts = [file.metadata.row_group(index).num_rows for index in range(file.metadata.num_row_groups)]
        if counts != [block.num_records for block in shard.blocks]:
            raise IntegrityError(f"{where}: row groups differ from the manifest's blocks; {AGAIN}")
        check(pa.Table.from_batches([], file.schema_arrow), shard_schema(build.manifest.features), where)


def check_records(build: Build) -> int:
    """Every record is as the digests say, and none is there twice; returns the number of records."""
    total, ids = 0, [np.empty((0, 16), dtype=np.uint8)]
    for shard in build.manifest.shards:
        where = label(build.shard_path(shard))
        table = read_shard(build, shard)
        check_content(table, shard, where)
        _check_department(table, build.department_name(shard.department), where)
        total += digest_sum(row_digests(table))
        ids.append(id_matrix(table))
    where = label(build.folder / MANIFEST_FILE)
    if multiset_hex(total) != build.manifest.multiset_digest:
        raise IntegrityError(f"{where}: the shards hold other records than the multiset digest says; {AGAIN}")
    num_repeated = count_repeated(np.concatenate(ids))
    if num_repeated:
        raise IntegrityError(f"{where}: {num_repeated} record ids occur more than once; {AGAIN}")
    return sum(len(part) for part in ids)


def check_content(table: pa.Table, shard: ShardEntry, where: str) -> None:
    """The rows of a shard give the manifest's digests and sums, block by block."""
    counts = [block.num_records for block in shard.blocks]
    if sum(counts) != table.num_rows:
        raise IntegrityError(f"{where}: {table.num_rows} records, {sum(counts)} in the manifest's blocks; {AGAIN}")
    for index, (found, block) in enumerate(zip(block_entries(table, counts), shard.blocks, strict=True)):
        if found != block:
            raise IntegrityError(f"{where}: block {index} has other content than the manifest says; {AGAIN}")
    if not pc.all(pc.equal(pc.binary_length(table.column("text")), table.column("num_bytes"))).as_py():
        raise IntegrityError(f"{where}: num_bytes is not the length of text; {AGAIN}")


def json_digest(value: Any) -> str:
    """Hex SHA-256 of a JSON value's canonical bytes."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def inputs_digest(seals: Iterable[Seal]) -> str:
    """Hex SHA-256 over the inputs' seals, in any order."""
    return json_digest(sorted((seal.model_dump(mode="json") for seal in seals), key=lambda seal: seal["sha256"]))


def shards_digest(shards: Iterable[ShardEntry]) -> str:
    """Hex SHA-256 over the shards' content digests: the content of a whole build."""
    return json_digest({shard.shard_id: shard.content_digest for shard in shards})


def department_entries(shards: Sequence[ShardEntry]) -> list[DepartmentEntry]:
    """Totals per department, ordered by code."""
    entries = []
    for code in sorted({shard.department for shard in shards}):
        own = [shard for shard in shards if shard.department == code]
        entries.append(
            DepartmentEntry(
                code=code,
                num_records=sum(shard.num_records for shard in own),
                num_shards=len(own),
                estimated_tokens=sum(shard.estimated_tokens for shard in own),
            )
        )
    return entries


def id_matrix(table: pa.Table) -> NDArray[np.uint8]:
    """The record ids of a table as uint8 of shape [rows, 16]."""
    return id_bytes(table.column("record_id"))


def count_repeated(ids: NDArray[np.uint8]) -> int:
    """How many rows of a [rows, 16] uint8 array equal an earlier one."""
    halves = np.ascontiguousarray(ids).view("<u8").reshape(-1, 2)
    halves = halves[np.lexsort((halves[:, 1], halves[:, 0]))]
    return int((halves[1:] == halves[:-1]).all(axis=1).sum())


def _sound_shard(shard: ShardEntry) -> bool:
    return (
        shard.shard_id.startswith(f"{shard.department}-")
        and shard.path == f"{SHARDS_FOLDER}/{shard.department}/{shard.shard_id}.parquet"
        and shard.num_records == sum(block.num_records for block in shard.blocks)
        and shard.estimated_tokens == sum(block.estimated_tokens for block in shard.blocks)
        and shard.content_digest == blocks_digest(shard.blocks)
    )


def _ledger_counts(ledger: BuildLedger) -> dict[tuple[str, str], int]:
    duplicates = {("duplicates", name): count for name, count in ledger.duplicates.items()}
    return {**duplicates, **{("rejected", name): count for name, count in ledger.rejected.items()}}


def _sound_phi(phi: Mapping[str, PhiCount], *, scanned: bool) -> bool:
    """Every record with a finding has at least one, and nothing was found where nothing was looked for."""
    return (scanned or not phi) and all(count.records <= count.findings for count in phi.values())


def _phi_counts(phi: Mapping[str, PhiCount]) -> dict[tuple[str, str], int]:
    records = {("records", kind): count.records for kind, count in phi.items()}
    return {**records, **{("findings", kind): count.findings for kind, count in phi.items()}}


def _sound_encryption(manifest: BuildManifest) -> bool:
    """Every shard and department of an encrypted build has a key, and none of another."""
    encrypted = manifest.encryption != "none"
    checks = set(manifest.results_checks) == ({entry.code for entry in manifest.departments} if encrypted else set())
    return checks and all((shard.key_check is not None) == encrypted for shard in manifest.shards)


def _check_department(table: pa.Table, name: str | None, where: str) -> None:
    names = pc.unique(table.column("department")).to_pylist()
    if names != [name]:
        raise IntegrityError(f"{where}: holds records of {len(names)} departments, not just the view's; {AGAIN}")
