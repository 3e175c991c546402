"""Giving departments new keys: their data keys are wrapped anew, and no shard is written again.

First every KEK gets a next version, then each build's wrapped keys go under it, then the earlier versions are retired.
A killed rotation leaves everything readable by whom it was, and is finished by doing it again.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from schemas.access import Access, KeySource
from schemas.audit_logs import corpus_log
from schemas.build_keys import (
    DepartmentKeys,
    codes_with_keys,
    keys_path,
    read_department_keys,
    results_context,
    shard_context,
)
from schemas.custody import require_keyrings
from schemas.folders import committed_builds
from schemas.granting import administration_for, read_corpus_policy, require_administrator
from schemas.keyrings import keyring_path, read_keyring
from schemas.keys import PURPOSES, SCRATCH, kek_of
from schemas.policy import Grant, Policy


def rotate(corpus: Path, source: KeySource, codes: Collection[str], *, retire: bool) -> int:
    """Rotate the keys of departments, and wrap the keys of all committed builds anew.

    Args:
        corpus: Whose builds.
        source: The administrator's keyring.
        codes: Of the departments.
        retire: Whether earlier versions are to open nothing any more. An unfinished build of another folder, or one
            that was restored from a backup, is lost with them.

    Returns:
        How many data keys were wrapped anew.

    Raises:
        AccessDeniedError: the principal may not administer keys, or the folder lacks a keyring.
        IntegrityError: a file of wrapped keys is damaged, or not signed; no version is retired then.
    """
    held = source.open()
    policy = read_corpus_policy(corpus, held)
    require_administrator(policy, source.principal)
    if read_keyring(keyring_path(source.folder, source.principal)).service is None:  # they hold the keys themselves
        require_keyrings(source, policy, policy.principals)
    administration = administration_for(source, policy)
    wrapped = [
        (build, read_department_keys(build, code, held))
        for build in committed_builds(corpus)
        for code in codes_with_keys(build)
        if code in codes
    ]
    for _, document in wrapped:  # what cannot be opened is told before anything is changed
        _wrapped_anew(document, held)
    kek_ids = [SCRATCH, *(kek_of(code, purpose) for code in sorted(codes) for purpose in PURPOSES)]
    administration.rotate_keks(kek_ids)
    access = source.open()
    for build, document in wrapped:
        access.publish_signed(keys_path(build, document.code), _wrapped_anew(document, access))
    log = corpus_log(corpus, access)
    for kek_id in kek_ids:
        log.append("key.rotate", kek_id, "done")
    if retire:
        administration.retire_keks(kek_ids)
    return sum(len(document.shards) + 1 for _, document in wrapped)


def step_on(source: KeySource, policy: Policy, kek_ids: Collection[str]) -> None:
    """Give KEKs a next version for what is made from now on; what was made before stays as it is."""
    administration_for(source, policy).rotate_keks(sorted(kek_ids))


def without(grant: Grant, codes: Collection[str], *, all_codes: Collection[str]) -> Grant:
    """A grant that lets no notes of these departments be scored; ``*`` becomes those that are left of all."""
    left = [code for code in all_codes if grant.may_score(code) and code not in codes]
    return grant.model_copy(update={"score": tuple(sorted(left))})


def _wrapped_anew(document: DepartmentKeys, access: Access) -> DepartmentKeys:
    """The same data keys under the newest versions that a keyring leads to."""
    rewrap, build_id = access.keys.rewrap, document.build_id
    shards = {shard: rewrap(key, shard_context(build_id, shard)) for shard, key in document.shards.items()}
    results = rewrap(document.results, results_context(build_id, document.code))
    return document.model_copy(update={"shards": shards, "results": results})
