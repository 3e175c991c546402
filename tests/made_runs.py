"""Valid builds and runs made straight through the contract, without Dask or torch: records in, sealed folders out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from aggregate.collect import collect
from aggregate.config import ReportSettings
from aggregate.crossings import parse_crossings
from aggregate.report import make_report
from aggregate.runs import open_run
from schemas.balance import Balance
from schemas.blocks import block_entries, blocks_digest
from schemas.canonical import canonical_json
from schemas.documents import write_document
from schemas.drift import add_sums, drifts_of, sums_of
from schemas.folders import open_build
from schemas.ledgers import BuildLedger
from schemas.manifests import (
    BuildManifest,
    Commit,
    DepartmentView,
    InputFile,
    PartialEntry,
    RankStatus,
    RunHeader,
    RunManifest,
    ShardEntry,
)
from schemas.multiset import digest_sum, multiset_hex, row_digests
from schemas.partials import BlockKey, rank_folder, skipped_of, tally_of, write_partial
from schemas.precision import policy_of
from schemas.proofs import proofs_of, root_of
from schemas.report import Report
from schemas.seals import publish_with, seal_bytes, seal_file
from schemas.tables import (
    SKIPPED_STATUSES,
    STATUS_NO_TOKENS,
    STATUS_SCORED,
    content_digest,
    partial_schema,
    schema_fingerprint,
    shard_schema,
)
from schemas.tally import pool
from schemas.totals import RunTotals
from schemas.verification import department_entries, inputs_digest, json_digest, shards_digest

BLOCK_RECORDS = 2
SHARD_BLOCKS = 2


@dataclass(frozen=True)
class MadeRecord:
    """One synthetic record with the loss that a model is said to have; ``loss`` None means skipped for ``reason``."""

    name: str
    department: str | None = "cardiology"
    patient: str | None = None
    encounter: str | None = None
    features: tuple[str | None, ...] = ()
    loss: float | None = 1.0
    num_tokens: int = 1
    num_words: int = 1
    num_bytes: int = 4
    reason: str = STATUS_NO_TOKENS
    text: str | None = None
    precision: str = "fp32"
    check: float | None = None

    @property
    def note(self) -> str:
        """Its text; a short synthetic one by default."""
        return f"synthetic note {self.name}" if self.text is None else self.text

    @property
    def record_id(self) -> bytes:
        """Opaque id."""
        return digest16(f"record {self.name}")

    @property
    def code(self) -> str:
        """Code of its department."""
        return f"d-{hashlib.sha256(repr(self.department).encode()).hexdigest()[:12]}"


@dataclass(frozen=True)
class MadeBuild:
    """A committed build and the records that went in."""

    corpus: Path
    folder: Path
    manifest: BuildManifest
    records: dict[bytes, MadeRecord] = field(repr=False)


def digest16(text: str) -> bytes:
    """Sixteen bytes that stand for a text."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def make_build(
    corpus: Path,
    records: Sequence[MadeRecord],
    *,
    features: Sequence[str] = (),
    inputs: Sequence[bytes] = (b"one input file",),
    limited_to: int | None = None,
    group: str = "none",
    shard_blocks: int = SHARD_BLOCKS,
) -> MadeBuild:
    """Write a committed build of records; ``inputs`` stand for the files that they came in.

    With a group the records of a department are in the order in which they come here, else in that of their ids.
    """
    seals = [seal_bytes(content) for content in inputs]
    config: dict[str, Any] = {"seed": 7, "inputs": len(inputs), "columns": {"text": "note"}}
    if group != "none":
        config |= {"group": group, "source": "table", "columns": {"text": "note", "time": "written"}}
    build_id = f"b-{json_digest([config, inputs_digest(seals), len(records)])[:16]}"
    folder = corpus / "builds" / build_id
    shards, tables = [], []
    for shard_id, code, rows in _dealt(records, BLOCK_RECORDS * shard_blocks, is_grouped=group != "none"):
        entry, table = _write_shard(folder, shard_id, code=code, rows=rows, features=features)
        shards.append(entry)
        tables.append(table)
    ledger = BuildLedger(
        num_read=len(records) + 5, num_kept=len(records), duplicates={"identical": 2}, rejected={"null_text": 3}
    )
    reads = [len(records) + 5, *[0] * (len(seals) - 1)]
    manifest = BuildManifest(
        build_id=build_id,
        exactppl_version="0.1.0",
        config=config,
        config_digest=json_digest(config),
        inputs=[InputFile(seal=seal, num_read=count) for seal, count in zip(seals, reads, strict=True)],
        inputs_digest=inputs_digest(seals),
        schema_fingerprint=schema_fingerprint(shard_schema(features)),
        features=list(features),
        encryption="none",
        merkle_root=root_of(shards),
        limited_to=limited_to,
        ledger=ledger,
        unresolved={},
        balance=Balance(departments=[], ranks=[]),
        multiset_digest=multiset_hex(sum(digest_sum(row_digests(table)) for table in tables)),
        content_digest=shards_digest(shards),
        departments=department_entries(shards),
        shards=shards,
    )
    _commit(corpus, folder, manifest, {record.code: record.department for record in records})
    return MadeBuild(corpus, folder, manifest, {record.record_id: record for record in records})


