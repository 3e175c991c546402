"""The built-in key provider: KEKs in keyring files, without any service.

A principal's file is all that it needs to use keys (``LocalKeys``), and the folder of all files is all that is needed
to administer them (``LocalAdministration``). The file of the administrator holds every KEK in every live version, the
others hold the KEKs of their grants.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from schemas.ciphers import random_key, unwrap, wrap
from schemas.closed import make_closed
from schemas.errors import AccessDeniedError, UsageError
from schemas.keyrings import Keyring, keyring_path, principals_in, read_keyring, write_keyring
from schemas.keys import Context, DataKey, WrappedKey, require_kek_id
from schemas.locks import locked_file
from schemas.seals import label, wrapped_write

LOCK_FILE = "lock"
Keks = dict[str, dict[int, str]]


@dataclass(frozen=True, slots=True)
class LocalKeys:
    """A ``KeyProvider`` over one principal's keyring."""

    keyring: Keyring

    def generate_data_key(self, kek_id: str, context: Context) -> DataKey:
        """A new data key under the newest version of a KEK in the keyring."""
        version = max(self._versions(kek_id))
        key = random_key()
        return DataKey(key, self._wrapped(key, kek_id, version, context))

    def decrypt(self, wrapped: WrappedKey, context: Context) -> bytes:
        """The data key, if its KEK is in the keyring in the version that wrapped it."""
        kek = self._versions(wrapped.kek_id).get(wrapped.version)
        if kek is None:
            raise AccessDeniedError(
                f"key {wrapped.kek_id}: version {wrapped.version} is not in the keyring of {self.keyring.principal}; "
                "ask for the present keyring, or for a grant"
            )
        return unwrap(wrapped.ciphertext, bytes.fromhex(kek), context, where=f"key {wrapped.kek_id}")

    def rewrap(self, wrapped: WrappedKey, context: Context) -> WrappedKey:
        """The same data key under the newest version that the keyring holds."""
        newest = max(self._versions(wrapped.kek_id))
        return self._wrapped(self.decrypt(wrapped, context), wrapped.kek_id, newest, context)

    def _versions(self, kek_id: str) -> dict[int, str]:
        versions = self.keyring.keks.get(kek_id)
        if versions is None:
            raise AccessDeniedError(
                f"key {kek_id}: not granted to {self.keyring.principal}; ask whoever administers the keys"
            )
        return versions

    def _wrapped(self, key: bytes, kek_id: str, version: int, context: Context) -> WrappedKey:
        kek = bytes.fromhex(self.keyring.keks[kek_id][version])
        return WrappedKey(kek_id=kek_id, version=version, ciphertext=wrap(key, kek, context))


@dataclass(frozen=True, slots=True)
class LocalAdministration:
    """A ``KeyAdministration`` over a folder of keyrings.

    Each change writes the administrator's file first and the others after it, so that a killed one is finished by
    doing it again, and no principal has a key that the administrator lacks.

    Attributes:
        folder: Of all keyrings.
        principal: Whose file holds all KEKs.
    """

    folder: Path
    principal: str

    def make_kek(self, kek_id: str) -> bool:
        """Make version 1 of a KEK unless there is one."""
        require_kek_id(kek_id)
        with self._locked():
            keks = self._all()
            if kek_id in keks:
                return False
            self._write(self.principal, {**keks, kek_id: {1: random_key().hex()}})
            return True

    def rotate_keks(self, kek_ids: Sequence[str]) -> None:
        """Give whoever holds one of the KEKs its next version too; each keyring is written once."""
        with self._locked():
            keks = self._all()
            for kek_id in kek_ids:
                versions = self._versions(keks, kek_id)
                keks[kek_id] = {**versions, max(versions) + 1: random_key().hex()}
            self._write(self.principal, keks)
            self._hand_out(keks, kek_ids)

    def retire_keks(self, kek_ids: Sequence[str]) -> None:
        """Take all versions but the newest from every keyring, which is written once."""
        with self._locked():
            keks = self._all()
            for kek_id in kek_ids:
                newest = max(self._versions(keks, kek_id))
                keks[kek_id] = {newest: keks[kek_id][newest]}
            self._write(self.principal, keks)
            self._hand_out(keks, kek_ids)

    def set_grants(
        self,
        principal: str,
        grantee: str | None,  # noqa: ARG002 - services have names of their own for principals, keyrings do not
        kek_ids: Sequence[str],
    ) -> None:
        """Write a principal's keyring with these KEKs and no others; ``grantee`` plays no part here.

        Raises:
            UsageError: a KEK is not there, or the principal is the administrator, who holds all.
        """
        if principal == self.principal:
            raise UsageError(f"principal {principal}: administers the keys and holds all; grant to another one")
        with self._locked():
            keks = self._all()
            self._write(principal, {kek_id: self._versions(keks, kek_id) for kek_id in sorted(set(kek_ids))})

    def _hand_out(self, keks: Keks, kek_ids: Sequence[str]) -> None:
        for principal in principals_in(self.folder):
            if principal != self.principal:
                held = read_keyring(keyring_path(self.folder, principal)).keks
                if changed := {kek_id: keks[kek_id] for kek_id in kek_ids if kek_id in held}:
                    self._write(principal, {**held, **changed})

    def _all(self) -> Keks:
        path = keyring_path(self.folder, self.principal)
        if not path.exists() and not path.is_symlink():
            if others := principals_in(self.folder):
                raise AccessDeniedError(
                    f"{label(path)}: absent, but {len(others)} other keyrings are there; restore it, or administer "
                    "keys as the principal who made them"
                )
            return {}
        return dict(read_keyring(path).keks)

    def _versions(self, keks: Keks, kek_id: str) -> dict[int, str]:
        if kek_id not in keks:
            raise UsageError(f"key {kek_id}: not in the keyring of {self.principal}; make it first")
        return keks[kek_id]

    def _write(self, principal: str, keks: Keks) -> None:
        is_there = principal in principals_in(self.folder)
        held = read_keyring(keyring_path(self.folder, principal)) if is_there else Keyring(principal=principal)
        write_keyring(self.folder, held.model_copy(update={"keks": keks}))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One administrator at a time: two would each write files without the other's keys."""
        path = self.folder / LOCK_FILE
        try:
            make_closed(self.folder)
        except OSError as error:
            raise wrapped_write(path, error) from None
        with locked_file(path):
            yield
