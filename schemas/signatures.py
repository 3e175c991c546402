"""All signatures of a build: by the builders whom a keyring knows, or by one public key and without any keyring."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.build_keys import signed_department_keys
from schemas.documents import document_content
from schemas.folders import Build
from schemas.manifests import COMMITTED_FILE, VIEWS_FOLDER
from schemas.signing import PublicKey, require_signature


def verify_signatures(build: Build, trusted: Sequence[PublicKey]) -> int:
    """Commit, views and wrapped keys are signed by one of these; returns how many signatures hold.

    Raises:
        IntegrityError: names the file that is not signed so.
    """
    beside = [build.folder / COMMITTED_FILE, *(build.folder / VIEWS_FOLDER / f"{code}.json" for code in build.codes)]
    for path in beside:
        require_signature(path, document_content(path), trusted)
    for code in build.codes:
        signed_department_keys(build.folder, code, trusted)
    return len(beside) + len(build.codes)
