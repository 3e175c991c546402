"""Removing committed builds that readers no longer take, in an order in which no reader finds half a build.

COMMITTED goes first, so what is left by a purge that is stopped is no build to anybody; purging it again removes the
rest. The current build is never removed, nor one that a command is writing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG

from schemas.errors import TemporaryError, UsageError
from schemas.folders import BUILD_ID, certain_build_id
from schemas.manifests import BUILDS_FOLDER, COMMITTED_FILE, REFUSED_FOLDER
from schemas.seals import label, wrapped_write
from sharding.folders import num_bytes
from sharding.lock import locked_if_free
from sharding.permit import remove_tree, withdraw
from sharding.scratch import scratch_of
from sharding.scratch_folders import clear, is_there


@dataclass(frozen=True, slots=True)
class Purged:
    """A build that was removed, or would be."""

    build_id: str
    num_bytes: int


def builds_named(corpus: Path, build_ids: Sequence[str]) -> list[str]:
    """The builds, made or refused, that somebody wants removed, each once, in the order given.

    Raises:
        UsageError: one is not in the corpus, or is the current one.
        IntegrityError: which build is current cannot be told.
    """
    refused = {path.stem for path in (corpus / REFUSED_FOLDER).glob("b-*.json")}
    has_builds = not refused or is_there(corpus / BUILDS_FOLDER)  # a plan can be refused before there is any build
    there = refused | {path.name for path in (_build_folders(corpus) if has_builds else [])}
    unknown = [build_id for build_id in build_ids if build_id not in there]
    if unknown:
        raise UsageError(
            f"{label(corpus)}: no build {', '.join(unknown[:3])} among its {len(there)}; see the folder {BUILDS_FOLDER}"
        )
    for build_id in build_ids:
        _check_not_current(corpus, build_id)
    return list(dict.fromkeys(build_ids))


def builds_beyond(corpus: Path, num_kept: int) -> list[str]:
    """The committed builds that are not among the newest; the current one counts as the newest of all.

    Unfinished builds are not counted and not removed.
    """
    current = certain_build_id(corpus)
    # The only thing that tells their order is when they were committed; equal times go by name.
    committed = {path.name: _committed_ns(path) for path in _build_folders(corpus)}
    newest = sorted(
        ((name == current, since_ns, name) for name, since_ns in committed.items() if since_ns is not None),
        reverse=True,
    )
    return [name for _, _, name in newest[num_kept:]]


def purge(corpus: Path, build_ids: Sequence[str], *, dry_run: bool) -> list[Purged]:
    """Remove builds and what is left of their unfinished work; all of them are free, or none is removed.

    Args:
        corpus: Folder of all builds.
        build_ids: From ``builds_named`` or ``builds_beyond``.
        dry_run: Only say what would be removed.

    Raises:
        TemporaryError: a build is being written.
        UsageError: a build has become the current one, or cannot be removed.
        IntegrityError: which build is current cannot be told.
    """
    with ExitStack() as locks:
        for build_id in build_ids:
            if not locks.enter_context(locked_if_free(scratch_of(corpus, build_id).folder)):
                raise TemporaryError(f"{build_id}: is being written; wait for that build, then purge again")
            _check_not_current(corpus, build_id)
        return [_purged(corpus, build_id, dry_run=dry_run) for build_id in build_ids]


def _purged(corpus: Path, build_id: str, *, dry_run: bool) -> Purged:
    """One build whose lock is ours."""
    scratch, folder = scratch_of(corpus, build_id), corpus / BUILDS_FOLDER / build_id
    refusal = scratch.refusal()
    if not dry_run:
        withdraw(scratch.folder)
    purged = Purged(build_id, num_bytes(folder) + num_bytes(refusal))
    if not dry_run:
        if is_there(folder):
            _remove(folder)
        _forget(refusal)
        if is_there(scratch.folder):
            clear(scratch)
    return purged


def _forget(refusal: Path) -> None:
    """Its folder stays, since another build may be about to write its own refusal there."""
    try:
        refusal.unlink(missing_ok=True)
    except OSError as error:
        raise wrapped_write(refusal, error) from None


def _build_folders(corpus: Path) -> list[Path]:
    """Folders of builds, finished or not; links to elsewhere are none."""
    try:
        found = sorted((corpus / BUILDS_FOLDER).iterdir())
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise UsageError(f"{label(corpus)}: no corpus with builds ({reason}); name one") from None
    return [path for path in found if BUILD_ID.fullmatch(path.name) and path.is_dir() and not path.is_symlink()]


def _committed_ns(folder: Path) -> int | None:
    """When a build was committed; None of one that was not, or is being purged."""
    path = folder / COMMITTED_FILE
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise wrapped_write(path, error) from None
    return status.st_mtime_ns if S_ISREG(status.st_mode) else None


def _check_not_current(corpus: Path, build_id: str) -> None:
    if build_id == certain_build_id(corpus):
        raise UsageError(f"{build_id}: is the current build, which readers take; make another build first")


def _remove(folder: Path) -> None:
    try:
        (folder / COMMITTED_FILE).unlink(missing_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        remove_tree(folder)
        if is_there(folder):
            shutil.rmtree(folder)  # says what hinders
    except OSError as error:
        raise wrapped_write(folder, error) from None
