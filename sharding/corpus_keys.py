"""The keys of a corpus: made with its first build, and asked for before a shard is written."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from schemas.access import Access, KeySource
from schemas.build_keys import results_context
from schemas.ciphers import key_check
from schemas.console import notice
from schemas.errors import AccessDeniedError, IntegrityError, UsageError
from schemas.folders import current_build_id
from schemas.granting import carry_out, codes_of, codes_of_builds, one_administrator, read_corpus_policy
from schemas.keyrings import principals_in
from schemas.keys import kek_of
from schemas.manifests import BUILDS_FOLDER, COMMITTED_FILE, POLICY_FILE, Commit
from schemas.policy import Policy, owners_policy, read_policy
from schemas.seals import label
from schemas.services import KeyService
from schemas.signing import SUFFIX, signature_path
from sharding.identity import RecordKey
from sharding.scratch import Scratch
from sharding.scratch_documents import ResultsKeys


def ready_keys(
    corpus: Path, source: KeySource, policy_file: Path | None, key: RecordKey, *, service: KeyService | None = None
) -> str:
    """Make a first keyring, or check that ours may build; a policy that is given is carried out.

    Returns:
        The digest of the policy in force.

    Raises:
        AccessDeniedError: the principal may not build, or not change the policy.
        UsageError: the policy is wrong.
    """
    given = read_policy(policy_file, key.department_code) if policy_file else None
    if not (corpus / POLICY_FILE).exists():
        with one_administrator(source):
            _begin(corpus, source, given or owners_policy(source.principal), service)
    policy = read_corpus_policy(corpus, source.open())
    grant = policy.grant_of(source.principal)
    if not (grant.build or grant.administer):
        raise AccessDeniedError(f"principal {source.principal}: may not build; ask for the grant, or build as another")
    if given is not None and given.digest != policy.digest:
        with one_administrator(source):
            carry_out(corpus, source, given, codes_of(corpus, source))
        policy = given
    return policy.digest


def _begin(corpus: Path, source: KeySource, policy: Policy, service: KeyService | None) -> None:
    """Make what a corpus begins with, unless another builder just has, or finish what a killed one has begun."""
    if (corpus / POLICY_FILE).exists():
        return
    there = set(principals_in(source.folder))
    if source.principal in there:
        if _has_builds_with_keys(corpus):
            raise IntegrityError(f"{POLICY_FILE}: absent, but there are builds; restore it from a backup")
    elif there:
        raise AccessDeniedError(
            f"{label(source.folder)}: {len(there)} keyrings are there and none of {source.principal}; name another "
            "with --principal, or another folder"
        )
    carry_out(corpus, source, policy, [], service=service)
    notice(
        f"made the keyring of {source.principal} in {label(source.folder)}; back it up and keep it from the shards: "
        "they open with it, and are lost without"
    )


def _has_builds_with_keys(corpus: Path) -> bool:
    """Whether a build was begun for which the policy must have been there; those in the clear need none."""
    builds = (corpus / BUILDS_FOLDER).glob("b-*")
    return any(
        signature_path(build / COMMITTED_FILE).exists() or not (build / COMMITTED_FILE).exists() for build in builds
    )


def require_no_keys(corpus: Path) -> None:
    """A build in the clear does not go where readers have keys: they would find it current, and refuse it.

    Raises:
        UsageError: the corpus has a policy, or a signed build.
    """
    signed = f"{BUILDS_FOLDER}/b-*/{COMMITTED_FILE}{SUFFIX}"
    if os.path.lexists(corpus / POLICY_FILE) or any(corpus.glob(signed)):
        raise UsageError(
            f"{label(corpus)}: its builds are encrypted, and whoever reads them takes none in the clear; leave out "
            "--plaintext, or name another corpus with --out"
        )


def believed_current(corpus: Path, source: KeySource | None) -> str | None:
    """The id of the build that readers of a corpus take, unless they would refuse it: with keys, one must be signed.

    Raises:
        AccessDeniedError: the keyring cannot be opened.
    """
    current = current_build_id(corpus)
    if current is None or source is None or not os.path.lexists(corpus / POLICY_FILE):
        return current
    access = source.open()
    try:
        access.read_beside(corpus / BUILDS_FOLDER / current / COMMITTED_FILE, Commit, by=access.builders)
    except IntegrityError:
        return None
    return current


def department_keys(
    corpus: Path, source: KeySource, codes: Collection[str], build_id: str, *, scratch: Scratch
) -> None:
    """See to it that every department has its keys, and draw those for losses, which the scratch folder keeps.

    Raises:
        AccessDeniedError: lists the departments without keys, if the principal may not make them.
    """
    access = source.open()
    policy = read_corpus_policy(corpus, access)
    # Until a build has them: whoever was killed may have made some keys, and handed out none.
    if policy.grant_of(source.principal).administer and not set(codes) <= codes_of_builds(corpus):
        with one_administrator(source):
            policy = read_corpus_policy(corpus, source.open())
            carry_out(corpus, source, policy, {*codes, *codes_of(corpus, source)})
        access = source.open()
    drawn = _drawn(scratch, access, build_id)
    if drawn is not None and set(drawn.keys) == set(codes):
        return
    keys, checks, lacking = {}, {}, []
    for code in sorted(codes):
        try:
            made = access.keys.generate_data_key(kek_of(code, "results"), results_context(build_id, code))
        except AccessDeniedError:
            lacking.append(code)
            continue
        keys[code], checks[code] = made.wrapped, key_check(made.plaintext)
    if lacking:
        raise AccessDeniedError(
            f"departments without keys for principal {source.principal}: {', '.join(lacking)}; have an administrator "
            "build, or run keys grant for them"
        )
    scratch.write_document(scratch.results_keys(), ResultsKeys(keys=keys, checks=checks))


@contextmanager
def undisturbed(corpus: Path, source: KeySource | None) -> Iterator[None]:
    """Let no keys be rotated in the folder of an administrator's keyring meanwhile.

    A builder with a copy of his keyring cannot hinder it: who rotates keys should know who builds.
    """
    if source is None or not read_corpus_policy(corpus, source.open()).grant_of(source.principal).administer:
        yield
        return
    with one_administrator(source):
        yield


def _drawn(scratch: Scratch, access: Access, build_id: str) -> ResultsKeys | None:
    """The keys that an interrupted build drew, if they still open."""
    try:
        found = scratch.read_document(scratch.results_keys(), ResultsKeys)
        for code, wrapped in found.keys.items():
            access.keys.decrypt(wrapped, results_context(build_id, code))
    except (IntegrityError, AccessDeniedError):
        return None
    return found
