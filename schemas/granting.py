"""Carrying a policy out: keys are made, handed to whom the policy names, and taken from whom it does not.

The policy lies in the corpus, signed by whoever administers keys, and with codes only. The keyrings follow from it:
what stands in one is what its principal was granted, and nothing else is asked when a shard is opened.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from schemas.access import Access, KeySource
from schemas.audit_logs import corpus_log
from schemas.errors import AccessDeniedError
from schemas.keyrings import Keyring, Signer, keyring_path, principals_in, read_keyring, write_keyring
from schemas.keys import PURPOSES, SCRATCH, kek_of
from schemas.keys_local import LocalAdministration
from schemas.manifests import POLICY_FILE
from schemas.policy import Policy
from schemas.signing import SigningKey, make_signing_key


def read_corpus_policy(corpus: Path, access: Access) -> Policy:
    """The policy of a corpus, as an administrator has signed it.

    Raises:
        IntegrityError: it is absent, damaged, or not signed by a builder or administrator whom the keyring knows.
    """
    return access.read_signed(corpus / POLICY_FILE, Policy)


def carry_out(corpus: Path, source: KeySource, policy: Policy, codes: Iterable[str]) -> None:
    """Make what keys are absent, hand all out by the policy, and publish it.

    A killed one is finished by doing it again: keyrings come first, the policy last.

    Args:
        corpus: Whose policy it is.
        source: The administrator's keyring.
        policy: Who may do what.
        codes: Of all departments that there are.

    Raises:
        AccessDeniedError: the policy does not let this principal administer keys.
    """
    require_administrator(policy, source.principal)
    codes = sorted(codes)
    administration = LocalAdministration(source.folder, source.principal)
    wanted = [SCRATCH, *(kek_of(code, purpose) for code in codes for purpose in PURPOSES)]
    made = [kek_id for kek_id in wanted if administration.make_kek(kek_id)]
    for name in sorted({*policy.principals, *principals_in(source.folder)} - {source.principal}):
        grant = policy.principals.get(name)
        keks = policy.keks_of(name, codes) if grant else []
        administration.set_grants(name, grant.grantee if grant else None, keks)
    _introduce(source.folder, policy)
    access = source.open()
    log = corpus_log(corpus, access)
    for kek_id in made:
        log.append("key.make", kek_id, "done")
    for name in sorted(policy.principals):
        log.append("key.grant", f"principal/{name}", "done")
    access.publish_signed(corpus / POLICY_FILE, policy)


def codes_of(source: KeySource) -> list[str]:
    """Of the departments for which an administrator holds keys."""
    keks = read_keyring(keyring_path(source.folder, source.principal)).keks
    return sorted({kek_id.partition("/")[0] for kek_id in keks} - {SCRATCH})


def require_administrator(policy: Policy, principal: str) -> None:
    """The principal may administer keys.

    Raises:
        AccessDeniedError: it may not.
    """
    if not policy.grant_of(principal).administer:
        raise AccessDeniedError(f"principal {principal}: may not administer keys; ask one who may")


def _introduce(folder: Path, policy: Policy) -> None:
    """Give each principal a signing key, and all of them everybody's public key."""
    rings = {name: _with_seed(read_keyring(keyring_path(folder, name))) for name in policy.principals}
    signers = {
        name: Signer(
            public_key=SigningKey(bytes.fromhex(str(ring.seed))).public.hex,
            may_build=policy.principals[name].build or policy.principals[name].administer,
        )
        for name, ring in rings.items()
    }
    for ring in rings.values():
        write_keyring(folder, ring.model_copy(update={"signers": signers}))


def _with_seed(ring: Keyring) -> Keyring:
    return ring if ring.seed else ring.model_copy(update={"seed": make_signing_key().seed.hex()})
