"""One rank of a scoring run: from the build to its sealed partials, and the totals that all ranks agree on."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from schemas.access import Access
from schemas.console import terminates_cleanly
from schemas.dealing import assign
from schemas.documents import document_bytes, read_document, write_document
from schemas.drift import Fallback
from schemas.errors import IntegrityError, UsageError
from schemas.folders import Build, open_build
from schemas.manifests import (
    COMPLETE_FILE,
    RUN_FILE,
    RunHeader,
    RunManifest,
)
from schemas.partials import BlockKey
from schemas.seals import check_seal, label
from scoring.assignment import RankIdentity, blocks_of
from scoring.blocks import require_sound
from scoring.budget import Budget
from scoring.config import ScoringSettings
from scoring.context import require_encounters
from scoring.devices import default_threads
from scoring.drift import agree_on_drift, drifted, require_small_drift
from scoring.fallback import fallback_of, remove_partials, resumed_bands, settings_after
from scoring.fingerprint import differing_parts, differing_requests
from scoring.finish import finish, require_few_quarantined, seal_run
from scoring.pinning import allowed_cores, bound_to, by_nearness, cores_for
from scoring.publish import Publisher
from scoring.rank import Rank
from scoring.readers import Readers, agree_on_readers, require_readers, share_of
from scoring.resume import RankLedger, clean_up, finished_partials, take_over
from scoring.run_folder import locked_run, require_run_folder
from scoring.session import Session, open_session
from scoring.status import StatusFile
from scoring.sync import ControlPlane, control_plane
from scoring.work import recall_of, score_share

logger = logging.getLogger("scoring.run")


def run_rank(
    build_path: Path, run: Path, settings: ScoringSettings, *, identity: RankIdentity, access: Access | None = None
) -> RunManifest:
    """Score this rank's blocks and take part in the totals.

    Args:
        build_path: Corpus folder or build folder.
        run: Run folder; made when absent, resumed when it holds the same run.
        settings: Of the run, the same on every rank.
        identity: Which rank this is.
        access: What this rank may read; ranks may differ. None for a build in the clear.

    Returns:
        The complete run, equal on every rank.

    Raises:
        PipelineError: see ``schemas.errors``; finished blocks stay usable whatever happens.
    """
    build = open_build(build_path, access)
    if settings.context == "encounter":
        require_encounters(build.manifest)
    asked, settings = settings, resumed_bands(run, _with_choices_of(run, settings, identity))
    require_run_folder(run, build)
    done = finished_run(build, run, settings, access)
    if done is not None:
        return done
    status = StatusFile(run, identity.rank, identity.num_ranks)
    with control_plane(identity, timeout_seconds=settings.timeout) as plane:
        rank = Rank(run, identity, plane, status, access)
        # No status before the lock: a refused second job must leave nothing in the first one's folder.
        with _only_job(rank), status.reporting(), terminates_cleanly(), bound_rank(settings, identity, plane):
            manifest = _score(rank, build, settings)
            while found := drifted(manifest.drift, settings.max_drift):
                if settings.on_drift == "fail":
                    require_small_drift(manifest.drift, limit=settings.max_drift)
                settings = settings_after(settings, found, asked=asked)
                plane.begin_again()
                manifest = _score(rank, build, settings, fallback=fallback_of(asked, manifest.drift))
            if rank.leads:
                seal_run(run, manifest, access)
            plane.wait_for_all("sealed")
            return manifest


def _score(rank: Rank, build: Build, settings: ScoringSettings, *, fallback: Fallback | None = None) -> RunManifest:
    """Score this rank's blocks, and agree on what they sum to; nothing is sealed yet."""
    plane, identity = rank.plane, rank.identity
    with open_session(settings, build, identity=identity, budget=_budget(rank, fallback)) as session:
        expected = blocks_of(build.manifest, limit=settings.limit_blocks)
        _agree_on_header(rank, build, session, settings=settings, fallback=fallback)
        readers = agree_on_readers(build, plane)
        ledger, missing = _resume(rank, build, session, expected, readers=readers)
        todo = {key: tokens for key, tokens in missing.items() if readers[key.department]}
        mine = assign(todo, identity.num_ranks, lambda key: readers[key.department])[identity.rank]
        recall = recall_of(settings, build, session, rank)
        publisher = Publisher(rank, build, session, ledger)
        score_share(publisher, {key: todo[key] for key in mine}, recall)
        rank.status.say("waiting")
        require_sound(plane.gather("broken-shards", rank.broken_shards))
        require_readers(readers, {key.department for key in expected}, audited=rank.audited)
        manifest = finish(rank.folder, plane, ledger, run_id=session.run_id, max_quarantined=settings.max_quarantined)
        drifts = agree_on_drift(plane, ledger, limit=settings.max_drift)
        return manifest.model_copy(update={"drift": drifts})


def finished_run(
    build: Build, run: Path, settings: ScoringSettings, access: Access | None = None
) -> RunManifest | None:
    """The manifest of a run that is complete and sound already, when these settings ask for nothing else.

    Raises:
        UsageError: the folder holds a complete run of another build, model, tokenizer or setting.
        DataError: a precision drifts more, or more records are quarantined, than these settings allow.
    """
    if not (run / COMPLETE_FILE).is_file():
        return None
    header = read_document(run / RUN_FILE, RunHeader)
    differing = differing_requests(header.fingerprint, settings, build)
    if differing:
        raise UsageError(
            f"{label(run)}: holds a finished run that differs in {', '.join(differing)}; use another --out"
        )
    manifest = read_document(run / COMPLETE_FILE, RunManifest)
    try:
        if access is not None:
            access.require_signed(run / COMPLETE_FILE, document_bytes(manifest), by=access.scorers)
        check_seal(run / RUN_FILE, manifest.header)
        for entry in manifest.partials:
            check_seal(run / entry.path, entry.seal)
    except IntegrityError:
        logger.warning("a sealed run is damaged; its broken blocks will be scored again: %s", run)
        return None
    require_few_quarantined(manifest.totals.num_records, manifest.totals.skipped, settings.max_quarantined)
    if settings.on_drift == "fail":
        require_small_drift(manifest.drift, limit=settings.max_drift)
    return None if drifted(manifest.drift, settings.max_drift) else manifest


