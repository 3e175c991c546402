"""The whole of stage 1 on one screen: find, seal, survey, scan, plan, spill, write, commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from schemas.access import Access, KeySource
from schemas.closed import make_closed
from schemas.console import notice
from schemas.errors import IntegrityError, PipelineError, TemporaryError
from schemas.folders import Build, open_build
from schemas.manifests import BUILDS_FOLDER, COMMITTED_FILE, SHARDS_FOLDER
from schemas.seals import is_intact, wrapped_write
from schemas.verification import verify_build
from sharding.blocks import ReadyBlocks, ready_blocks
from sharding.bounds import Bound, bound
from sharding.cluster import Cluster, connected
from sharding.commit import commit_build, keys_of, make_current, make_manifest
from sharding.corpus_keys import believed_current, department_keys, undisturbed
from sharding.jobs import BlockJob, ShardJob, spill_jobs, told
from sharding.lock import locked
from sharding.permit import withdraw
from sharding.plan import make_plan
from sharding.preparation import Prepared, Request, prepare
from sharding.scan import scan_block
from sharding.scratch import Scratch, read_receipt, receipt_path
from sharding.scratch_documents import Plan, ShardReceipt, Survey
from sharding.scratch_folders import clear, clear_abandoned, is_there, make_folder
from sharding.shards import write_shard
from sharding.sources.adapter import NOTES
from sharding.space import Estimate, check_bound, check_space, estimate, needs_of_build, needs_of_plan
from sharding.spill import shard_parts, spill_blocks
from sharding.survey import survey_inputs


def build_corpus(request: Request) -> tuple[Build, bool]:
    """Make a build, resume an interrupted one, or find it finished.

    Returns:
        The committed build, and whether it was made now.

    Raises:
        PipelineError: one of its kinds; whatever is finished is kept for a rerun.
    """
    prepared = prepare(request)
    folder = prepared.identity.folder(request.corpus)
    with locked(prepared.scratch.folder):
        is_new = not (folder / COMMITTED_FILE).exists()
        if is_new:
            _make_build(request, prepared, folder)
        access = request.keys.open() if request.keys else None
        build = open_build(folder, access) if is_new else _open_intact(folder, access)
        if is_new or believed_current(request.corpus, request.keys) is None:
            make_current(request.corpus, prepared.identity.build_id)
        clear(prepared.scratch)
        _clear_others(request.corpus)
    return build, is_new


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, what its build may take by the sizes of the inputs, and what by the plan."""

    build_id: str
    plan: Plan
    most: Bound
    expected: Estimate


def plan_corpus(request: Request, *, dry_run: bool = False) -> Planned:
    """Do pass 1 only; a build of the same inputs goes on from here.

    Args:
        request: As for a build.
        dry_run: Keep nothing of it, but what an interrupted build had left before.
    """
    prepared = prepare(request)
    scratch, settings = prepared.scratch, prepared.recognised.settings
    most = bound(prepared.recognised.files, settings)
    with locked(scratch.folder):
        is_kept = not dry_run or is_there(scratch.folder)
        try:
            make_folder(scratch, None if dry_run and is_kept else request.scratch)
            check_bound(most, needs_of_plan(most, scratch), scratch, ignore=request.ignore_space)
            with connected(request.cluster, scratch.workers()) as cluster:
                survey = survey_blocks(request, prepared, cluster)
                ready = ready_blocks(request, prepared, survey, cluster=cluster)
                plan = _scanned_plan(prepared, survey, ready, cluster=cluster)
        finally:
            if not is_kept:
                clear(scratch)
    return Planned(prepared.identity.build_id, plan, most, estimate(plan, survey, settings))


def survey_blocks(request: Request, prepared: Prepared, cluster: Cluster) -> Survey:
    """The cut of the inputs into blocks."""
    return survey_inputs(
        prepared.sealed,
        prepared.recognised.settings,
        prepared.scratch,
        cluster=cluster,
        block_bytes=request.block_bytes,
    )


