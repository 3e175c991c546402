"""Carrying a policy out: keys are made, handed to whom the policy names, and taken from whom it does not.

The policy lies in the corpus, signed by whoever administers keys, and with codes only. The keyrings follow from it:
what stands in one is what its principal was granted, and nothing else is asked when a shard is opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from schemas.access import Access, KeySource
from schemas.audit_logs import corpus_log
from schemas.build_keys import codes_with_keys, keys_path, read_department_keys
from schemas.closed import make_closed
from schemas.custody import require_keyrings
from schemas.documents import document_content
from schemas.errors import AccessDeniedError, IntegrityError
from schemas.folders import committed_builds
from schemas.keyrings import Keyring, Signer, keyring_path, principals_in, read_keyring, write_keyring
from schemas.keys import PURPOSES, SCRATCH, KeyAdministration, kek_of
from schemas.locks import locked_file
from schemas.manifests import BUILDS_FOLDER, COMMITTED_FILE, POLICY_FILE, VIEWS_FOLDER
from schemas.policy import Grant, Policy
from schemas.providers import administration_of
from schemas.seals import TEMPORARY_PREFIX, label, wrapped_write
from schemas.services import KeyService
from schemas.signing import SigningKey, make_signing_key

# Beside the lock of ``keys_local``, which is held for each single change.
LOCK_FILE = "policy.lock"


def read_corpus_policy(corpus: Path, access: Access) -> Policy:
    """The policy of a corpus, as an administrator has signed it.

    Raises:
        IntegrityError: it is absent, a link, damaged, or not signed by an administrator whom the keyring knows.
    """
    path = corpus / POLICY_FILE
    if path.is_symlink():
        raise IntegrityError(f"{label(path)}: a link, the signed policy was expected; put the file itself there")
    return access.read_signed(path, Policy, by=access.administrators)


@contextmanager
def one_administrator(source: KeySource) -> Iterator[None]:
    """Let nobody else change keyrings or the policy meanwhile, whoever reads them.

    What a killed one left half-written holds keys, and is removed first.

    Raises:
        UsageError: the folder of keyrings cannot be written to.
        TemporaryError: the disk failed.
    """
    try:
        make_closed(source.folder)
    except OSError as error:
        raise wrapped_write(source.folder, error) from None
    with locked_file(source.folder / LOCK_FILE):
        for path in source.folder.glob(f"{TEMPORARY_PREFIX}*"):
            path.unlink(missing_ok=True)
        yield


def carry_out(
    corpus: Path, source: KeySource, policy: Policy, codes: Iterable[str], *, service: KeyService | None = None
) -> None:
    """Make what keys are absent, hand all out by the policy, and publish it.

    A killed one is finished by doing it again: keyrings come first, the policy last. For ``one_administrator``.

    Args:
        corpus: Whose policy it is.
        source: The administrator's keyring.
        policy: Who may do what.
        codes: Of all departments that there are.
        service: Where the keys of a new corpus are to be; later its keyrings tell.

    Raises:
        AccessDeniedError: the policy does not let this principal administer keys, or the folder lacks a keyring.
        IntegrityError: a keyring is not the one that it was.
    """
    before = _policy_before(corpus, source)
    for each in (policy, before):
        if each is not None:
            require_administrator(each, source.principal)
    require_keyrings(source, policy, before.principals if before else ())
    codes = sorted(codes)
    administration = administration_for(source, policy, service)
    wanted = [SCRATCH, *(kek_of(code, purpose) for code in codes for purpose in PURPOSES)]
    made = [kek_id for kek_id in wanted if administration.make_kek(kek_id)]
    known = before.principals if before else {}
    for name in sorted({*policy.principals, *known} - {source.principal}):
        keks = policy.keks_of(name, codes) if name in policy.principals else []
        administration.set_grants(name, (policy.principals.get(name) or known[name]).grantee, keks)
    if any(may_build(grant) and not may_build(policy.principals.get(name)) for name, grant in known.items()):
        adopt_builds(corpus, source.open())
    _introduce(source, policy, service)
    for name in set(known) - set(policy.principals):
        keyring_path(source.folder, name).unlink(missing_ok=True)
    access = source.open()
    log = corpus_log(corpus, access)
    for kek_id in made:
        log.append("key.make", kek_id, "done")
    for name in sorted(policy.principals):
        log.append("key.grant", f"principal/{name}", "done")
    access.publish_signed(corpus / POLICY_FILE, policy)


def administration_for(source: KeySource, policy: Policy, service: KeyService | None = None) -> KeyAdministration:
    """The administration of a corpus' keys, where its keyrings say that they are."""
    path = keyring_path(source.folder, source.principal)
    if service is None and path.exists():
        service = read_keyring(path).service
    builders = [name for name, grant in policy.principals.items() if may_build(grant)]
    return administration_of(source.folder, source.principal, service, builders=builders)


