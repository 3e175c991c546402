"""The whole of stage 1 on one screen: find, seal, survey, scan, plan, spill, write, commit."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from schemas.console import notice
from schemas.errors import IntegrityError, PipelineError
from schemas.folders import Build, current_build_id, open_build
from schemas.manifests import BUILDS_FOLDER, COMMITTED_FILE
from schemas.seals import label, wrapped_write
from schemas.verification import verify_build
from sharding.cluster import Cluster, ClusterOptions, connected
from sharding.commit import Identity, commit_build, has_builds, identify, make_current, make_manifest
from sharding.config import ShardingSettings
from sharding.folders import make_closed
from sharding.identity import KEY_FILE, SECRET_FOLDER, RecordKey, corpus_key_path, load_key, make_key
from sharding.inputs import check_apart, find_files
from sharding.jobs import BlockJob, ShardJob, SpillJob
from sharding.lock import locked
from sharding.lookups import LookupJob, Lookups, SideFile, make_lookups
from sharding.plan import make_plan
from sharding.recognition import Recognised, notices_of, recognise
from sharding.scan import scan_block
from sharding.scratch import Plan, Scratch, Survey, scratch_of
from sharding.scratch_folders import clear, clear_abandoned, is_there, make_folder
from sharding.shards import write_shard
from sharding.sources.adapters import ADAPTERS
from sharding.sources.source import Span
from sharding.space import Estimate, check_space, estimate
from sharding.spill import shard_parts, spill_block
from sharding.survey import SealedFile, seal_inputs, survey_inputs

DEFAULT_BLOCK_BYTES = 16 << 20

log = logging.getLogger("sharding.build")


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for.

    Attributes:
        inputs: Files, globs and folders.
        corpus: Folder of all builds.
        settings: What the result depends on.
        cluster: Where the work runs.
        key_path: A record key from elsewhere; the corpus' own when absent.
        block_bytes: Size of the parts in which text files are read.
        scratch: Folder on another disk for unfinished work; in the corpus when absent.
        ignore_space: Whether to begin although a disk is too small.
    """

    inputs: Sequence[str]
    corpus: Path
    settings: ShardingSettings
    cluster: ClusterOptions
    key_path: Path | None = None
    block_bytes: int = DEFAULT_BLOCK_BYTES
    scratch: Path | None = None
    ignore_space: bool = False


@dataclass(frozen=True, slots=True)
class Prepared:
    """Inputs that were found, recognised, checked and sealed, and the build that they make."""

    recognised: Recognised
    sealed: list[SealedFile]
    key_path: Path
    identity: Identity
    scratch: Scratch


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
        build = open_build(folder) if is_new else _open_intact(folder)
        if is_new or current_build_id(request.corpus) is None:
            make_current(request.corpus, prepared.identity.build_id)
        clear(prepared.scratch)
        _clear_others(request.corpus)
    return build, is_new


def plan_corpus(request: Request, *, dry_run: bool = False) -> tuple[Plan, Estimate, str]:
    """Do pass 1 only; a build of the same inputs goes on from here.

    Args:
        request: As for a build.
        dry_run: Keep nothing of it, but what an interrupted build had left before.

    Returns:
        The plan, what the rest of the build will take, and the build's id.
    """
    prepared = prepare(request)
    scratch = prepared.scratch
    with locked(scratch.folder):
        is_kept = not dry_run or is_there(scratch.folder)
        try:
            make_folder(scratch, None if dry_run and is_kept else request.scratch)
            with connected(request.cluster, scratch.workers()) as cluster:
                survey = survey_blocks(request, prepared, cluster)
                plan = _scanned_plan(request, prepared, survey, cluster=cluster)
        finally:
            if not is_kept:
                clear(scratch)
    return plan, estimate(plan, survey, prepared.recognised.settings), prepared.identity.build_id


def prepare(request: Request) -> Prepared:
    """Everything that can be known before a record is read."""
    found = find_files(request.inputs, request.settings.format)
    check_apart(found, request.corpus)
    if request.scratch:
        check_apart(found, request.scratch, "--scratch")
    recognised = recognise(found.files, request.settings)
    for line in notices_of(recognised):
        notice(line)
    if found.num_unknown:
        notice(f"inputs: {found.num_unknown} files of no known format in the folders are left out")
    if found.num_hidden:
        notice(f"inputs: {found.num_hidden} files or folders whose names begin with . or _ are left out")
    key, key_path = _record_key(request)
    _check_same_key(request.corpus, key)
    sealed = seal_inputs(recognised.files)
    identity = identify(recognised.settings, sealed, key)
    log.info("build %s of %d files", identity.build_id, len(sealed))
    return Prepared(recognised, sealed, key_path, identity, scratch_of(request.corpus, identity.build_id))


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
    with connected(request.cluster, prepared.scratch.workers()) as cluster:
        survey = survey_blocks(request, prepared, cluster)
        plan = _scanned_plan(request, prepared, survey, cluster=cluster)
        expected = estimate(plan, survey, prepared.recognised.settings)
        check_space(expected, prepared.scratch, folder, ignore=request.ignore_space)
        _write_shards(request, prepared, survey, plan=plan, cluster=cluster)
    # The workers are gone: nothing writes into the build any more.
    manifest = make_manifest(
        prepared.identity, plan, prepared.sealed, settings=prepared.recognised.settings, scratch=prepared.scratch
    )
    commit_build(folder, manifest, plan)


