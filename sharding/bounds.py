"""What a build may take on disk, by the sizes of its inputs alone: said before anything is read or copied.

Upper estimates. A byte of any encoding becomes at most three of UTF-8; what a compressed text file holds is not known
before it is read, so a factor stands for it that few notes reach; and records are taken to be short, since each has a
key. After pass 1 the plan has exact counts, see ``space``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sharding.config import ShardingSettings
from sharding.inputs import SourceFile
from sharding.sources.adapter import MIXED, NOTES
from sharding.sources.formats import FORMATS, is_text

# Ids, lengths, department and a handful of case features.
ROW_BYTES = 192
# English clinical notes take 0.6 of their size in LZ4 and 0.4 in zstd; the rest is room for other text.
SPILL_SHARE = 0.8
SHARD_SHARE = 0.6
# Python with Dask, Arrow and NumPy.
WORKER_BYTES = 250 << 20
# Clinical notes shrink to a quarter or a third in gzip and Zstandard, tables to a tenth.
PLAIN_PER_COMPRESSED = 10
UTF8_PER_BYTE = 3
# Of a record on average, at least; its key with group and time, and its shard and place there.
RECORD_BYTES = 256
KEY_BYTES = 96
# Measured with MIMIC-IV's services, of 40 bytes a row as CSV: 112 bytes a row of lookup tables, and 580 bytes a row in
# the memory of the one worker that reads, joins and sorts them; so 6 GB for ten million rows.
LOOKUP_SHARE = 3
LOOKUP_COPIES = 15


@dataclass(frozen=True, slots=True)
class Bound:
    """At most so much, in bytes.

    Attributes:
        copy_bytes: Plain UTF-8 copies of compressed or otherwise encoded inputs, in scratch.
        lookup_bytes: Lookup tables of side files, in scratch.
        key_bytes: Key tables and places of records, in scratch.
        spill_bytes: Text on its way to the shards, in scratch.
        shard_bytes: The finished shards.
        lookup_worker_bytes: Memory of the one worker that makes the lookup tables; 0 without side files.
        num_compressed: Text files whose plain size is not known.
    """

    copy_bytes: int
    lookup_bytes: int
    key_bytes: int
    spill_bytes: int
    shard_bytes: int
    lookup_worker_bytes: int
    num_compressed: int

    @property
    def scratch_bytes(self) -> int:
        """All that scratch may hold at a time."""
        return self.copy_bytes + self.lookup_bytes + self.key_bytes + self.spill_bytes


def bound(files: Iterable[SourceFile], settings: ShardingSettings) -> Bound:
    """What a build of these files may take.

    Raises:
        DataError: a Parquet file cannot be read.
    """
    copied = notes = sides = num_compressed = 0
    for file in files:
        num_bytes = _plain_bytes(file, settings)
        num_compressed += file.compression is not None
        copied += num_bytes if is_text(file.format) and (file.compression or settings.encoding != "utf-8") else 0
        notes += num_bytes if file.use in (NOTES, MIXED) else 0
        sides += num_bytes if file.use != NOTES else 0
    num_records = notes // RECORD_BYTES + 1
    size = notes + num_records * ROW_BYTES
    return Bound(
        copy_bytes=copied,
        lookup_bytes=LOOKUP_SHARE * sides,
        key_bytes=num_records * KEY_BYTES,
        spill_bytes=int(SPILL_SHARE * size),
        shard_bytes=int(SHARD_SHARE * size),
        lookup_worker_bytes=WORKER_BYTES + LOOKUP_COPIES * sides if sides else 0,
        num_compressed=num_compressed,
    )


def _plain_bytes(file: SourceFile, settings: ShardingSettings) -> int:
    """As UTF-8; of Parquet its pages before compression."""
    if not is_text(file.format):
        return sum(span.num_bytes for span in FORMATS[file.format].spans(file.path, 1))
    plain = file.num_bytes * (PLAIN_PER_COMPRESSED if file.compression else 1)
    return plain * (1 if settings.encoding == "utf-8" else UTF8_PER_BYTE)
