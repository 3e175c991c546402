"""Giving departments new keys: their data keys are wrapped anew, and no shard is written again.

First every KEK gets a next version, then each build's wrapped keys go under it, then the earlier versions are retired.
A killed rotation leaves everything readable by whom it was, and is finished by doing it again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from schemas.access import Access, KeySource
from schemas.audit_logs import corpus_log
from schemas.build_keys import DepartmentKeys, keys_path, results_context, shard_context
from schemas.folders import BUILD_ID
from schemas.granting import administration_for, read_corpus_policy, require_administrator
from schemas.keys import PURPOSES, SCRATCH, kek_of
from schemas.manifests import BUILDS_FOLDER, COMMITTED_FILE
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
        AccessDeniedError: the principal may not administer keys.
        IntegrityError: a file of wrapped keys is damaged, or not signed; no version is retired then.
    """
    policy = read_corpus_policy(corpus, source.open())
    require_administrator(policy, source.principal)
    administration = administration_for(source, policy)
    wanted = [(build, code) for build, code in wrapped_keys(corpus) if code in codes]
    for build, code in wanted:  # what cannot be read is told before anything is changed
        _wrap_anew(build, code, source.open())
    kek_ids = [SCRATCH, *(kek_of(code, purpose) for code in sorted(codes) for purpose in PURPOSES)]
    for kek_id in kek_ids:
        administration.rotate_kek(kek_id)
    access = source.open()
    num_wrapped = sum(_wrap_anew(build, code, access) for build, code in wanted)
    log = corpus_log(corpus, access)
    for kek_id in kek_ids:
        log.append("key.rotate", kek_id, "done")
    if retire:
        for kek_id in kek_ids:
            administration.retire_kek(kek_id)
    return num_wrapped


def step_on(source: KeySource, policy: Policy, kek_ids: Collection[str]) -> None:
    """Give KEKs a next version for what is made from now on; what was made before stays as it is."""
    administration = administration_for(source, policy)
    for kek_id in sorted(kek_ids):
        administration.rotate_kek(kek_id)


def wrapped_keys(corpus: Path) -> Iterator[tuple[Path, str]]:
    """The folder of each committed build with each of its departments that has wrapped keys."""
    for build in sorted((corpus / BUILDS_FOLDER).glob("b-*")):
        if BUILD_ID.fullmatch(build.name) and (build / COMMITTED_FILE).exists():
            for path in sorted(keys_path(build, "x").parent.glob("d-*")):
                yield build, path.name.partition(".")[0]


def without(grant: Grant, codes: Collection[str], *, all_codes: Collection[str]) -> Grant:
    """A grant that lets no notes of these departments be scored; ``*`` becomes those that are left of all."""
    left = [code for code in all_codes if grant.may_score(code) and code not in codes]
    return grant.model_copy(update={"score": tuple(sorted(left))})


def _wrap_anew(build: Path, code: str, access: Access) -> int:
    path = keys_path(build, code)
    document = access.read_signed(path, DepartmentKeys, by=access.builders)
    shards = {
        shard_id: access.keys.rewrap(wrapped, shard_context(build.name, shard_id))
        for shard_id, wrapped in document.shards.items()
    }
    results = access.keys.rewrap(document.results, results_context(build.name, code))
    access.publish_signed(path, document.model_copy(update={"shards": shards, "results": results}))
    return len(shards) + 1
