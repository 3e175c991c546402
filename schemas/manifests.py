"""The documents of a build and of a run.

A build folder::

    CORPUS/CURRENT                              id of the build that readers take, one line
    CORPUS/secret/record-id.key                 32 random bytes as hex, mode 0600, never leaves the corpus' owner
    CORPUS/builds/<build_id>/manifest.json      BuildManifest
    CORPUS/builds/<build_id>/views/<code>.json  DepartmentView, one per department
    CORPUS/builds/<build_id>/keys/<code>.json.dsse
                                                DepartmentKeys (schemas.build_keys), replaced when keys are rotated
    CORPUS/builds/<build_id>/shards/<code>/<shard_id>.parquet
    CORPUS/builds/<build_id>/COMMITTED          Commit: seals of the manifest and the views, written last
    CORPUS/audit/corpus.jsonl                   events of builds and keys (schemas.audit); COMMITTED names its head
    CORPUS/policy.json.dsse                     Policy (schemas.policy): who may do what
    CORPUS/refused/<build_id>.json              Refusal: the ledger of a build that was not made

COMMITTED and the views of an encrypted build have their signature beside them, as ``<file>.dsse``; so has RUN/COMPLETE.
The wrapped keys and the policy, which may be replaced, stand within theirs.

A run folder::

    RUN/run.json                                RunHeader, written before the first forward pass
    RUN/partials/rank-00003/<shard_id>.<block>.<xxh3_128>.parquet
    RUN/status/rank-00003.json                  RankStatus, replaced while the rank works (side file: has a clock)
    RUN/audit/rank-00003.jsonl                  what a rank read; COMPLETE names the heads
    RUN/lock                                    empty; held by the job that writes here (side file)
    RUN/COMPLETE                                RunManifest: exact totals and every partial's seal, written last
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from schemas.audit_events import AuditHead
from schemas.balance import Balance
from schemas.documents import Document, Value
from schemas.drift import BandDrift, Fallback
from schemas.ledgers import BuildLedger, PhiCount, SideLedger
from schemas.parts import parts_in
from schemas.patterns import CODE, RELATIVE_PATH, SHA256, SHARD_ID
from schemas.seals import Seal
from schemas.totals import RunTotals

CURRENT_FILE, COMMITTED_FILE, MANIFEST_FILE = "CURRENT", "COMMITTED", "manifest.json"
RUN_FILE, COMPLETE_FILE, LOCK_FILE = "run.json", "COMPLETE", "lock"
BUILDS_FOLDER = "builds"
REFUSED_FOLDER = "refused"
SHARDS_FOLDER = "shards"
VIEWS_FOLDER = "views"
KEYS_FOLDER = "keys"
AUDIT_FOLDER = "audit"
SECRET_FOLDER = "secret"  # noqa: S105 - the name of a folder
KEYRING_FOLDER = "keyring"
POLICY_FILE = "policy.json.dsse"
PARTIALS_FOLDER, STATUS_FOLDER = "partials", "status"


class InputFile(Value):
    """One input file as it was read. Its name may tell a department or a person, so its digest stands for it."""

    seal: Seal
    num_read: int = Field(ge=0)


class BlockEntry(Value):
    """One row group of a shard.

    ``content_digest`` is that of all columns, ``carried_digest`` that of ``schemas.tables.carried_columns``, which the
    block's partial holds too.
    """

    num_records: int = Field(gt=0)
    num_text_bytes: int = Field(ge=0)
    estimated_tokens: int = Field(ge=0)
    content_digest: str = Field(pattern=SHA256)
    carried_digest: str = Field(pattern=SHA256)


class ShardEntry(Value):
    """One Parquet file of one department; ``key_check`` knows its data key again (``schemas.ciphers.key_check``)."""

    shard_id: str = Field(pattern=SHARD_ID)
    path: str = Field(pattern=RELATIVE_PATH)
    department: str = Field(pattern=CODE)
    num_records: int = Field(gt=0)
    estimated_tokens: int = Field(ge=0)
    seal: Seal
    content_digest: str = Field(pattern=SHA256)
    key_check: str | None = Field(default=None, pattern=SHA256)
    blocks: list[BlockEntry] = Field(min_length=1)


class DepartmentEntry(Value):
    """Totals of one department, by its opaque code."""

    code: str = Field(pattern=CODE)
    num_records: int = Field(gt=0)
    num_shards: int = Field(gt=0)
    estimated_tokens: int = Field(ge=0)


Encryption = Literal["none", "parquet-aes-256-gcm"]


class BuildManifest(Document):
    """Everything a reader may trust about a build.

    ``phi`` counts by kind, and under ``any``; it says nothing unless ``phi_scanned``. ``policy_digest`` is that of the
    policy when the build was made; ``results_checks`` knows each department's key for losses again; ``merkle_root`` is
    that of the canonical entries of ``shards``, in their order.
    """

    kind = "exactppl.build"

    build_id: str = Field(pattern=r"^b-[0-9a-f]{16}$")
    exactppl_version: str
    config: dict[str, Any]
    config_digest: str = Field(pattern=SHA256)
    inputs: list[InputFile]
    inputs_digest: str = Field(pattern=SHA256)
    schema_fingerprint: str = Field(pattern=SHA256)
    features: list[str]
    encryption: Encryption
    policy_digest: str | None = Field(default=None, pattern=SHA256)
    results_checks: dict[str, str] = Field(default_factory=dict)
    merkle_root: str = Field(pattern=SHA256)
    limited_to: int | None
    ledger: BuildLedger
    side_rows: SideLedger = SideLedger()
    unresolved: dict[str, int]
    phi_scanned: bool = False
    phi: dict[str, PhiCount] = Field(default_factory=dict)
    balance: Balance
    multiset_digest: str = Field(pattern=r"^[0-9a-f]{32}$")
    content_digest: str = Field(pattern=SHA256)
    departments: list[DepartmentEntry]
    shards: list[ShardEntry]


RefusalLimit = Literal["on_conflict", "max_rejects", "max_rejects_of_side_rows", "on_unknown", "max_phi", "num_kept"]


class Refusal(Document):
    """Why no build was made of what was read, and what became of it: counts only.

    ``limit`` is the setting that was not kept, or ``num_kept`` where no record was left; ``num_found`` of the records
    (or rows of side files) in question were found, and ``num_allowed`` would have been allowed.
    """

    kind = "exactppl.refusal"

    build_id: str = Field(pattern=r"^b-[0-9a-f]{16}$")
    limit: RefusalLimit
    num_found: int = Field(ge=0)
    num_allowed: int = Field(ge=0)
    ledger: BuildLedger
    side_rows: SideLedger
    unresolved: dict[str, int]
    phi_scanned: bool = False
    phi: dict[str, PhiCount] = Field(default_factory=dict)


class ShardProof(Value):
    """That a shard's entry is one of the build's (``schemas.merkle``): its place among all, and hashes on the way."""

    index: int = Field(ge=0)
    path: list[str]


class DepartmentView(Document):
    """What a node that was granted one department may see of a build.

    In an encrypted build ``name`` is null and ``sealed_name`` holds it under the department's key for losses. The
    proofs, one per shard, hold against the root and the number of shards in COMMITTED.
    """

    kind = "exactppl.department-view"

    build_id: str = Field(pattern=r"^b-[0-9a-f]{16}$")
    code: str = Field(pattern=CODE)
    name: str | None
    sealed_name: str | None = None
    ledger: BuildLedger
    phi: dict[str, PhiCount] = Field(default_factory=dict)
    shards: list[ShardEntry]
    proofs: list[ShardProof]


class Commit(Document):
    """The last file of a build: what makes it trustworthy."""

    kind = "exactppl.commit"

    build_id: str = Field(pattern=r"^b-[0-9a-f]{16}$")
    manifest: Seal
    views: dict[str, Seal]
    merkle_root: str = Field(pattern=SHA256)
    num_shards: int = Field(ge=0)
    audit: dict[str, AuditHead] = Field(default_factory=dict)


COMPOSITION_ANY, COMPOSITION_PER_BLOCK = "any rows", "rows of one block, in the order of its records"
NOT_INVARIANT, WITH_CONTEXT = "not batch-invariant on this device", "earlier notes of the encounter are context"


class RunHeader(Document):
    """What a run's numbers depend on. ``run_id`` is the digest of ``fingerprint``; equal ids mean equal bits.

    ``model_name`` is the last part of the model's path: a label for people, on which no number depends.
    ``reduced_from`` is the tile tokens that were asked for where they did not fit into memory.
    """

    kind = "exactppl.run"

    run_id: str = Field(pattern=r"^r-[0-9a-f]{16}$")
    build_id: str = Field(pattern=r"^b-[0-9a-f]{16}$")
    model_name: str
    fingerprint: dict[str, Any]
    selftest: dict[str, Any]
    limited_to: int | None
    reduced_from: int | None = None
    fallback: Fallback | None = None

    @property
    def marks(self) -> list[str]:
        """What a reader must know before any figure of the run."""
        found = [] if self.limited_to is None else [f"run limited to the first {self.limited_to:,} blocks"]
        found += [] if self.fallback is None else [self.fallback.mark]
        compute = self.fingerprint.get("compute", {})
        found += [WITH_CONTEXT] if compute.get("context") == "encounter" else []
        return [*found, NOT_INVARIANT] if compute.get("composition") == COMPOSITION_PER_BLOCK else found

    @property
    def parts(self) -> list[str]:
        """What the run splits losses into; these are further columns of its partials."""
        return parts_in(self.fingerprint)


class PartialEntry(Value):
    """One sealed partial: the losses of one block."""

    shard_id: str = Field(pattern=SHARD_ID)
    block: int = Field(ge=0)
    path: str = Field(pattern=RELATIVE_PATH)
    seal: Seal
    content_digest: str = Field(pattern=SHA256)


class RunManifest(Document):
    """The last file of a run."""

    kind = "exactppl.run-complete"

    run_id: str = Field(pattern=r"^r-[0-9a-f]{16}$")
    header: Seal
    totals: RunTotals
    partials: list[PartialEntry]
    num_ranks: int = Field(gt=0)
    audit: dict[str, AuditHead] = Field(default_factory=dict)
    drift: list[BandDrift] = Field(default_factory=list)


RankState = Literal["starting", "scoring", "waiting", "done", "stopped", "failed"]


class RankStatus(Document):
    """What one rank was last doing; times are UTC seconds since the epoch.

    ``num_tokens`` were computed; ``num_repeated`` records had the tokens of another record of this rank, and
    ``num_cached`` those of an earlier run. ``num_estimated_…`` are the build's estimates of the tokens of blocks, done
    and planned. ``num_recent_tokens`` were computed in the last ``recent_seconds``, a minute once the rank has scored
    for longer; it has scored for ``scoring_seconds`` in all.
    """

    kind = "exactppl.rank-status"

    run_id: str | None
    rank: int = Field(ge=0)
    num_ranks: int = Field(gt=0)
    state: RankState
    exit_code: int | None
    message: str
    num_blocks_done: int = Field(ge=0)
    num_blocks_planned: int = Field(ge=0)
    num_tokens: int = Field(ge=0)
    num_repeated: int = Field(default=0, ge=0)
    num_cached: int = Field(default=0, ge=0)
    num_estimated_done: int = Field(default=0, ge=0)
    num_estimated_planned: int = Field(default=0, ge=0)
    num_recent_tokens: int = Field(default=0, ge=0)
    recent_seconds: float = Field(default=0, ge=0)
    scoring_seconds: float = Field(default=0, ge=0)
    started_at: float
    updated_at: float