def _open_intact(folder: Path) -> Build:
    """A committed build whose files are all as sealed; nothing is mended in what others may be reading."""
    try:
        build = open_build(folder)
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


def _scanned_plan(request: Request, prepared: Prepared, survey: Survey, *, cluster: Cluster) -> Plan:
    lookups = _lookups(request, prepared, survey, cluster=cluster)
    if lookups.rejected:
        said = ", ".join(f"{count} {reason}" for reason, count in lookups.rejected.items())
        notice(f"inputs: rows of side files that cannot be read and say nothing: {said}")
    cluster.run(scan_block, _block_jobs(prepared, survey, lookups=sorted(lookups.tables)), title="scan", unit="bytes")
    return make_plan(survey, prepared.recognised.settings, prepared.scratch)


def _write_shards(request: Request, prepared: Prepared, survey: Survey, *, plan: Plan, cluster: Cluster) -> None:
    lookups = _lookups(request, prepared, survey, cluster=cluster)
    blocks = _block_jobs(prepared, survey, lookups=sorted(lookups.tables))
    spills = [SpillJob(block, seal) for block, seal in zip(blocks, plan.assignments, strict=True)]
    cluster.run(spill_block, spills, title="spill", unit="bytes")
    parts = shard_parts(prepared.scratch, num_blocks=len(blocks), num_shards=len(plan.shards))
    shards = [
        ShardJob(
            shard=shard,
            number=number,
            parts=parts[number],
            block_tokens=plan.block_tokens,
            settings=prepared.recognised.settings,
            scratch=prepared.scratch,
            build=prepared.identity.folder(request.corpus),
        )
        for number, shard in enumerate(plan.shards)
    ]
    cluster.run(write_shard, shards, title="write", unit="tokens")


def _lookups(request: Request, prepared: Prepared, survey: Survey, *, cluster: Cluster) -> Lookups:
    """Make the lookup tables of a family of files, unless they are there; none for plain tables."""
    recognised = prepared.recognised
    if recognised.settings.source not in ADAPTERS:
        return Lookups(tables={}, rejected={})
    sides = [
        SideFile(item.file, _plain_path(prepared, survey, number), recognised.side_columns[item.file.path])
        for number, item in enumerate(prepared.sealed)
        if item.file.path in recognised.side_columns
    ]
    job = LookupJob(recognised.settings.source, sides, prepared.scratch, request.block_bytes)
    return cluster.run(make_lookups, [job], title="lookups", unit="bytes")[0]


def _block_jobs(prepared: Prepared, survey: Survey, *, lookups: Sequence[str] = ()) -> list[BlockJob]:
    return [
        BlockJob(
            number=number,
            file=prepared.sealed[block.file].file,
            path=_plain_path(prepared, survey, block.file),
            span=Span(block.start, block.stop, block.num_bytes),
            settings=prepared.recognised.settings,
            key_path=prepared.key_path,
            scratch=prepared.scratch,
            columns=prepared.recognised.note_columns[prepared.sealed[block.file].file.path],
            lookups=lookups,
        )
        for number, block in enumerate(survey.blocks)
    ]


def _plain_path(prepared: Prepared, survey: Survey, number: int) -> Path:
    """An input, or its plain UTF-8 copy."""
    is_copied = survey.files[number].utf8 is not None
    return prepared.scratch.utf8(number) if is_copied else prepared.sealed[number].file.path


def _record_key(request: Request) -> tuple[RecordKey, Path]:
    if request.key_path:
        return load_key(request.key_path), request.key_path.absolute()
    path = corpus_key_path(request.corpus)
    if has_builds(request.corpus) and not path.exists():
        raise IntegrityError(
            f"{label(path)}: absent, but there are builds whose record ids depend on it; "
            "restore it from a backup, or give --record-key, or name a new corpus with --out"
        )
    if make_key(path):
        notice("made the record key of this corpus in its secret folder; back it up: all record ids depend on it")
    return load_key(path), path.absolute()


def _check_same_key(corpus: Path, key: RecordKey) -> None:
    """Ids stay the same from build to build, so the key does; a damaged build has its own error."""
    try:
        current = open_build(corpus).manifest.config.get("key_id") if current_build_id(corpus) else None
    except IntegrityError:
        return
    if current not in (None, key.key_id):
        raise IntegrityError(
            f"record key: its id is {key.key_id}, the current build was made with {current}; "
            f"restore {SECRET_FOLDER}/{KEY_FILE} from your backup, or name a new corpus"
        )