def _make_build(request: Request, prepared: Prepared, folder: Path) -> None:
    make_folder(prepared.scratch, request.scratch)
    try:
        make_closed(folder)
    except OSError as error:
        raise wrapped_write(folder, error) from None
    most = bound(prepared.recognised.files, prepared.recognised.settings)
    needs = needs_of_build(most, prepared.scratch, folder)
    check_bound(most, needs, prepared.scratch, ignore=request.ignore_space)
    with connected(request.cluster, prepared.scratch.workers()) as cluster:
        survey = survey_blocks(request, prepared, cluster)
        ready = ready_blocks(request, prepared, survey, cluster=cluster)
        plan = _scanned_plan(prepared, survey, ready, cluster=cluster)
        expected = estimate(plan, survey, prepared.recognised.settings)
        check_space(expected, prepared.scratch, folder, ignore=request.ignore_space)
        if request.keys:
            department_keys(request.corpus, request.keys, _codes(plan), folder.name, scratch=prepared.scratch)
        _write_shards(request, prepared, ready.jobs, plan=plan, cluster=cluster)
    withdraw(prepared.scratch.folder)  # a worker that was taken for dead writes nothing into what is committed now
    with undisturbed(request.corpus, request.keys):
        _commit(prepared, plan, folder, request.keys)


def _commit(prepared: Prepared, plan: Plan, folder: Path, source: KeySource | None) -> None:
    receipts = [_receipt(prepared.scratch, shard.shard_id, folder) for shard in plan.shards]
    keys = keys_of(source, prepared.policy_digest, receipts, scratch=prepared.scratch)
    manifest = make_manifest(
        prepared.identity,
        plan,
        sealed=prepared.sealed,
        settings=prepared.recognised.settings,
        shards=[receipt.entry for receipt in receipts],
        keys=keys,
    )
    commit_build(folder, manifest, plan, keys)


def _receipt(scratch: Scratch, shard_id: str, folder: Path) -> ShardReceipt:
    """The receipt of a shard's file, which it vouches for: of two tries the later one may be of the earlier file.

    Raises:
        TemporaryError: it is of another file; it is gone then, so that the shard is written again.
    """
    marker = scratch.shard(shard_id)
    receipt = read_receipt(scratch, marker, ShardReceipt)
    if not is_intact(folder / receipt.entry.path, receipt.entry.seal):
        receipt_path(marker).unlink(missing_ok=True)
        raise TemporaryError(f"{shard_id}: two workers wrote it at once; run the command again")
    return receipt


def _codes(plan: Plan) -> set[str]:
    """Of the departments that have shards."""
    return {shard.department for shard in plan.shards}


def _open_intact(folder: Path, access: Access | None) -> Build:
    """A committed build whose files are all as sealed; nothing is mended in what others may be reading."""
    try:
        build = open_build(folder, access)
        verify_build(build, deep=False)
    except IntegrityError as error:
        cure = f"remove the folder {BUILDS_FOLDER}/{folder.name} and run the build again"
        raise IntegrityError(f"{error}; to make the whole build again, {cure}") from None
    return build


def _clear_others(corpus: Path) -> None:
    """The build is there whatever happens here, so a failure is said and no more."""
    try:
        num_removed = clear_abandoned(corpus)
    except (PipelineError, OSError):
        notice("scratch: could not be searched for files of stopped builds, which may hold note text; look there")
        return
    if num_removed:
        notice(f"scratch: removed what {num_removed} stopped builds or plans of other inputs or settings had left")


def _scanned_plan(prepared: Prepared, survey: Survey, ready: ReadyBlocks, *, cluster: Cluster) -> Plan:
    cluster.run(scan_block, ready.jobs, title="scan", unit="bytes")
    return make_plan(survey, prepared.recognised.settings, prepared.scratch, sides=ready.sides)


def _write_shards(
    request: Request, prepared: Prepared, blocks: Sequence[BlockJob], *, plan: Plan, cluster: Cluster
) -> None:
    spills = spill_jobs(blocks, plan.assignments)
    cluster.run(spill_blocks, spills, title="spill", unit="bytes")
    for item in prepared.sealed:
        if item.file.use != NOTES:  # whoever has read a block of notes has looked after their file
            item.file.check_unchanged()
    parts = shard_parts(prepared.scratch, num_spills=len(spills), num_shards=len(plan.shards))
    shards = [
        ShardJob(
            shard=shard,
            number=number,
            parts=parts[number],
            block_tokens=plan.block_tokens,
            settings=told(prepared.recognised.settings),
            key_path=prepared.key_path,
            scratch=prepared.scratch,
            build=prepared.identity.folder(request.corpus),
            keys=request.keys,
        )
        for number, shard in enumerate(plan.shards)
    ]
    _make_shard_folders(prepared.identity.folder(request.corpus), plan)
    cluster.run(write_shard, shards, title="write", unit="tokens")


def _make_shard_folders(folder: Path, plan: Plan) -> None:
    """Tasks make none, or a worker that outlives a purge could make the build's folder again."""
    try:
        for code in plan.departments:
            (folder / SHARDS_FOLDER / code).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise wrapped_write(folder, error) from None
