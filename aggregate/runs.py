"""A finished run, opened and checked as far as its documents and its folder go."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from schemas.access import Access
from schemas.canonical import canonical_json
from schemas.documents import parse_document, read_document
from schemas.errors import IntegrityError, UsageError
from schemas.manifests import (
    AUDIT_FOLDER,
    COMPLETE_FILE,
    LOCK_FILE,
    PARTIALS_FOLDER,
    RUN_FILE,
    STATUS_FOLDER,
    BuildManifest,
    RankStatus,
    RunHeader,
    RunManifest,
)
from schemas.seals import label, read_verified
from schemas.signing import SUFFIX

DOCUMENTS = (RUN_FILE, COMPLETE_FILE)
SIDE_FILES = (LOCK_FILE, f"{COMPLETE_FILE}{SUFFIX}")
FOLDERS = (AUDIT_FOLDER, PARTIALS_FOLDER, STATUS_FOLDER)


@dataclass(frozen=True, slots=True)
class Run:
    """A complete run whose header is the one that its manifest sealed."""

    folder: Path
    header: RunHeader
    manifest: RunManifest

    @property
    def where(self) -> str:
        """How messages name the run's manifest."""
        return label(self.folder / COMPLETE_FILE)


def open_run(folder: Path, access: Access | None = None) -> Run:
    """Open a finished run; with a principal's keyring, one that somebody whom it knows has signed.

    Raises:
        UsageError: the folder holds no run.
        IntegrityError: the run is incomplete, or its documents are damaged or contradict each other.
    """
    complete, header_path = folder / COMPLETE_FILE, folder / RUN_FILE
    if not complete.exists():
        if not header_path.exists():
            raise UsageError(f"{label(folder)}: no run here; name the folder that scoring wrote")
        raise IntegrityError(f"{label(complete)}: no such file, the run is incomplete; run scoring again to finish it")
    manifest = (
        access.read_beside(complete, RunManifest, by=access.scorers) if access else read_document(complete, RunManifest)
    )
    header = parse_document(read_verified(header_path, manifest.header), RunHeader, label(header_path))
    if header.run_id != manifest.run_id:
        raise IntegrityError(f"{label(header_path)}: belongs to another run than {COMPLETE_FILE}; restore the folder")
    if header.run_id != run_id_of(header):
        raise IntegrityError(f"{label(header_path)}: run_id is not the digest of the fingerprint; score again")
    return Run(folder=folder, header=header, manifest=manifest)


def run_id_of(header: RunHeader) -> str:
    """The id that a run with this fingerprint must have."""
    return f"r-{hashlib.sha256(canonical_json(header.fingerprint)).hexdigest()[:16]}"


def require_build(run: Run, manifest: BuildManifest) -> None:
    """The run scored this build.

    Raises:
        IntegrityError: it names another build.
    """
    if run.header.build_id != manifest.build_id:
        raise IntegrityError(
            f"{label(run.folder / RUN_FILE)}: scored build {run.header.build_id}, "
            f"this build is {manifest.build_id}; name the build that was scored"
        )


def check_entries(run: Run) -> None:
    """Nothing but a run's own files and folders lies in the run folder.

    Raises:
        IntegrityError: names what does not belong there.
    """
    for path in sorted(run.folder.iterdir()):
        known = path.name in (FOLDERS if path.is_dir() else (*DOCUMENTS, *SIDE_FILES))
        if path.is_symlink() or not known:
            raise IntegrityError(f"{label(path)}: does not belong in a run; remove it")


def check_statuses(run: Run) -> int:
    """Each rank left exactly one intact status; returns the number of ranks.

    Raises:
        IntegrityError: names the status that is absent, damaged, foreign or not of a rank of this run.
    """
    folder, num_ranks = run.folder / STATUS_FOLDER, run.manifest.num_ranks
    expected = {f"rank-{rank:05d}.json": rank for rank in range(num_ranks)}
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if path.name not in expected:
            raise IntegrityError(f"{label(path)}: belongs to none of the run's {num_ranks} ranks; remove it")
    for name, rank in expected.items():
        path = folder / name
        status = read_document(path, RankStatus)
        if (status.rank, status.num_ranks) != (rank, num_ranks) or status.run_id not in (None, run.header.run_id):
            raise IntegrityError(f"{label(path)}: status of another rank or run; score again to write it anew")
    return num_ranks
