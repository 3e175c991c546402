"""Signatures of a build and its corpus: by those whom a keyring knows, or by one public key and without any keyring."""

from __future__ import annotations

import os
from collections.abc import Sequence

from schemas.access import Access
from schemas.build_keys import signed_department_keys
from schemas.console import notice
from schemas.documents import document_content
from schemas.folders import Build
from schemas.granting import read_corpus_policy
from schemas.manifests import COMMITTED_FILE, CURRENT_FILE, POLICY_FILE, VIEWS_FOLDER
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


def verify_policy(build: Build, access: Access) -> int:
    """The policy of a build's corpus is signed by an administrator whom the keyring knows.

    It may be newer than the build, whose manifest has the digest of the one in force then.

    Returns:
        How many policies were checked: none of a build that was copied alone, without its corpus.

    Raises:
        IntegrityError: it is absent, a link, damaged, or not signed so.
    """
    corpus = build.folder.parents[1]
    if not any(os.path.lexists(corpus / name) for name in (CURRENT_FILE, POLICY_FILE)):
        return 0
    read_corpus_policy(corpus, access)
    return 1


def policy_checks(build: Build) -> dict[str, int]:
    """What ``verify`` counts of the policy: nothing without a keyring; of a build that lies alone it says so."""
    if build.keys is None or not build.is_encrypted:
        return {}
    num_policies = verify_policy(build, build.keys.access)
    if not num_policies:
        notice(f"{POLICY_FILE}: not checked, since the build lies without its corpus")
    return {"policies": num_policies}
