"""All signatures of a build, checked by one public key and without any keyring: for auditors and reviewers."""

from __future__ import annotations

from schemas.build_keys import keys_path
from schemas.documents import document_content
from schemas.folders import Build
from schemas.manifests import COMMITTED_FILE, VIEWS_FOLDER
from schemas.seals import label
from schemas.signing import PublicKey, payload_of, require_signature


def verify_signatures(build: Build, key: PublicKey) -> int:
    """Commit, views and wrapped keys are signed by this key; returns how many signatures hold.

    Raises:
        IntegrityError: names the file that is not signed by it.
    """
    beside = [build.folder / COMMITTED_FILE, *(build.folder / VIEWS_FOLDER / f"{code}.json" for code in build.codes)]
    for path in beside:
        require_signature(path, document_content(path), [key])
    within = [keys_path(build.folder, code) for code in build.codes]
    for path in within:
        payload_of(document_content(path), [key], label(path))
    return len(beside) + len(within)
