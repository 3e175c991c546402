"""What one principal can do here: the keys that open what it was granted, and the signatures that it believes.

Nothing of this travels: whoever starts a process names the folder of keyrings and the principal, and the process opens
that file by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from schemas.documents import Document, DocumentT, document_bytes, document_content, parse_document
from schemas.errors import AccessDeniedError, IntegrityError
from schemas.keyrings import Signer, keyring_path, read_keyring
from schemas.keys import KeyProvider
from schemas.providers import provider_of
from schemas.seals import Seal, label, publish
from schemas.signing import PublicKey, SigningKey, payload_of, require_signature, signature_path, write_signature

DEFAULT_PRINCIPAL = "owner"


@dataclass(frozen=True, slots=True)
class KeySource:
    """Where a principal's keyring lies; it holds no key, so it may stand in messages between processes."""

    folder: Path
    principal: str

    def open(self) -> Access:
        """The principal's keys.

        Raises:
            AccessDeniedError: there is no keyring, or it cannot be opened.
            UsageError: the file is not its user's alone.
            IntegrityError: the file is damaged.
        """
        keyring = read_keyring(keyring_path(self.folder, self.principal))
        seed = None if keyring.seed is None else SigningKey(bytes.fromhex(keyring.seed))
        signers = list(keyring.signers.values())
        return Access(
            source=self,
            keys=provider_of(keyring),
            signing_key=seed,
            builders=_keys(signer for signer in signers if signer.may_build),
            administrators=_keys(signer for signer in signers if signer.may_administer),
            scorers=_keys(signer for signer in signers if signer.may_score),
        )


@dataclass(frozen=True, slots=True)
class Access:
    """An opened keyring.

    Attributes:
        source: Where it came from.
        keys: Opens what the principal was granted.
        signing_key: Signs what it makes.
        builders: Whose signatures of builds and their keys are believed.
        administrators: Whose signatures of policies are.
        scorers: Whose signatures of runs are.
    """

    source: KeySource
    keys: KeyProvider
    signing_key: SigningKey | None
    builders: tuple[PublicKey, ...]
    administrators: tuple[PublicKey, ...]
    scorers: tuple[PublicKey, ...]

    @property
    def principal(self) -> str:
        """Whose keys these are."""
        return self.source.principal

    def sign(self, path: Path, content: bytes) -> None:
        """Publish the signature of a file beside it; an earlier one is replaced.

        Raises:
            AccessDeniedError: the keyring has no signing key.
        """
        write_signature(path, content, self._signing_key(), replace=True)

    def _signing_key(self) -> SigningKey:
        if self.signing_key is None:
            raise AccessDeniedError(
                f"principal {self.principal}: its keyring has no signing key; have it granted anew with keys grant"
            )
        return self.signing_key

    def publish_signed(self, path: Path, document: Document) -> None:
        """Publish a document within its signature, in one file that is replaced at once.

        Raises:
            AccessDeniedError: the keyring has no signing key.
        """
        publish(path, self._signing_key().sign(document_bytes(document)), replace=True)

    def read_signed(self, path: Path, model: type[DocumentT], *, by: tuple[PublicKey, ...]) -> DocumentT:
        """What ``publish_signed`` of one of these wrote.

        Raises:
            IntegrityError: it is absent, damaged, or not signed by one whom the keyring knows.
        """
        return parse_document(payload_of(document_content(path), by, label(path)), model, label(path))

    def publish_beside(self, path: Path, document: Document) -> Seal:
        """Publish a document behind its signature, so that nobody finds it without; an earlier one is replaced.

        Raises:
            AccessDeniedError: the keyring has no signing key.
        """
        content = document_bytes(document)
        self.sign(path, content)
        return publish(path, content, replace=True)

    def read_beside(self, path: Path, model: type[DocumentT], *, by: tuple[PublicKey, ...]) -> DocumentT:
        """A document that one of these has signed beside it; errors as ``require_signed`` and ``read_document``."""
        content = document_content(path)
        self.require_signed(path, content, by=by)
        return parse_document(content, model, label(path))

    def require_signed(self, path: Path, content: bytes, *, by: tuple[PublicKey, ...]) -> None:
        """The file is signed by one of these.

        Raises:
            IntegrityError: it is not signed, not by them, or with other content.
        """
        if not signature_path(path).exists():
            raise IntegrityError(
                f"{label(path)}: not signed; --plaintext alone opens what was made with --plaintext, and nothing else "
                "is without a signature"
            )
        require_signature(path, content, by)


def _keys(signers: Iterable[Signer]) -> tuple[PublicKey, ...]:
    return tuple(sorted(PublicKey(signer.public_key) for signer in signers))