def make_run(
    folder: Path,
    build: MadeBuild,
    *,
    num_ranks: int = 2,
    rank_of: Callable[[int], int] | None = None,
    limited_to: int | None = None,
    model: str = "tiny",
    compute: dict[str, Any] | None = None,
) -> Path:
    """Write a complete run over a build; block ``i`` is scored by ``rank_of(i)``, with ``compute`` in its header."""
    fingerprint = {
        "build": {"build_id": build.manifest.build_id},
        "model": {"sha256": hashlib.sha256(model.encode()).hexdigest(), "parameters": 260_000},
        "settings": {"max_length": 512, "precision": "fp32"},
    }
    fingerprint |= {} if compute is None else {"compute": compute}
    run_id = f"r-{hashlib.sha256(canonical_json(fingerprint)).hexdigest()[:16]}"
    header = RunHeader(
        run_id=run_id,
        build_id=build.manifest.build_id,
        model_name=model,
        fingerprint=fingerprint,
        selftest={"outcome": "passed", "num_tiles": 12},
        limited_to=limited_to,
    )
    seal = write_document(folder / "run.json", header)
    (folder / "partials").mkdir(exist_ok=True)
    entries, tables = [], []
    for index, (shard, block) in enumerate(blocks_of(build)[:limited_to]):
        rank = rank_of(index) if rank_of else index % num_ranks
        table = scored_table(build, shard, block)
        entries.append(add_partial(folder, table, run_id=run_id, key=BlockKey(shard.shard_id, block), rank=rank))
        tables.append(table)
    for rank in range(num_ranks):
        write_document(folder / "status" / f"rank-{rank:05d}.json", _status(run_id, rank, num_ranks))
    (folder / "lock").write_bytes(b"")
    entries.sort(key=lambda entry: entry.path)
    totals = totals_of(tables)
    complete = RunManifest(run_id=run_id, header=seal, totals=totals, partials=entries, num_ranks=num_ranks)
    policy = policy_of(fingerprint)
    sums = add_sums([sums_of(table, policy, "made") for table in tables])
    complete = complete.model_copy(update={"drift": drifts_of(sums, policy, limit=0.003)})
    write_document(folder / "COMPLETE", complete)
    return folder


def report_of(build: MadeBuild, run: Path, *by: str, min_cell: int = 0, department_names: bool = True) -> Report:
    """The report of a made run, by the program's own steps."""
    shown = ReportSettings(min_cell=min_cell, department_names=department_names)
    opened_build, opened_run = open_build(build.folder), open_run(run)
    crossings = parse_crossings(by, build.manifest.features)
    collected = collect(opened_build, opened_run)
    return make_report(opened_build, opened_run, collected=collected, crossings=crossings, settings=shown)


def blocks_of(build: MadeBuild) -> list[tuple[ShardEntry, int]]:
    """All blocks of a build in order."""
    return [(shard, block) for shard in build.manifest.shards for block in range(len(shard.blocks))]


def scored_table(build: MadeBuild, shard: ShardEntry, block: int) -> pa.Table:
    """The rows that a model would have left for a block."""
    rows = pq.ParquetFile(build.folder / shard.path).read_row_group(block)
    records = [build.records[record_id] for record_id in rows.column("record_id").to_pylist()]
    scored = [record.loss is not None for record in records]
    columns: dict[str, Any] = {
        "record_id": rows.column("record_id"),
        "patient_id": rows.column("patient_id"),
        "encounter_id": rows.column("encounter_id"),
        "status": [STATUS_SCORED if was else record.reason for record, was in zip(records, scored, strict=True)],
        "loss_nats": [record.loss for record in records],
        "check_loss_nats": [record.check for record in records],
        "num_windows": [int(was) for was in scored],
        "precision": [record.precision for record in records],
    }
    for name in ("num_tokens", "num_words", "num_bytes"):
        columns[name] = [getattr(record, name) if was else 0 for record, was in zip(records, scored, strict=True)]
    columns |= {name: rows.column(name) for name in rows.schema.names if name.startswith("feature.")}
    schema = partial_schema(build.manifest.features)
    return pa.table({name: columns[name] for name in schema.names}, schema=schema)


def add_partial(folder: Path, table: pa.Table, *, run_id: str, key: BlockKey, rank: int) -> PartialEntry:
    """Write one partial and give the entry that lists it."""
    partial = write_partial(rank_folder(folder, rank), table, run_id=run_id, key=key)
    return PartialEntry(
        shard_id=key.shard_id,
        block=key.block,
        path=partial.path.relative_to(folder).as_posix(),
        seal=seal_file(partial.path),
        content_digest=content_digest(table),
    )


def totals_of(tables: Sequence[pa.Table]) -> RunTotals:
    """The online totals of a run."""
    total = pool(map(tally_of, tables))
    skipped: dict[str, int] = {}
    for table in tables:
        for reason, count in skipped_of(table).items():
            skipped[reason] = skipped.get(reason, 0) + count
    counts = {name: getattr(total, name) for name in ("num_tokens", "num_words", "num_bytes", "num_records")}
    return RunTotals(loss_nats=dict(total.loss_nats.to_json()), skipped=skipped, **counts)


