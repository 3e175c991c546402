"""Parquet: one span per row group, only the mapped columns, every type written as a CSV file would write it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from schemas.errors import DataError
from schemas.seals import label
from sharding.sources.source import ALL_COLUMNS, UNDECODABLE, Header, Rows, Span, decoded_table, nested_text, row_digest

BATCH_ROWS = 8_192
BUFFER_BYTES = 1 << 20
# Below this, every integer has its own FP64 number, so a whole number is an integer that met a null in pandas.
EXACT_INTEGERS = 2.0**53


@dataclass(frozen=True, slots=True)
class ParquetSource:
    """Any Parquet file whose mapped columns hold plain values."""

    def header(self, path: Path, head: bytes) -> Header:  # noqa: ARG002 - the protocol's form
        """See ``Source``."""
        with _readable(path) as file:
            return Header(tuple(file.schema_arrow.names), closed=True)

    def spans(self, path: Path, block_bytes: int) -> list[Span]:  # noqa: ARG002 - row groups are what they are
        """See ``Source``."""
        with _readable(path) as file:
            groups = [file.metadata.row_group(index) for index in range(file.metadata.num_row_groups)]
        return [Span(index, index + 1, group.total_byte_size) for index, group in enumerate(groups) if group.num_rows]

    def read(self, path: Path, span: Span, *, columns: Mapping[str, str]) -> Iterator[Rows]:
        """See ``Source``."""
        with _readable(path) as file:
            kinds = {field.name: field.type for field in file.schema_arrow}
            mapped = {role: name for role, name in columns.items() if name != ALL_COLUMNS}
            names = list(dict.fromkeys(mapped.values() if mapped == columns else kinds))
            nested = sorted(role for role, name in mapped.items() if pa.types.is_nested(kinds[name]))
            if nested:
                raise DataError(f"{label(path)}: nested values in the columns of {', '.join(nested)}; map plain ones")
            groups = range(span.start, span.stop)
            for batch in file.iter_batches(BATCH_ROWS, row_groups=groups, columns=names, use_threads=False):
                yield _rows(pa.Table.from_batches([batch]), columns)


def num_rows(path: Path) -> int:
    """Of a whole file.

    Raises:
        DataError: it cannot be read.
    """
    with _readable(path) as file:
        return int(file.metadata.num_rows)


def _rows(batch: pa.Table, columns: Mapping[str, str]) -> Rows:
    arrays = {
        role: _digests(batch) if column == ALL_COLUMNS else _as_binary(batch.column(column))
        for role, column in columns.items()
    }
    table, num_undecodable = decoded_table(pa.table(arrays))
    return Rows(table, +Counter({UNDECODABLE: num_undecodable}), frozenset(columns))


def _digests(batch: pa.Table) -> pa.Array:
    """Of whole rows."""
    columns = [
        [None if value is None else nested_text(value) for value in column.to_pylist()]
        if pa.types.is_nested(column.type)
        else _as_binary(column).to_pylist()
        for column in batch.columns
    ]
    digests = [row_digest(zip(batch.column_names, cells, strict=True)) for cells in zip(*columns, strict=True)]
    return pa.array(digests, pa.large_binary())


def _as_binary(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Every value as the bytes of its string."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_floating(column.type):
        column = _whole_as_integers(column)
    if pa.types.is_fixed_size_binary(column.type):
        column = column.cast(pa.binary())
    if not (pa.types.is_large_binary(column.type) or pa.types.is_binary(column.type)):
        column = column.cast(pa.large_string())
    return column.cast(pa.large_binary())


def _whole_as_integers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Numbers as strings; a whole number has no point: 1, not 1.0."""
    wide = column.cast(pa.float64())
    whole = pc.and_(pc.equal(pc.floor(wide), wide), pc.less(pc.abs(wide), EXACT_INTEGERS)).fill_null(False)
    integers = pc.if_else(whole, wide, None).cast(pa.int64()).cast(pa.large_string())
    return pc.if_else(whole, integers, column.cast(pa.large_string()))


@contextmanager
def _readable(path: Path) -> Iterator[pq.ParquetFile]:
    """A Parquet file whose reader's own messages, which may quote data, never get out."""
    try:
        found = path.stat()
        metadata = _metadata(path, (found.st_ino, found.st_size, found.st_mtime_ns))
        # In pieces: by default a row group's columns, which may be gigabytes, are fetched before the first row.
        with pq.ParquetFile(path, metadata=metadata, buffer_size=BUFFER_BYTES, pre_buffer=False) as file:
            yield file
    except (pa.ArrowException, OSError):
        raise DataError(f"{label(path)}: no readable Parquet file; write it again, or set --format") from None


@lru_cache(maxsize=8)
def _metadata(path: Path, _version: tuple[int, ...]) -> pq.FileMetaData:
    """The footer, which tells of every row group, read once and not for every row group."""
    return pq.read_metadata(path)
