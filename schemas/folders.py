"""Finding and opening a committed build, trusting nothing but what its COMMITTED file seals."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from schemas.documents import parse_document, read_document
from schemas.errors import IntegrityError, PipelineError, UsageError
from schemas.manifests import (
    BUILDS_FOLDER,
    COMMITTED_FILE,
    CURRENT_FILE,
    MANIFEST_FILE,
    VIEWS_FOLDER,
    BuildManifest,
    Commit,
    DepartmentView,
    ShardEntry,
)
from schemas.seals import label, opened, read_verified

BUILD_ID = re.compile(r"b-[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class Build:
    """A committed build whose manifest matches its commit."""

    folder: Path
    commit: Commit
    manifest: BuildManifest

    def shard_path(self, shard: ShardEntry) -> Path:
        """Where a shard's Parquet file lies."""
        return self.folder / shard.path

    def view(self, code: str) -> DepartmentView:
        """The verified view of one department.

        Raises:
            IntegrityError: the view is absent, damaged, or not of this department.
        """
        path = self.folder / VIEWS_FOLDER / f"{code}.json"
        if code not in self.commit.views:
            raise IntegrityError(f"{label(path)}: not sealed by {COMMITTED_FILE}; make the build again")
        view = parse_document(read_verified(path, self.commit.views[code]), DepartmentView, label(path))
        if view.code != code or view.build_id != self.manifest.build_id:
            raise IntegrityError(f"{label(path)}: belongs to another department or build; restore the file")
        return view


def open_build(path: Path) -> Build:
    """Open a build folder, or the current build of a corpus folder.

    Raises:
        UsageError: the folder is neither.
        IntegrityError: the commit or manifest is damaged or does not match the other.
    """
    try:
        folder = _build_folder(path).resolve()
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise UsageError(f"{label(path)}: {reason}; check the path and its permissions") from None
    commit = read_document(folder / COMMITTED_FILE, Commit)
    manifest_path = folder / MANIFEST_FILE
    manifest = parse_document(read_verified(manifest_path, commit.manifest), BuildManifest, label(manifest_path))
    if not (manifest.build_id == commit.build_id == folder.name):
        raise IntegrityError(f"{label(folder)}: folder, manifest and commit name different builds; restore the folder")
    if set(commit.views) != {entry.code for entry in manifest.departments}:
        raise IntegrityError(f"{label(manifest_path)}: departments differ from the sealed views; restore the folder")
    return Build(folder=folder, commit=commit, manifest=manifest)


def current_build_id(corpus: Path) -> str | None:
    """The id of the committed build that readers of a corpus take; None if CURRENT names none."""
    try:
        return certain_build_id(corpus)
    except (PipelineError, OSError):
        return None


def certain_build_id(corpus: Path) -> str | None:
    """As ``current_build_id`` for those who remove builds: None only where there is no CURRENT at all.

    Raises:
        IntegrityError: CURRENT is damaged, or what it names is not committed.
        PipelineError: CURRENT cannot be read.
    """
    current = corpus / CURRENT_FILE
    try:
        current.lstat()
    except FileNotFoundError:
        return None
    except OSError:
        pass  # opening it tells why
    folder = _current_folder(corpus)
    if not (folder / COMMITTED_FILE).is_file():
        raise IntegrityError(f"{label(current)}: names a build that is not committed; run the build again")
    return folder.name


def _build_folder(path: Path) -> Path:
    # A corpus first: it may lie in any folder, also in one that is called as ours are.
    if (path / CURRENT_FILE).exists():
        return _current_folder(path)
    if BUILD_ID.fullmatch(path.resolve().name) and path.is_dir():
        return path
    raise UsageError(f"{label(path)}: no build here; name a corpus folder with {CURRENT_FILE}, or one build in it")


def _current_folder(corpus: Path) -> Path:
    current = corpus / CURRENT_FILE
    with opened(current) as file:
        name = file.read(64).decode("ascii", "replace").removesuffix("\n")
    folder = corpus / BUILDS_FOLDER / name
    if not BUILD_ID.fullmatch(name) or not folder.is_dir():
        raise IntegrityError(f"{label(current)}: names no build of this corpus; restore it or run the build again")
    return folder
