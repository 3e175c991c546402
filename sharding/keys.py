"""The keys of all records, read back after pass 1 into a few plain arrays."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from schemas.errors import IntegrityError
from schemas.multiset import id_bytes
from schemas.seals import label
from schemas.tables import ID_TYPE
from sharding.config import ShardingSettings
from sharding.placement import Keys
from sharding.scratch import Scratch, read_receipt
from sharding.scratch_documents import ScanReceipt

# Column of a key table to field of ``Keys``.
_FIELDS = {
    "record_id": "record_ids",
    "row_digest": "row_digests",
    "text_hash": "text_hashes",
    "stratum": "strata",
    "department": "departments",
    "estimated_tokens": "tokens",
    "group": "groups",
    "time": "times",
}


@dataclass(frozen=True, slots=True)
class Scanned:
    """All of pass 1: receipts by block, keys of all records in block order."""

    receipts: list[ScanReceipt]
    keys: Keys


def load_scan(num_blocks: int, scratch: Scratch, settings: ShardingSettings) -> Scanned:
    """The receipts and keys of all blocks, in block order.

    Raises:
        IntegrityError: a key table is absent or damaged.
    """
    receipts = [read_receipt(scratch, scratch.keys(block), ScanReceipt) for block in range(num_blocks)]
    total = sum(receipt.num_records for receipt in receipts)
    num_grouped = 0 if settings.group == "none" else total
    keys = Keys(
        record_ids=np.empty((total, 16), dtype=np.uint8),
        row_digests=np.empty((total, 16), dtype=np.uint8),
        text_hashes=np.empty(total, dtype=np.uint64),
        strata=np.empty(total, dtype=np.uint64),
        departments=np.empty(total, dtype=np.uint64),
        tokens=np.empty(total, dtype=np.int64),
        groups=np.empty((num_grouped, 16), dtype=np.uint8),
        times=np.empty(num_grouped, dtype=np.int64),
    )
    start = 0
    for block, receipt in enumerate(receipts):
        stop = start + receipt.num_records
        _fill(keys, slice(start, stop), _read(scratch, scratch.keys(block), receipt))
        start = stop
    return Scanned(receipts, keys)


def record_ids(block: int, scratch: Scratch) -> pa.FixedSizeBinaryArray:
    """Ids of a block's records in their order, as pass 1 has made them.

    Raises:
        IntegrityError: the key table is absent or damaged.
    """
    path = scratch.keys(block)
    return _read(scratch, path, read_receipt(scratch, path, ScanReceipt)).column("record_id").combine_chunks()


def _fill(keys: Keys, rows: slice, table: pa.Table) -> None:
    for name in table.column_names:
        target, column = getattr(keys, _FIELDS[name]), table.column(name)
        target[rows] = id_bytes(column) if column.type == ID_TYPE else column.to_numpy()


def _read(scratch: Scratch, path: Path, receipt: ScanReceipt) -> pa.Table:
    content = scratch.read_verified(path, receipt.seal)
    try:
        with pa.ipc.open_file(pa.BufferReader(content)) as reader:
            table = reader.read_all()
    except (pa.ArrowException, OSError):
        raise IntegrityError(f"{label(path)}: no readable key table; run again to make it again") from None
    if table.num_rows != receipt.num_records:
        raise IntegrityError(f"{label(path)}: {table.num_rows} keys, {receipt.num_records} were scanned; run again")
    return table
