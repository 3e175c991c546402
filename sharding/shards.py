"""Pass 3: one shard is gathered, compared with the plan, cut into blocks, written, read back and published."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from schemas.audit_logs import corpus_log
from schemas.blocks import block_entries, blocks_digest
from schemas.build_keys import shard_context, shard_place
from schemas.ciphers import key_check
from schemas.errors import AccessDeniedError, IntegrityError
from schemas.keys import DataKey, kek_of
from schemas.manifests import COMMITTED_FILE, SHARDS_FOLDER, BlockEntry, ShardEntry
from schemas.multiset import digest_sum, multiset_hex, row_digests
from schemas.parquet import encryption, open_parquet
from schemas.seals import label
from schemas.tables import FEATURE_PREFIX
from schemas.verification import id_matrix
from sharding.identity import load_key
from sharding.jobs import ShardJob
from sharding.placement import cut_blocks, cut_grouped_blocks, placement_hashes, placement_order
from sharding.scratch import reusable, write_receipt
from sharding.scratch_documents import ShardReceipt
from sharding.spill import POSITION, gather

# Minima and maxima of ids or text would stand in the footer, so only these numbers have them.
COLUMNS_WITH_STATISTICS = ["num_bytes", "estimated_tokens"]
_CURE = "remove the scratch folder and run again while nobody writes to the inputs"


def write_shard(job: ShardJob) -> int:
    """Publish a shard and write its receipt, unless an earlier try has; returns the shard's number.

    Raises:
        IntegrityError: the records gathered are not those of the plan or of the shard's department, or the file does
            not read back as written, or the build was committed meanwhile.
        TemporaryError: the build was cleared or taken over meanwhile.
    """
    path = job.build / shard_file(job.shard.department, job.shard.shard_id)
    marker = job.scratch.shard(job.shard.shard_id)
    receipt = reusable(job.scratch, marker, ShardReceipt, at=path)
    if receipt and _still_opens(receipt, job):
        return job.number
    _check_open(job.build)
    gathered = gather(job.scratch, job.parts, job.settings)
    _check_positions(gathered, job)
    table = _in_order(gathered, job)
    _check_against_plan(table, job)
    _check_department(table, job)
    blocks = block_entries(table, _block_sizes(table, job).tolist())
    # Over what an earlier try left that was cut short before it vouched for its file: the name always has a whole file.
    key = _data_key(job)
    secret = key.plaintext if key else None
    place = shard_place(job.build.name, job.shard.shard_id)
    seal = job.scratch.publish(
        path, lambda file: _write_and_read_back(file, table, blocks=blocks, key=secret, place=place)
    )
    entry = ShardEntry(
        shard_id=job.shard.shard_id,
        path=shard_file(job.shard.department, job.shard.shard_id),
        department=job.shard.department,
        num_records=table.num_rows,
        estimated_tokens=job.shard.estimated_tokens,
        seal=seal,
        content_digest=blocks_digest(blocks),
        key_check=key_check(secret) if secret else None,
        blocks=blocks,
    )
    wrapped = key.wrapped if key else None
    write_receipt(job.scratch, marker, ShardReceipt(seal=seal, entry=entry, wrapped=wrapped))
    return job.number


def shard_file(code: str, shard_id: str) -> str:
    """A shard's path within its build."""
    return f"{SHARDS_FOLDER}/{code}/{shard_id}.parquet"


def _data_key(job: ShardJob) -> DataKey | None:
    """A new key for this file alone."""
    if job.keys is None:
        return None
    access, build_id = job.keys.open(), job.build.name
    made = access.keys.generate_data_key(
        kek_of(job.shard.department, "text"), shard_context(build_id, job.shard.shard_id)
    )
    corpus_log(job.build.parents[1], access).append("key.use", f"{build_id}/{job.shard.shard_id}", "done")
    return made


