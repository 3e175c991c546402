"""Pass 2: each block is read once more, and its records go into spill files, grouped by shard.

One file for several blocks, not one per block and shard: there are few files, and a shard's reader fetches just its own
parts. A part is a record batch as an encapsulated Arrow IPC message (Arrow columnar format, "Encapsulated message
format"), without compression, which would cost more time than the disk saves. However large the blocks are, no more
text than ``PART_BYTES`` and a batch of rows is held in memory. If groups stay together, each record comes with its
place in the shard, since the times by which it was found do not go into the shard.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from schemas.errors import DataError, IntegrityError
from schemas.seals import Seal, label, read_verified
from schemas.tables import shard_schema
from sharding.config import ShardingSettings
from sharding.identity import RecordKey, load_key
from sharding.jobs import BlockJob, SpillJob
from sharding.keys import record_ids
from sharding.plan import DROPPED
from sharding.reading import read_block
from sharding.records import to_records
from sharding.scratch import Scratch, read_receipt, write_receipt
from sharding.scratch_documents import SpillReceipt

POSITION = "position"
# Of records that are sorted by shard at once; sorting holds three copies of them.
PART_BYTES = 64 << 20

# (spill file, first byte, byte after the last, xxh3_64) of each part of a shard, uint64 [parts, 4].
Parts = NDArray[np.uint64]


def spill_schema(settings: ShardingSettings) -> pa.Schema:
    """Of the spill files: a shard's columns, and the record's place in the shard if groups stay together."""
    schema = shard_schema(settings.feature_names)
    return schema if settings.group == "none" else schema.append(pa.field(POSITION, pa.int32()))


def spill_blocks(job: SpillJob) -> int:
    """Write a spill file and its receipt, unless an earlier try has; returns its number."""
    scratch = job.blocks[0][0].scratch
    path = scratch.spill(job.number)
    if _is_intact(scratch, path):
        return job.number
    shards: list[int] = []
    stops: list[int] = []
    digests: list[int] = []

    def write(file: BinaryIO) -> None:
        for shard, rows in _grouped(job):
            part = rows.serialize()
            file.write(part)
            shards.append(shard)
            stops.append(file.tell())
            digests.append(xxhash.xxh3_64_intdigest(part))

    scratch.place(path, write)
    for block, _ in job.blocks:
        block.file.check_unchanged()
    write_receipt(scratch, path, SpillReceipt(shards=shards, stops=stops, digests=digests))
    return job.number


def shard_parts(scratch: Scratch, *, num_spills: int, num_shards: int) -> list[Parts]:
    """Where each shard's records are."""
    receipts = [read_receipt(scratch, scratch.spill(number), SpillReceipt) for number in range(num_spills)]
    shards = np.array([shard for receipt in receipts for shard in receipt.shards], dtype=np.int64)
    parts = np.concatenate([np.empty((0, 4), dtype=np.uint64), *map(_parts, range(num_spills), receipts)])
    order = np.argsort(shards, kind="stable")
    return np.split(parts[order], np.searchsorted(shards[order], np.arange(1, num_shards)))


def gather(scratch: Scratch, parts: Parts, settings: ShardingSettings) -> pa.Table:
    """The records of a shard.

    Args:
        scratch: Where the spill files are.
        parts: Of the shard.
        settings: Of the build.

    Raises:
        IntegrityError: a part is not as it was written; nothing is taken for records before that is known.
    """
    schema = spill_schema(settings)
    found: list[pa.RecordBatch] = []
    for number, places in groupby(parts.tolist(), key=itemgetter(0)):
        path = scratch.spill(number)
        with scratch.opened(path) as file:
            for _, start, stop, digest in places:
                found.append(pa.ipc.read_record_batch(_read_part(file, path, (start, stop, digest)), schema))
    return pa.Table.from_batches(found, schema)


def _parts(number: int, receipt: SpillReceipt) -> Parts:
    starts = [0, *receipt.stops][: len(receipt.stops)]
    return np.array([[number] * len(starts), starts, receipt.stops, receipt.digests], dtype=np.uint64).T


def _read_part(file: BinaryIO, path: Path, part: tuple[int, int, int]) -> pa.Buffer:
    start, stop, digest = part
    file.seek(start)
    content = pa.allocate_buffer(stop - start)
    num_bytes = file.readinto(memoryview(content))  # type: ignore[attr-defined]  # every open file has it
    if num_bytes != content.size or xxhash.xxh3_64_intdigest(content) != digest:
        raise IntegrityError(f"{label(path)}: not as it was written; check the disk and run again to make it again")
    return content


def _is_intact(scratch: Scratch, path: Path) -> bool:
    """Whether an earlier try has written the whole file, and it is still as it was written."""
    try:
        receipt = read_receipt(scratch, path, SpillReceipt)
        with scratch.opened(path) as file:
            for _, start, stop, digest in _parts(0, receipt).tolist():
                _read_part(file, path, (start, stop, digest))
            return not file.read(1)
    except IntegrityError:
        return False


def _grouped(job: SpillJob) -> Iterator[tuple[int, pa.RecordBatch]]:
    """(shard, its records) again and again, within each part of the blocks by ascending shard."""
    key = load_key(job.blocks[0][0].key_path)
    tables: list[pa.Table] = []
    shards: list[NDArray[np.int32]] = []
    num_bytes = 0
    settings = job.blocks[0][0].whole_settings()
    for block, seal in job.blocks:
        for table, placed in _placed(block, _assignment(block, seal), key, settings=settings):
            tables.append(table)
            shards.append(placed)
            num_bytes += table.nbytes
            if num_bytes >= PART_BYTES:
                yield from _split(tables, shards)
                tables, shards, num_bytes = [], [], 0
    yield from _split(tables, shards)


def _placed(
    block: BlockJob, assignment: NDArray[np.int32], key: RecordKey, *, settings: ShardingSettings
) -> Iterator[tuple[pa.Table, NDArray[np.int32]]]:
    """The block's records with the shard of each, in parts."""
    ids, start = record_ids(block.number, block.scratch), 0
    for rows in read_block(block):
        table = to_records(rows.table, key, settings, ids=ids.slice(start)).table
        placed = assignment[:, start : start + table.num_rows]
        start += table.num_rows
        if placed.shape[1] < table.num_rows:
            break
        for position in placed[1:]:
            table = table.append_column(POSITION, pa.array(position))
        yield table, placed[0]
    if start != assignment.shape[1]:
        raise DataError(f"{label(block.file.path)}: holds other records than when it was scanned; run again")


def _split(tables: Sequence[pa.Table], parts: Sequence[NDArray[np.int32]]) -> Iterator[tuple[int, pa.RecordBatch]]:
    shards = np.concatenate([np.empty(0, dtype=np.int32), *parts])
    order = np.argsort(shards, kind="stable")
    order = order[np.searchsorted(shards[order], DROPPED, side="right") :]
    if not len(order):
        return
    (rows,) = pa.concat_tables(tables).take(pa.array(order)).combine_chunks().to_batches()
    numbers, starts = np.unique(shards[order], return_index=True)
    for shard, start, stop in zip(numbers.tolist(), starts.tolist(), [*starts[1:].tolist(), len(order)], strict=True):
        yield shard, rows.slice(start, stop - start)


def _assignment(block: BlockJob, seal: Seal) -> NDArray[np.int32]:
    """Shard of each record of the block, [1, N]; with its place in the shard if groups stay together, [2, N]."""
    path = block.scratch.assignment(block.number)
    num_rows = 1 if block.settings.group == "none" else 2
    return np.frombuffer(read_verified(path, seal), dtype="<i4").reshape(num_rows, -1)
