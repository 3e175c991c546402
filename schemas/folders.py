"""Finding and opening a committed build, trusting nothing but what its COMMITTED file seals."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from schemas.documents import parse_document, read_document
from schemas.errors import AccessDeniedError, IntegrityError, PipelineError, UsageError
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
from schemas.signing import signature_path

if TYPE_CHECKING:
    from schemas.access import Access
    from schemas.build_keys import BuildKeys

BUILD_ID = re.compile(r"b-[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class Build:
    """A committed build whose manifest matches its commit; ``keys`` are one principal's, if the build has any."""

    folder: Path
    commit: Commit
    manifest: BuildManifest
    keys: BuildKeys | None = None

    @property
    def is_encrypted(self) -> bool:
        """Whether its shards, and the partials of its runs, are."""
        return self.manifest.encryption != "none"

    @property
    def codes(self) -> list[str]:
        """Of its departments."""
        return [entry.code for entry in self.manifest.departments]

    def shard_key(self, shard: ShardEntry) -> bytes | None:
        """The data key of a shard; None where it is in the clear. Errors as ``BuildKeys.shard_key``."""
        return self._keys().shard_key(shard) if self.is_encrypted else None

    def results_key(self, code: str) -> bytes | None:
        """The data key of a department's losses; None where they are in the clear. Errors as ``BuildKeys``."""
        return self._keys().results_key(code) if self.is_encrypted else None

    def may_score(self, code: str) -> bool:
        """Whether notes of a department can be read and their losses written."""
        if not self.is_encrypted:
            return True
        shard = next(shard for shard in self.manifest.shards if shard.department == code)
        return self._keys().may_read_text(shard) and self._keys().may_read_results(code)

    def may_see_results(self, code: str) -> bool:
        """Whether losses of a department, and its name, can be read."""
        return not self.is_encrypted or self._keys().may_read_results(code)

    def _keys(self) -> BuildKeys:
        if self.keys is None:
            raise AccessDeniedError(
                f"{label(self.folder)}: encrypted, and no keyring was named; give --keyring and --principal"
            )
        return self.keys

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

    def department_name(self, code: str) -> str | None:
        """A department's own name; errors as ``view`` and ``results_key``."""
        from schemas.names import opened_name

        view, key = self.view(code), self.results_key(code)
        return view.name if key is None else opened_name(view, key)


def open_build(path: Path, access: Access | None = None) -> Build:
    """Open a build folder, or the current build of a corpus folder.

    Args:
        path: Corpus or build.
        access: A principal's; the build must be signed then. Without, encrypted shards cannot be read.

    Raises:
        UsageError: the folder is neither.
        IntegrityError: the commit or manifest is damaged or does not match the other, or the build is not signed by a
            builder whom the keyring knows.
    """
    try:
        found = _build_folder(path)
        if found.is_symlink() and BUILD_ID.fullmatch(found.name):
            raise UsageError(f"{label(found)}: a link, not a build folder; name the folder itself")
        folder = found.resolve()
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise UsageError(f"{label(path)}: {reason}; check the path and its permissions") from None
    committed = folder / COMMITTED_FILE
    if access and found != path and not signature_path(committed).exists():
        raise IntegrityError(
            f"{label(committed)}: not signed, though {CURRENT_FILE} names it, and who has keys reads none such; "
            "restore its signature or run the encrypted build again; --plaintext alone opens what was made with it"
        )
    commit = access.read_beside(committed, Commit, by=access.builders) if access else read_document(committed, Commit)
    manifest_path = folder / MANIFEST_FILE
    manifest = parse_document(read_verified(manifest_path, commit.manifest), BuildManifest, label(manifest_path))
    if not (manifest.build_id == commit.build_id == folder.name):
        raise IntegrityError(f"{label(folder)}: folder, manifest and commit name different builds; restore the folder")
    if (commit.merkle_root, commit.num_shards) != (manifest.merkle_root, len(manifest.shards)):
        raise IntegrityError(f"{label(manifest_path)}: merkle_root differs from the commit's; restore the folder")
    if set(commit.views) != {entry.code for entry in manifest.departments}:
        raise IntegrityError(f"{label(manifest_path)}: departments differ from the sealed views; restore the folder")
    return Build(folder=folder, commit=commit, manifest=manifest, keys=_build_keys(folder, manifest, access))


def committed_builds(corpus: Path) -> list[Path]:
    """The folders of a corpus' committed builds, by id."""
    found = sorted((corpus / BUILDS_FOLDER).glob("b-*"))
    return [path for path in found if BUILD_ID.fullmatch(path.name) and (path / COMMITTED_FILE).exists()]


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


def _build_keys(folder: Path, manifest: BuildManifest, access: Access | None) -> BuildKeys | None:
    if access is None:
        return None
    from schemas.build_keys import BuildKeys

    return BuildKeys(folder, manifest.build_id, access, manifest.results_checks)


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
