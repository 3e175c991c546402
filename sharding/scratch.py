"""Unfinished work of one build, under CORPUS/scratch: what a rerun finds there it checks before it uses it.

Every step writes a file, then a receipt: a sealed document with the file's seal and what the next steps must know. A
file without a receipt, or one that differs from it, does not count. Workers hand over only file numbers and counts.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, TypeVar

from pydantic import Field

from schemas.documents import Document, Value, document_bytes, read_document
from schemas.errors import IntegrityError
from schemas.manifests import REFUSED_FOLDER, Balance, BuildLedger, PhiCount, ShardEntry, SideLedger
from schemas.seals import Seal, check_seal, place_while, publish_while
from sharding.permit import check_permit

SCRATCH_FOLDER = "scratch"
LOOKUP_FOLDER = "lookups"
# Tasks make no folders, so these are there before they begin.
SUBFOLDERS = ("utf8", LOOKUP_FOLDER, "keys", "assignments", "spills", "shards")


class SurveyedFile(Value):
    """One input: its seal, and that of its plain UTF-8 copy if it is compressed or in another encoding."""

    seal: Seal
    utf8: Seal | None


class SurveyedBlock(Value):
    """A record-aligned part of one input; see ``sources.source.Span``."""

    file: int = Field(ge=0)
    start: int = Field(ge=0)
    stop: int = Field(gt=0)
    num_bytes: int = Field(ge=0)


class Survey(Document):
    """How the inputs are cut. A resumed build keeps the cut it began with."""

    kind = "exactppl.scratch.survey"

    files: list[SurveyedFile]
    blocks: list[SurveyedBlock]


class DepartmentTable(Document):
    """The hospital's names of departments, which tasks read here: a message could be seen on a scheduler."""

    kind = "exactppl.scratch.departments"

    code_of: dict[str, str]


class Rejects(Value):
    """Records of one reason; ``department`` is null where none could be read."""

    department: str | None
    reason: str
    count: int = Field(gt=0)


class Receipt(Document):
    """Vouches for one file."""

    seal: Seal


class ScanReceipt(Receipt):
    """Pass 1 of one block: the seal of its key table, and what the ledger needs."""

    kind = "exactppl.scratch.scan"

    num_records: int = Field(ge=0)
    rejects: list[Rejects]
    departments: dict[str, str | None]
    roles_seen: list[str]
    unresolved: dict[str, int]
    phi: dict[str, dict[str, PhiCount]] = Field(default_factory=dict)


class PlannedShard(Value):
    """A shard before it is written."""

    shard_id: str
    department: str
    num_records: int = Field(gt=0)
    estimated_tokens: int = Field(ge=0)
    multiset_digest: str


class Plan(Document):
    """Where every record goes, frozen before any text moves; ``assignments`` has one seal per block."""

    kind = "exactppl.scratch.plan"

    block_tokens: int = Field(gt=0)
    ledger: BuildLedger
    side_rows: SideLedger = SideLedger()
    unresolved: dict[str, int]
    phi_scanned: bool = False
    phi: dict[str, dict[str, PhiCount]] = Field(default_factory=dict)
    balance: Balance
    departments: dict[str, BuildLedger]
    names: dict[str, str | None]
    num_read: list[int]
    multiset_digest: str
    shards: list[PlannedShard]
    assignments: list[Seal]


class SpillReceipt(Document):
    """Vouches for a file of pass 2, part by part: the shard of each part, the byte after it, and its xxh3_64."""

    kind = "exactppl.scratch.spill"

    shards: list[int]
    stops: list[int]
    digests: list[int]


class ShardReceipt(Receipt):
    """Pass 3 of one shard: what the manifest will say of it."""

    kind = "exactppl.scratch.shard"

    entry: ShardEntry


ReceiptT = TypeVar("ReceiptT", bound=Document)
SealedT = TypeVar("SealedT", bound=Receipt)


@dataclass(frozen=True, slots=True)
class Scratch:
    """Paths of one build's scratch files, and the way in which tasks write.

    Attributes:
        folder: Where they lie.
        word: That of the client in charge, by which its tasks are told from those of an earlier one.
    """

    folder: Path
    word: str = field(default_factory=lambda: secrets.token_hex(16), compare=False)

    def publish(self, path: Path, write: Callable[[BinaryIO], object]) -> Seal:
        """Write a task's file, here or in the build.

        Scratch files are not flushed to the disk: one that a loss of power takes is found out and made again.

        Raises:
            TemporaryError: the build was cleared or taken over, and nothing was left; or the disk failed.
        """
        durable = not path.is_relative_to(self.folder)
        return publish_while(path, write, check=self._check, durable=durable)

    def place(self, path: Path, write: Callable[[BinaryIO], object]) -> None:
        """As ``publish``, for a scratch file for whose parts its receipt vouches."""
        place_while(path, write, check=self._check)

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


def scratch_of(corpus: Path, build_id: str) -> Scratch:
    """Where a build's scratch files lie; the folder may not be there yet."""
    return Scratch(corpus / SCRATCH_FOLDER / build_id)


def receipt_path(path: Path) -> Path:
    """Where the receipt of a scratch file lies."""
    return path.with_suffix(".json")


def write_sealed(scratch: Scratch, path: Path, document: Document) -> None:
    """Write a task's document."""
    content = document_bytes(document)
    scratch.publish(path, lambda file: file.write(content))


def write_receipt(scratch: Scratch, path: Path, receipt: Document) -> None:
    """Vouch for a file that is complete."""
    write_sealed(scratch, receipt_path(path), receipt)


def read_receipt(path: Path, model: type[ReceiptT]) -> ReceiptT:
    """The receipt of a finished scratch file.

    Raises:
        IntegrityError: there is none, or it is damaged.
    """
    return read_document(receipt_path(path), model)


def reusable(path: Path, model: type[SealedT], *, at: Path | None = None) -> SealedT | None:
    """The receipt of a scratch file that is still exactly what was vouched for; ``at`` if the file lies elsewhere."""
    try:
        receipt = read_receipt(path, model)
        check_seal(at or path, receipt.seal)
    except IntegrityError:
        return None
    return receipt