def _dealt(
    records: Sequence[MadeRecord], size: int, *, is_grouped: bool
) -> Iterator[tuple[str, str, list[MadeRecord]]]:
    """Shard id, department and records of each shard, whatever the order in which records without groups came."""
    for code in sorted({record.code for record in records}):
        own = [record for record in records if record.code == code]
        own = own if is_grouped else sorted(own, key=lambda record: record.record_id)
        for number, start in enumerate(range(0, len(own), size)):
            yield f"{code}-{number:05d}", code, own[start : start + size]


def _write_shard(
    folder: Path, shard_id: str, *, code: str, rows: list[MadeRecord], features: Sequence[str]
) -> tuple[ShardEntry, pa.Table]:
    table = _shard_table(rows, features)
    path = f"shards/{code}/{shard_id}.parquet"
    seal = publish_with(
        folder / path,
        lambda file: pq.write_table(table, file, row_group_size=BLOCK_RECORDS, compression="zstd", version="2.6"),
    )
    counts = [len(rows[start : start + BLOCK_RECORDS]) for start in range(0, len(rows), BLOCK_RECORDS)]
    blocks = block_entries(table, counts)
    entry = ShardEntry(
        shard_id=shard_id,
        path=path,
        department=code,
        num_records=table.num_rows,
        estimated_tokens=sum(block.estimated_tokens for block in blocks),
        seal=seal,
        content_digest=blocks_digest(blocks),
        blocks=blocks,
    )
    return entry, table


def _shard_table(rows: Sequence[MadeRecord], features: Sequence[str]) -> pa.Table:
    texts = [record.note for record in rows]
    columns: dict[str, Any] = {
        "record_id": [record.record_id for record in rows],
        "raw_id": [record.name for record in rows],
        "department": [record.department for record in rows],
        "patient_id": [None if record.patient is None else digest16(f"patient {record.patient}") for record in rows],
        "encounter_id": [
            None if record.encounter is None else digest16(f"encounter {record.encounter}") for record in rows
        ],
        "text": texts,
        "num_bytes": [len(text.encode()) for text in texts],
        "estimated_tokens": [max(1, len(text) // 4) for text in texts],
    }
    columns |= {f"feature.{name}": [record.features[index] for record in rows] for index, name in enumerate(features)}
    return pa.table(columns, schema=shard_schema(features))


def _commit(corpus: Path, folder: Path, manifest: BuildManifest, names: dict[str, str | None]) -> None:
    views, proofs = {}, proofs_of(manifest.shards)
    for entry in manifest.departments:
        view = DepartmentView(
            build_id=manifest.build_id,
            code=entry.code,
            name=names[entry.code],
            ledger=BuildLedger(num_read=entry.num_records, num_kept=entry.num_records, duplicates={}, rejected={}),
            shards=[shard for shard in manifest.shards if shard.department == entry.code],
            proofs=[proofs[shard.shard_id] for shard in manifest.shards if shard.department == entry.code],
        )
        views[entry.code] = write_document(folder / "views" / f"{entry.code}.json", view)
    seal = write_document(folder / "manifest.json", manifest)
    commit = Commit(
        build_id=manifest.build_id,
        manifest=seal,
        views=views,
        merkle_root=manifest.merkle_root,
        num_shards=len(manifest.shards),
    )
    write_document(folder / "COMMITTED", commit)
    (corpus / "CURRENT").write_bytes(manifest.build_id.encode() + b"\n")


def _status(run_id: str, rank: int, num_ranks: int) -> RankStatus:
    return RankStatus(
        run_id=run_id,
        rank=rank,
        num_ranks=num_ranks,
        state="done",
        exit_code=0,
        message="",
        num_blocks_done=1,
        num_blocks_planned=1,
        num_tokens=1,
        started_at=1000.0 + rank,
        updated_at=2000.0 + rank,
    )


def made_records(features: int = 0) -> st.SearchStrategy[list[MadeRecord]]:
    """Up to twelve records of few departments, patients and feature values, some of them skipped."""
    texts = st.sampled_from([None, "", "a", "b", "(null)"])
    record = st.builds(
        MadeRecord,
        name=st.just(""),
        department=st.sampled_from([None, "", "ENT", "科室"]),
        patient=st.sampled_from([None, "p1", "p2", "p3"]),
        features=st.tuples(*[texts] * features),
        loss=st.one_of(st.none(), st.floats(0, 1e4), st.sampled_from([0.1, 5e-324, 1e300])),
        num_tokens=st.integers(1, 2000),
        num_words=st.integers(0, 2000),
        num_bytes=st.integers(0, 9000),
        reason=st.sampled_from(SKIPPED_STATUSES),
    )
    return st.lists(record, min_size=1, max_size=12).map(
        lambda records: [replace(record, name=f"note {index}") for index, record in enumerate(records)]
    )