@contextmanager
def _only_job(rank: Rank) -> Iterator[None]:
    """Hold the run folder against a second job; rank 0 locks for all, and tidies up before any other rank looks."""
    descriptor = locked_run(rank.folder) if rank.leads else None
    try:
        if rank.leads:
            clean_up(rank.folder, rank.identity.num_ranks)
        rank.plane.wait_for_all("folder")
        rank.plane.while_waiting = rank.show_life
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _agree_on_header(
    rank: Rank, build: Build, session: Session, *, settings: ScoringSettings, fallback: Fallback | None
) -> None:
    """All ranks have one fingerprint, which is that of the folder; rank 0 writes run.json, over one that it follows."""
    fingerprints = rank.plane.gather("fingerprints", session.fingerprint)
    for other, fingerprint in enumerate(fingerprints):
        if fingerprint != fingerprints[0]:
            names = ", ".join(differing_parts(fingerprint, fingerprints[0]))
            raise UsageError(f"rank {other} differs from rank 0 in {names}; ranks must be of one kind in one run")
    rank.status.run_id = session.run_id
    path = rank.folder / RUN_FILE
    # Rank 0 reads for all: on a shared file system two ranks may see a folder differently.
    is_there = rank.leads and path.exists()
    [found, *_] = rank.plane.gather("header", read_document(path, RunHeader).fingerprint if is_there else None)
    if found is not None and found != session.fingerprint and fallback is None:
        names = ", ".join(differing_parts(session.fingerprint, found))
        raise UsageError(f"{label(path)}: this run would differ in {names}; use another --out")
    if (found is None or fallback is not None) and rank.leads:
        header = RunHeader(
            run_id=session.run_id,
            build_id=build.manifest.build_id,
            model_name=session.checkpoint.name,
            fingerprint=session.fingerprint,
            selftest=session.selftest.outcomes(),
            limited_to=settings.limit_blocks,
            reduced_from=None if session.menu.tokens == settings.tile_tokens else settings.tile_tokens,
            fallback=fallback,
        )
        write_document(path, header, replace=fallback is not None)
        if fallback is not None:
            remove_partials(rank.folder)


def _resume(
    rank: Rank, build: Build, session: Session, expected: dict[BlockKey, int], *, readers: Readers
) -> tuple[RankLedger, dict[BlockKey, int]]:
    """Verify what is there, each rank its share; the blocks that nobody vouches for are to be scored."""
    if rank.leads:
        # A sealed run that is sound does not come here; what is found is sealed anew at the end.
        (rank.folder / COMPLETE_FILE).unlink(missing_ok=True)
    listed = finished_partials(rank.folder, expected) if rank.leads else []
    [found, *_] = rank.plane.gather("listed", listed)
    share = share_of(found, rank.identity.rank, readers)
    policy, parts = session.policy, session.parts
    shown = rank.shown_alive(share)
    ledger, sound = take_over(rank.folder, shown, run_id=session.run_id, build=build, policy=policy, parts=parts)
    done = {key for keys in rank.plane.gather("verified", sound) for key in keys}
    return ledger, {key: tokens for key, tokens in expected.items() if key not in done}


@contextmanager
def bound_rank(settings: ScoringSettings, identity: RankIdentity, plane: ControlPlane) -> Iterator[None]:
    """Keep the rank on its share of the cores that the ranks of its node have in common, if the settings allow."""
    allowed = allowed_cores()
    granted = plane.gather("cores", allowed if settings.pin == "auto" else [])
    first = identity.rank - identity.local_rank
    num_threads = settings.threads_per_rank or default_threads(identity.num_local_ranks)
    cores = cores_for(
        granted[first : first + identity.num_local_ranks],
        local_rank=identity.local_rank,
        num_threads=num_threads,
        ordered=by_nearness(allowed),
    )
    with bound_to(cores):
        yield


def _with_choices_of(run: Path, settings: ScoringSettings, identity: RankIdentity) -> ScoringSettings:
    """A resumed run keeps its thread count, whatever the world size makes the default now, and its reduced tiles.

    A new one takes its share of the cores, which is counted before the rank is bound to it.
    """
    if not (run / RUN_FILE).is_file():
        num_threads = settings.threads_per_rank or default_threads(identity.num_local_ranks)
        return settings.model_copy(update={"threads_per_rank": num_threads})
    header, kept = read_document(run / RUN_FILE, RunHeader), {}
    if settings.threads_per_rank is None:
        kept["threads_per_rank"] = header.fingerprint["device"]["threads_per_rank"]
    if settings.tile_tokens == header.reduced_from:
        kept["tile_tokens"] = header.fingerprint["compute"]["tile_tokens"]
    return settings.model_copy(update=kept)


def _budget(rank: Rank, fallback: Fallback | None) -> Budget:
    """A run that has its header keeps its tiles; a new one takes those of the rank with the least room."""
    [is_begun, *_] = rank.plane.gather("begun", (rank.folder / RUN_FILE).exists())
    return Budget(
        may_shrink=not is_begun or fallback is not None,
        agree=lambda tokens: min(rank.plane.gather("tile-budget", tokens)),
    )
