"""Pass 2: each block is read once more, and its records go into spill files, grouped by shard.

One file for several blocks, not one per block and shard: there are few files, and a shard's reader fetches just its own
record batches. However large the blocks are, no more text than ``PART_BYTES`` and a batch of rows is held in memory. If
groups stay together, each record comes with its place in the shard, since the times by which it was found do not go
into the shard.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.errors import DataError, IntegrityError
from schemas.seals import Seal, label, opened, read_verified
from schemas.tables import shard_schema
from sharding.config import ShardingSettings
from sharding.identity import RecordKey, load_key
from sharding.jobs import BlockJob, SpillJob
from sharding.keys import record_ids
from sharding.plan import DROPPED
from sharding.reading import read_block
from sharding.records import to_records
from sharding.scratch import Scratch, SpillReceipt, read_receipt, reusable, write_receipt

POSITION = "position"
# Of records that are sorted by shard at once; sorting holds three copies of them.
PART_BYTES = 32 << 20


def spill_schema(settings: ShardingSettings) -> pa.Schema:
    """Of the spill files: a shard's columns, and the record's place in the shard if groups stay together."""
    schema = shard_schema(settings.feature_names)
    return schema if settings.group == "none" else schema.append(pa.field(POSITION, pa.int32()))


def spill_blocks(job: SpillJob) -> int:
    """Write a spill file and its receipt, unless an earlier try has; returns its number."""
    scratch, schema = job.blocks[0][0].scratch, spill_schema(job.blocks[0][0].settings)
    path = scratch.spill(job.number)
    if reusable(path, SpillReceipt):
        return job.number
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    shards: list[int] = []
    borders: list[int] = []

    def write(file: BinaryIO) -> None:
        with pa.ipc.new_stream(file, schema, options=options) as writer:
            writer.write_batch(pa.RecordBatch.from_pylist([], schema))  # so that the schema is before the first border
            borders.append(file.tell())
            for shard, rows in _grouped(job):
                writer.write_batch(rows)
                shards.append(shard)
                borders.append(file.tell())

    seal = scratch.publish(path, write)
    for block, _ in job.blocks:
        block.file.check_unchanged()
    write_receipt(scratch, path, SpillReceipt(seal=seal, batches=shards, borders=borders))
    return job.number


def shard_parts(scratch: Scratch, *, num_spills: int, num_shards: int) -> list[NDArray[np.int64]]:
    """For each shard the (spill file, first byte, byte after the last) of its record batches, int64 [parts, 3]."""
    receipts = [read_receipt(scratch.spill(number), SpillReceipt) for number in range(num_spills)]
    numbers = np.repeat(np.arange(num_spills), [len(receipt.batches) for receipt in receipts])
    starts = [border for receipt in receipts for border in receipt.borders[:-1]]
    stops = [border for receipt in receipts for border in receipt.borders[1:]]
    shards = np.array([shard for receipt in receipts for shard in receipt.batches], dtype=np.int64)
    parts = np.array([numbers, starts, stops], dtype=np.int64).T
    order = np.argsort(shards, kind="stable")
    return np.split(parts[order], np.searchsorted(shards[order], np.arange(1, num_shards)))


def gather(scratch: Scratch, parts: NDArray[np.int64], settings: ShardingSettings) -> pa.Table:
    """The records of a shard.

    Args:
        scratch: Where the spill files are.
        parts: As ``shard_parts`` gives them.
        settings: Of the build.

    Raises:
        IntegrityError: there is no record batch at a place.
    """
    schema = spill_schema(settings)
    found: list[pa.RecordBatch] = []
    for number, places in groupby(parts.tolist(), key=itemgetter(0)):
        path = scratch.spill(number)
        try:
            with opened(path) as file:
                for _, start, stop in places:
                    file.seek(start)
                    found.append(pa.ipc.read_record_batch(pa.ipc.read_message(file.read(stop - start)), schema))
        except (pa.ArrowException, OSError, EOFError):
            raise IntegrityError(f"{label(path)}: no readable spill file; run again to make it again") from None
    return pa.Table.from_batches(found, schema)


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
