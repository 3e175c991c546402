"""A department's files, checked by a node that has nothing else of the build: COMMITTED, the view, and its shards."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from schemas.documents import document_content, parse_document
from schemas.errors import IntegrityError
from schemas.manifests import COMMITTED_FILE, SHARDS_FOLDER, VIEWS_FOLDER, Commit, DepartmentView
from schemas.proofs import require_proofs
from schemas.seals import check_seal, label, require_seal, seal_bytes
from schemas.signing import PublicKey, require_signature

AGAIN = "restore the file, or copy it from the build again"


def verify_view(folder: Path, code: str, trusted: Sequence[PublicKey]) -> dict[str, int]:
    """Check one department's part of a build without the manifest.

    Args:
        folder: Holds COMMITTED, ``views/<code>.json``, their signatures, and ``shards/<code>``.
        code: Of the department.
        trusted: Whose signatures are believed.

    Returns:
        How many things of each kind were checked and found right.

    Raises:
        IntegrityError: names the first file that is absent, not signed, or not as sealed.
    """
    committed, path = folder / COMMITTED_FILE, folder / VIEWS_FOLDER / f"{code}.json"
    commit = parse_document(_signed(committed, trusted), Commit, label(committed))
    content = _signed(path, trusted)
    view = parse_document(content, DepartmentView, label(path))
    if (view.build_id, view.code) != (commit.build_id, code) or code not in commit.views:
        raise IntegrityError(f"{label(path)}: of another build or department than {COMMITTED_FILE}; {AGAIN}")
    require_proofs(view, commit, label(path))
    require_seal(path, seal_bytes(content), commit.views[code])
    for shard in view.shards:
        if shard.department != code:
            raise IntegrityError(f"{label(path)}: {shard.shard_id} is of another department; {AGAIN}")
        check_seal(folder / shard.path, shard.seal)
    _require_no_others(folder / SHARDS_FOLDER / code, {Path(shard.path).name for shard in view.shards})
    return {"signatures": 2, "proofs": len(view.proofs), "shards": len(view.shards)}


def _signed(path: Path, trusted: Sequence[PublicKey]) -> bytes:
    content = document_content(path)
    require_signature(path, content, trusted)
    return content


def _require_no_others(folder: Path, names: set[str]) -> None:
    others = {item.name for item in folder.glob("*")} - names
    if others:
        raise IntegrityError(f"{label(folder)}: {len(others)} files are not listed in the view; remove them")
