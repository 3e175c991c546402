"""What the steps of a build leave for the next ones: the cut of the inputs, the plan, receipts of finished files."""

from __future__ import annotations

from pydantic import Field

from schemas.balance import Balance
from schemas.documents import Document, Value
from schemas.keys import WrappedKey
from schemas.ledgers import BuildLedger, PhiCount, SideLedger
from schemas.manifests import ShardEntry
from schemas.seals import Seal


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
    """Pass 3 of one shard: what the manifest will say of it, and its wrapped key."""

    kind = "exactppl.scratch.shard"

    entry: ShardEntry
    wrapped: WrappedKey | None = None


class ResultsKeys(Document):
    """The data keys for losses of a build's departments, by code, and their check values."""

    kind = "exactppl.scratch.results-keys"

    keys: dict[str, WrappedKey]
    checks: dict[str, str]