def _still_opens(receipt: ShardReceipt, job: ShardJob) -> bool:
    """Keys may have been rotated and retired since an interrupted build wrote the shard."""
    if job.keys is None or receipt.wrapped is None:
        return job.keys is None and receipt.wrapped is None
    try:
        job.keys.open().keys.decrypt(receipt.wrapped, shard_context(job.build.name, job.shard.shard_id))
    except (AccessDeniedError, IntegrityError):
        return False
    return True


def _check_open(build: Path) -> None:
    """A worker that outlived its build does not write into what was committed since."""
    if (build / COMMITTED_FILE).exists():
        raise IntegrityError(f"{label(build)}: committed while this shard was being written; run the command again")


def _check_positions(table: pa.Table, job: ShardJob) -> None:
    """Places are in no digest, so nothing else would tell that two records have one."""
    if job.settings.group == "none":
        return
    found = np.sort(table.column(POSITION).to_numpy())
    if not np.array_equal(found, np.arange(table.num_rows)):
        raise IntegrityError(f"{job.shard.shard_id}: places of records are not 0 to {table.num_rows - 1}; {_CURE}")


def _in_order(table: pa.Table, job: ShardJob) -> pa.Table:
    if job.settings.group != "none":
        order = np.argsort(table.column(POSITION).to_numpy(), kind="stable")
        return table.drop_columns([POSITION]).take(pa.array(order)).combine_chunks()
    ids = id_matrix(table)
    order = placement_order(ids, placement_hashes(ids, job.settings.seed))
    return table.take(pa.array(order)).combine_chunks()


def _check_against_plan(table: pa.Table, job: ShardJob) -> None:
    found = multiset_hex(digest_sum(row_digests(table)))
    if table.num_rows != job.shard.num_records or found != job.shard.multiset_digest:
        raise IntegrityError(
            f"{job.shard.shard_id}: {table.num_rows} records gathered are not the {job.shard.num_records} planned; "
            f"{_CURE}"
        )


def _check_department(table: pa.Table, job: ShardJob) -> None:
    """The access border: no record of another department is behind this one's code, whatever the plan says."""
    key = load_key(job.key_path)
    codes = [key.department_code(name) for name in table.column("department").unique().to_pylist()]
    if codes != [job.shard.department]:
        num_others = len(set(codes) - {job.shard.department})
        raise IntegrityError(f"{job.shard.shard_id}: records of {num_others} other departments were gathered; {_CURE}")


def _block_sizes(table: pa.Table, job: ShardJob) -> NDArray[np.int64]:
    tokens = table.column("estimated_tokens").to_numpy()
    if job.settings.group == "none":
        return cut_blocks(tokens, job.block_tokens)
    # A record that is in no group is one of its own.
    groups = table.column(f"{job.settings.group}_id")
    differs = pc.not_equal(groups.slice(1), groups.slice(0, len(groups) - 1)).fill_null(True)
    is_first = np.append(True, differs.to_numpy())
    return cut_grouped_blocks(tokens, is_first, job.block_tokens)


def _write_and_read_back(
    file: BinaryIO, table: pa.Table, *, blocks: list[BlockEntry], key: bytes | None, place: str
) -> None:
    """Write one row group per block, then compare the file with the table before it gets its name."""
    short = [name for name in table.column_names if name == "department" or name.startswith(FEATURE_PREFIX)]
    with pq.ParquetWriter(
        file,
        table.schema,
        compression="zstd",
        version="2.6",
        use_dictionary=short,
        write_statistics=COLUMNS_WITH_STATISTICS,
        encryption_properties=encryption(key, place),
    ) as writer:
        start = 0
        for block in blocks:
            writer.write_table(table.slice(start, block.num_records), row_group_size=block.num_records)
            start += block.num_records
    file.flush()
    with open_parquet(Path(file.name), key, place, where="shard") as written:
        counts = [written.metadata.row_group(index).num_rows for index in range(written.metadata.num_row_groups)]
        same = counts == [block.num_records for block in blocks] and written.read(use_threads=False).equals(table)
    if not same:
        raise IntegrityError("shard: does not read back as it was written; check the disk and run again")
