"""Unfinished work of one build, under CORPUS/scratch: what a rerun finds there it checks before it uses it.

Every step writes a file, then a receipt: a sealed document with the file's seal and what the next steps must know. A
file without a receipt, or one that differs from it, does not count. Workers hand over only file numbers and counts.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, TypeVar

from schemas.access import KeySource
from schemas.canonical import MAX_JSON_BYTES
from schemas.documents import Document, document_bytes, parse_document
from schemas.errors import AccessDeniedError, IntegrityError
from schemas.manifests import REFUSED_FOLDER
from schemas.seals import (
    Seal,
    label,
    opened,
    place_while,
    publish_while,
    require_seal,
    seal_bytes,
    seal_stream,
)
from sharding.permit import check_permit
from sharding.scratch_documents import Receipt
from sharding.scratch_key import opened_under, scratch_key, write_under, write_unsealed

SCRATCH_FOLDER = "scratch"
LOOKUP_FOLDER = "lookups"
# Tasks make no folders, so these are there before they begin.
SUBFOLDERS = ("utf8", LOOKUP_FOLDER, "keys", "assignments", "spills", "shards")


ReceiptT = TypeVar("ReceiptT", bound=Document)
SealedT = TypeVar("SealedT", bound=Receipt)


@dataclass(frozen=True, slots=True)
class Scratch:
    """Paths of one build's scratch files, and the way in which tasks write.

    Attributes:
        folder: Where they lie.
        word: That of the client in charge, by which its tasks are told from those of an earlier one.
        keyring: The builder's; without, what holds text or names lies in the clear.
    """

    folder: Path
    word: str = field(default_factory=lambda: secrets.token_hex(16), compare=False)
    keyring: KeySource | None = field(default=None, compare=False)

    def publish(self, path: Path, write: Callable[[BinaryIO], object]) -> Seal:
        """Write a task's file, here or in the build.

        Scratch files are not flushed to the disk: one that a loss of power takes is found out and made again.

        Raises:
            TemporaryError: the build was cleared or taken over, and nothing was left; or the disk failed.
        """
        is_inside = path.is_relative_to(self.folder)
        if not is_inside or not self._encrypts(path):
            return publish_while(path, write, check=self._check, durable=not is_inside)
        return self._place_encrypted(path, write)

    def place(self, path: Path, write: Callable[[BinaryIO], object]) -> None:
        """As ``publish``, for a scratch file for whose parts its receipt vouches."""
        if self._encrypts(path):
            key, name = self._key(), self._name(path)
            place_while(path, lambda file: write_unsealed(key, name, write, file), check=self._check)
        else:
            place_while(path, write, check=self._check)

    @contextmanager
    def opened(self, path: Path) -> Iterator[BinaryIO]:
        """Open a scratch file as it was written, or another file as it is; errors as ``schemas.seals.opened``."""
        with opened_under(self._key(), self._name(path), path) if self._encrypts(path) else opened(path) as file:
            yield file

    def check_seal(self, path: Path, expected: Seal) -> None:
        """What is in a scratch file is what was sealed; errors as ``schemas.seals.check_seal``."""
        with self.opened(path) as file:
            require_seal(path, seal_stream(file), expected)

    def read_verified(self, path: Path, expected: Seal) -> bytes:
        """What is in a scratch file, once that is known to be what was sealed."""
        with self.opened(path) as file:
            content = file.read(expected.num_bytes + 1)
        require_seal(path, seal_bytes(content), expected)
        return content

    def read_document(self, path: Path, model: type[ReceiptT]) -> ReceiptT:
        """A document of the scratch folder; errors as ``schemas.documents.read_document``."""
        with self.opened(path) as file:
            content = file.read(MAX_JSON_BYTES + 1)
        return parse_document(content, model, label(path))

    def write_document(self, path: Path, document: Document) -> None:
        """Write a task's document."""
        content = document_bytes(document)
        self.publish(path, lambda file: file.write(content))

    @property
    def build_id(self) -> str:
        """Of the build."""
        return self.folder.name

    def _place_encrypted(self, path: Path, write: Callable[[BinaryIO], object]) -> Seal:
        seals: list[Seal] = []
        key, name = self._key(), self._name(path)
        place_while(path, lambda file: seals.append(write_under(key, name, write, file)), check=self._check)
        return seals[-1]

    def _encrypts(self, path: Path) -> bool:
        """Lookup tables are mapped from the disk, which an encrypted file cannot be."""
        if self.keyring is None or not path.is_relative_to(self.folder):
            return False
        return path.parent.name != LOOKUP_FOLDER

    def _key(self) -> bytes:
        if self.keyring is None:
            raise AccessDeniedError(f"{label(self.folder)}: encrypted, and no keyring was named")
        return scratch_key(self.folder, self.keyring, self.build_id)

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()

    def survey(self) -> Path:
        """The cut of the inputs."""
        return self.folder / "survey.json"

    def departments(self) -> Path:
        """The hospital's table of departments."""
        return self.folder / "departments.json"

    def plan(self) -> Path:
        """The frozen plan."""
        return self.folder / "plan.json"

    def utf8(self, file: int) -> Path:
        """The UTF-8 copy of an input."""
        return self.folder / "utf8" / f"{file:06d}.txt"

    def keys(self, block: int) -> Path:
        """The key table of a block."""
        return self.folder / "keys" / f"{block:06d}.arrow"

    def assignment(self, block: int) -> Path:
        """The shard of each record of a block, as little-endian int32; -1 for a duplicate.

        If groups stay together, the place of each record in its shard follows.
        """
        return self.folder / "assignments" / f"{block:06d}.bin"

    def spill(self, number: int) -> Path:
        """Records of some blocks, grouped by shard."""
        return self.folder / "spills" / f"{number:06d}.arrow"

    def shard(self, shard_id: str) -> Path:
        """Stands for a finished shard; only its receipt exists."""
        return self.folder / "shards" / f"{shard_id}.parquet"

    def results_keys(self) -> Path:
        """The wrapped keys for losses."""
        return self.folder / "results-keys.json"

    def refusal(self) -> Path:
        """The ledger of the build if it is refused: in the corpus, where it outlives the scratch."""
        return self.folder.parents[1] / REFUSED_FOLDER / f"{self.folder.name}.json"

    def subfolders(self) -> list[Path]:
        """Where tasks write."""
        return [self.folder / name for name in SUBFOLDERS]

    def workers(self) -> Path:
        """Working folder of local workers."""
        return self.folder / "workers"

    def _check(self) -> None:
        check_permit(self.folder, self.word)


def scratch_of(corpus: Path, build_id: str, keyring: KeySource | None = None) -> Scratch:
    """Where a build's scratch files lie; the folder may not be there yet."""
    return Scratch(corpus / SCRATCH_FOLDER / build_id, keyring=keyring)


def receipt_path(path: Path) -> Path:
    """Where the receipt of a scratch file lies."""
    return path.with_suffix(".json")


def write_receipt(scratch: Scratch, path: Path, receipt: Document) -> None:
    """Vouch for a file that is complete."""
    scratch.write_document(receipt_path(path), receipt)


def read_receipt(scratch: Scratch, path: Path, model: type[ReceiptT]) -> ReceiptT:
    """The receipt of a finished scratch file.

    Raises:
        IntegrityError: there is none, or it is damaged.
    """
    return scratch.read_document(receipt_path(path), model)


def reusable(scratch: Scratch, path: Path, model: type[SealedT], *, at: Path | None = None) -> SealedT | None:
    """The receipt of a scratch file that is still exactly what was vouched for; ``at`` if the file lies elsewhere."""
    try:
        receipt = read_receipt(scratch, path, model)
        scratch.check_seal(at or path, receipt.seal)
    except IntegrityError:
        return None
    return receipt
