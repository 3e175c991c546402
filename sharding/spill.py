"""Pass 2: each block is read once more, and its records go into one file, grouped by shard.

One file per block, not per block and shard: the number of files stays that of the blocks, and a shard's reader fetches
just its own record batches. If groups stay together, each record comes with its place in the shard, since the times by
which it was found do not go into the shard.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.errors import DataError
from schemas.seals import label, read_verified
from schemas.tables import shard_schema
from sharding.config import ShardingSettings
from sharding.identity import load_key
from sharding.jobs import SpillJob
from sharding.plan import DROPPED
from sharding.reading import read_block
from sharding.records import to_records
from sharding.scratch import Scratch, SpillReceipt, read_receipt, reusable, write_receipt

POSITION = "position"


def spill_schema(settings: ShardingSettings) -> pa.Schema:
    """Of the spill files: a shard's columns, and the record's place in the shard if groups stay together."""
    schema = shard_schema(settings.feature_names)
    return schema if settings.group == "none" else schema.append(pa.field(POSITION, pa.int32()))


def spill_block(job: SpillJob) -> int:
    """Write a block's spill file and its receipt, unless an earlier try has; returns the block's number."""
    block = job.block
    path = block.scratch.spill(block.number)
    if reusable(path, SpillReceipt):
        return block.number
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    batches: list[int] = []

    def write(file: BinaryIO) -> None:
        with pa.ipc.new_file(file, spill_schema(block.settings), options=options) as writer:
            for shard, rows in _grouped(job):
                writer.write_batch(rows.combine_chunks().to_batches()[0])
                batches.append(shard)

    seal = block.scratch.publish(path, write)
    block.file.check_unchanged()
    write_receipt(block.scratch, path, SpillReceipt(seal=seal, batches=batches))
    return block.number


def shard_parts(scratch: Scratch, *, num_blocks: int, num_shards: int) -> list[NDArray[np.int64]]:
    """For each shard the (block, record batch) pairs that hold its records, int64 of shape [parts, 2]."""
    receipts = [read_receipt(scratch.spill(block), SpillReceipt) for block in range(num_blocks)]
    counts = [len(receipt.batches) for receipt in receipts]
    batches = np.concatenate([np.arange(0), *(np.arange(count) for count in counts)])
    pairs = np.stack([np.repeat(np.arange(num_blocks), counts), batches], axis=1)
    shards = np.array([shard for receipt in receipts for shard in receipt.batches], dtype=np.int64)
    order = np.argsort(shards, kind="stable")
    return np.split(pairs[order], np.searchsorted(shards[order], np.arange(1, num_shards)))


def _grouped(job: SpillJob) -> Iterator[tuple[int, pa.Table]]:
    """(shard, its records) again and again, within each part of the block by ascending shard."""
    block = job.block
    settings, key = block.whole_settings(), load_key(block.key_path)
    assignment = _assignment(job)
    start = 0
    for rows in read_block(block):
        table = to_records(rows.table, key, settings).table
        placed = assignment[:, start : start + table.num_rows]
        start += table.num_rows
        if placed.shape[1] < table.num_rows:
            break
        for position in placed[1:]:
            table = table.append_column(POSITION, pa.array(position))
        yield from _split(table, placed[0])
    if start != assignment.shape[1]:
        raise DataError(f"{label(block.file.path)}: holds other records than when it was scanned; run again")


def _split(table: pa.Table, shards: NDArray[np.int32]) -> Iterator[tuple[int, pa.Table]]:
    order = np.argsort(shards, kind="stable")
    order = order[np.searchsorted(shards[order], DROPPED, side="right") :]
    if not len(order):
        return
    numbers, starts = np.unique(shards[order], return_index=True)
    for shard, rows in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
        yield shard, table.take(pa.array(rows))


def _assignment(job: SpillJob) -> NDArray[np.int32]:
    """Shard of each record of the block, [1, N]; with its place in the shard if groups stay together, [2, N]."""
    path = job.block.scratch.assignment(job.block.number)
    num_rows = 1 if job.block.settings.group == "none" else 2
    return np.frombuffer(read_verified(path, job.assignment), dtype="<i4").reshape(num_rows, -1)
