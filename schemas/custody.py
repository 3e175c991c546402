"""That a folder holds every keyring that its administrator answers for.

Whoever changes keys writes all keyrings. In a folder with only some of them, other principals would get new signing
keys that nobody has, and a key would have a next version here and another one, of the same number, elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable

from schemas.access import KeySource
from schemas.errors import AccessDeniedError, IntegrityError
from schemas.keyrings import Signer, keyring_path, principals_in, read_keyring
from schemas.policy import Policy
from schemas.seals import label
from schemas.signing import SigningKey


def require_keyrings(source: KeySource, policy: Policy, known: Iterable[str] = ()) -> None:
    """The folder has the keyrings of all principals who had one already, with the signing keys that they had.

    Args:
        source: The administrator's keyring; that of a corpus which only begins may be absent.
        policy: Who is to have a keyring afterwards; of others none is asked for.
        known: Principals who have one besides those that the administrator's keyring knows, as by the policy in force.

    Raises:
        AccessDeniedError: a keyring is not there.
        IntegrityError: one has no signing key, or another than is known.
    """
    there = principals_in(source.folder)
    signers = _signers(source) if source.principal in there else {}
    expected = {*known, *signers} & set(policy.principals)
    if lacking := expected - set(there):
        raise AccessDeniedError(
            f"{label(source.folder)}: {len(lacking)} of {len(expected)} keyrings of the policy's principals are not "
            "there; administer keys in the folder that holds them all, or revoke those whose keyrings are lost"
        )
    for name in sorted(expected & signers.keys()):
        path = keyring_path(source.folder, name)
        seed = read_keyring(path).seed
        if seed is None or SigningKey(bytes.fromhex(seed)).public.hex != signers[name].public_key:
            raise IntegrityError(
                f"{label(path)}: its signing key is not the one that {source.principal} knows; restore the file"
            )


def _signers(source: KeySource) -> dict[str, Signer]:
    return read_keyring(keyring_path(source.folder, source.principal)).signers
