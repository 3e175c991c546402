"""What a build may take on disk, by its inputs alone: said before anything is read or copied.

Little is certain then: only that text which is compressed or in another encoding is copied. How much of a file is
notes, how many of them are kept, and what a compressed file holds is not known before it is read, so the rest are upper
estimates: a byte of any encoding becomes at most three of UTF-8, a factor stands for what is compressed, and records
are as long as those in the head of their file. After pass 1 the plan has exact counts, see ``space``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from sharding.config import ShardingSettings
from sharding.inputs import SourceFile, head_of
from sharding.sources.adapter import MIXED, NOTES, Contents
from sharding.sources.adapters import contents_of
from sharding.sources.formats import FORMATS, is_delimited, is_text
from sharding.sources.parquet import num_rows
from sharding.sources.quoting import LF, QUOTE

# Ids, lengths, department and a handful of case features.
ROW_BYTES = 192
# Spill files are not compressed, and each of their record batches has a head. English clinical notes take 0.4 of their
# size in zstd; the rest is room for other text.
SPILL_SHARE = 1.15
SHARD_SHARE = 0.6
# Python with Dask, Arrow and NumPy.
WORKER_BYTES = 250 << 20
# Clinical notes shrink to a quarter or a third in gzip and Zstandard, tables to a tenth; what does not shrink grows by
# a thousandth, and by a frame.
PLAIN_PER_COMPRESSED = 10
LEAST_PLAIN_PER_COMPRESSED = 0.9
# Four bytes of UTF-32 may be one, and two of most other encodings three.
UTF8_PER_BYTE = 3
LEAST_UTF8_PER_BYTE = 0.25
# Of a record: its key with group and time, and its shard and place there.
KEY_BYTES = 96


@dataclass(frozen=True, slots=True)
class Bound:
    """At most so much, in bytes.

    Attributes:
        least_copy_bytes: At least so much of copies; nothing else is certain.
        copy_bytes: Plain UTF-8 copies of compressed or otherwise encoded inputs, in scratch.
        lookup_bytes: Lookup tables of side files, in scratch.
        key_bytes: Key tables and places of records, in scratch.
        spill_bytes: Text on its way to the shards, in scratch.
        shard_bytes: The finished shards.
        lookup_worker_bytes: Memory of the one worker that makes the lookup tables; 0 without side files.
        num_compressed: Text files whose plain size is not known.
    """

    least_copy_bytes: int
    copy_bytes: int
    lookup_bytes: int
    key_bytes: int
    spill_bytes: int
    shard_bytes: int
    lookup_worker_bytes: int
    num_compressed: int

    @property
    def scan_bytes(self) -> int:
        """What scratch may hold of pass 1."""
        return self.copy_bytes + self.lookup_bytes + self.key_bytes

    @property
    def scratch_bytes(self) -> int:
        """All that scratch may hold at a time."""
        return self.scan_bytes + self.spill_bytes


@dataclass(frozen=True, slots=True)
class _Sized:
    """A file: bytes as plain UTF-8 and rows, at most; bytes of its copy, at least; and what becomes of it."""

    use: str
    contents: Contents
    num_bytes: int
    num_rows: int
    least_copy_bytes: int
    is_copied: bool
    is_compressed: bool


def bound(files: Iterable[SourceFile], settings: ShardingSettings) -> Bound:
    """What a build of these files may take.

    Raises:
        DataError: a Parquet file cannot be read.
        IntegrityError: a text file is not in the encoding at all.
    """
    sized = [_sized(file, settings) for file in files]
    sides = [file for file in sized if file.use != NOTES]
    num_records = sum(file.num_rows for file in sized if file.use in (NOTES, MIXED))
    size = sum(file.num_bytes for file in sized if file.contents.has_text) + num_records * ROW_BYTES
    lookup_memory = sum(file.num_rows * file.contents.row_memory_bytes for file in sides)
    lookup_memory += max((file.contents.memory_bytes for file in sides), default=0)
    return Bound(
        least_copy_bytes=sum(file.least_copy_bytes for file in sized),
        copy_bytes=sum(file.num_bytes for file in sized if file.is_copied),
        lookup_bytes=sum(file.num_rows * file.contents.row_bytes for file in sides),
        key_bytes=num_records * KEY_BYTES,
        spill_bytes=int(SPILL_SHARE * size),
        shard_bytes=int(SHARD_SHARE * size),
        lookup_worker_bytes=WORKER_BYTES + lookup_memory if sides else 0,
        num_compressed=sum(file.is_compressed for file in sized),
    )


def _sized(file: SourceFile, settings: ShardingSettings) -> _Sized:
    num_bytes = _plain_bytes(file, settings)
    is_copied = is_text(file.format) and (file.compression is not None or settings.encoding != "utf-8")
    return _Sized(
        use=file.use,
        contents=contents_of(settings.source, file.use),
        num_bytes=num_bytes,
        num_rows=_num_rows(file, settings, num_bytes=num_bytes),
        least_copy_bytes=_least_bytes(file, settings) if is_copied else 0,
        is_copied=is_copied,
        is_compressed=file.compression is not None,
    )


def _plain_bytes(file: SourceFile, settings: ShardingSettings) -> int:
    """As UTF-8, at most; of Parquet its pages before compression."""
    if not is_text(file.format):
        return sum(span.num_bytes for span in FORMATS[file.format].spans(file.path, 1))
    plain = file.num_bytes * (PLAIN_PER_COMPRESSED if file.compression else 1)
    return plain * (1 if settings.encoding == "utf-8" else UTF8_PER_BYTE)


def _least_bytes(file: SourceFile, settings: ShardingSettings) -> int:
    """Of a text file as plain UTF-8."""
    plain = file.num_bytes * (LEAST_PLAIN_PER_COMPRESSED if file.compression else 1)
    return int(plain * (1 if settings.encoding == "utf-8" else LEAST_UTF8_PER_BYTE))


def _num_rows(file: SourceFile, settings: ShardingSettings, *, num_bytes: int) -> int:
    """Of a text file of so many bytes, if they are as long as in its head; a header line is one too."""
    if not is_text(file.format):
        return num_rows(file.path)
    head = np.frombuffer(head_of(file, settings.encoding), dtype=np.uint8)
    is_end = head == LF
    if is_delimited(file.format):
        is_end &= np.cumsum(head == QUOTE) % 2 == 0
    return num_bytes * int(is_end.sum()) // max(1, len(head)) + 1