def codes_of(corpus: Path, source: KeySource) -> list[str]:
    """Of the departments that have all their keys: in the administrator's keyring, or in a build."""
    keks = read_keyring(keyring_path(source.folder, source.principal)).keks
    named = {kek_id.partition("/")[0] for kek_id in keks} - {SCRATCH}
    whole = {code for code in named if all(kek_of(code, purpose) in keks for purpose in PURPOSES)}
    return sorted(whole | codes_of_builds(corpus))


def codes_of_builds(corpus: Path) -> set[str]:
    """Of the departments that a build of the corpus has wrapped keys for."""
    return {code for build in corpus.glob(f"{BUILDS_FOLDER}/b-*") for code in codes_with_keys(build)}


def require_administrator(policy: Policy, principal: str) -> None:
    """The principal may administer keys.

    Raises:
        AccessDeniedError: it may not.
    """
    if not policy.grant_of(principal).administer:
        raise AccessDeniedError(f"principal {principal}: may not administer keys; ask one who may")


def adopt_builds(corpus: Path, access: Access) -> None:
    """Sign all builds as an administrator, so that they are believed when their builder is not any more.

    Raises:
        IntegrityError: a build is not signed by one who is still believed, or damaged; nothing is signed blindly.
    """
    for build in committed_builds(corpus):
        for signed in (build / COMMITTED_FILE, *sorted((build / VIEWS_FOLDER).glob("*.json"))):
            content = document_content(signed)
            access.require_signed(signed, content, by=access.builders)
            access.sign(signed, content)
        for code in codes_with_keys(build):
            access.publish_signed(keys_path(build, code), read_department_keys(build, code, access))


def may_build(grant: Grant | None) -> bool:
    """Whether what a principal signs can be a build."""
    return grant is not None and (grant.build or grant.administer)


def _policy_before(corpus: Path, source: KeySource) -> Policy | None:
    return read_corpus_policy(corpus, source.open()) if (corpus / POLICY_FILE).exists() else None


def _introduce(source: KeySource, policy: Policy, service: KeyService | None) -> None:
    """Give each principal a signing key, and all of them everybody's public key and the way to the keys.

    The administrator's file comes last: whom it knows has a signing key for good. An empty one comes first where keys
    are at a service, so that whoever was killed at the beginning is told from one who names a folder of others.
    """
    there = principals_in(source.folder)
    if source.principal not in there:
        write_keyring(source.folder, Keyring(principal=source.principal, service=service))
    rings = {
        name: _with_seed(read_keyring(keyring_path(source.folder, name)) if name in there else Keyring(principal=name))
        for name in policy.principals
    }
    found = service or next((ring.service for ring in rings.values() if ring.service), None)
    signers = {
        name: Signer(
            public_key=SigningKey(bytes.fromhex(str(ring.seed))).public.hex,
            may_build=may_build(policy.principals[name]),
            may_administer=policy.principals[name].administer,
            may_score=bool(policy.principals[name].score) or may_build(policy.principals[name]),
        )
        for name, ring in rings.items()
    }
    for ring in sorted(rings.values(), key=lambda ring: ring.principal == source.principal):
        write_keyring(source.folder, ring.model_copy(update={"signers": signers, "service": found}))


def _with_seed(ring: Keyring) -> Keyring:
    return ring if ring.seed else ring.model_copy(update={"seed": make_signing_key().seed.hex()})
