"""Which rows there are, whatever their order: the sum of their 128-bit digests modulo 2**128.

A sum, not an XOR: two copies of one row would cancel out in an XOR, as would any even number of them. The digests are
xxh3_128: they find every accident, at the speed of memory. Against an adversary stand the SHA-256 digests of what is
sealed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

DIGEST_BYTES = 16
MULTISET_MODULUS = 1 << 128
# Columns of shorter cells are most often names that come again and again.
SHORT_CELL_BYTES = 48


def row_digests(table: pa.Table, known: Mapping[str, NDArray[np.uint8]] | None = None) -> NDArray[np.uint8]:
    """xxh3_128 of every row of a table of strings, fixed-size binary ids and non-null int64 columns.

    A row's message has a fixed width: the 8 bytes of each number; for each other cell a byte that is 1, or 0 for null,
    and 16 bytes: the id itself or the xxh3_128 of a string, zeros for null. So ("ab", "c") and ("a", "bc"), or null and
    "", never meet.

    Args:
        table: The rows.
        known: ``string_digests`` of columns for which they have been computed.

    Returns:
        uint8 array of shape [rows, 16].
    """
    columns = zip(table.column_names, table.columns, strict=True)
    messages = np.concatenate([_fixed_width(column, (known or {}).get(name)) for name, column in columns], axis=1)
    width = messages.shape[1]
    buffer = messages.reshape(-1).data
    rows = (buffer[start : start + width] for start in range(0, len(buffer), width))
    return _matrix(b"".join(map(xxhash.xxh3_128_digest, rows)))


def string_digests(column: pa.ChunkedArray) -> NDArray[np.uint8]:
    """xxh3_128 of every string, uint8 [rows, 16]; of a null as of the empty string."""
    if column.nbytes > SHORT_CELL_BYTES * len(column):
        return _matrix(b"".join(map(xxhash.xxh3_128_digest, cells_of(column))))
    encoded = column.combine_chunks().dictionary_encode()
    names = pa.chunked_array([encoded.dictionary, pa.array([""], encoded.dictionary.type)])
    distinct = _matrix(b"".join(map(xxhash.xxh3_128_digest, cells_of(names))))
    found: NDArray[np.uint8] = distinct[encoded.indices.fill_null(len(distinct) - 1).to_numpy()]
    return found


def cells_of(column: pa.ChunkedArray) -> Iterator[memoryview]:
    """The bytes of every cell of a column of strings; null is as empty. Nothing is copied."""
    for chunk in column.cast(pa.large_binary()).chunks:
        array = chunk.fill_null(b"") if chunk.null_count else chunk
        _, offsets, values = array.buffers()
        borders = np.frombuffer(offsets, dtype=np.int64)[array.offset : array.offset + len(array) + 1].tolist()
        buffer = memoryview(b"" if values is None else values)
        for index in range(len(array)):
            yield buffer[borders[index] : borders[index + 1]]


def id_bytes(column: pa.ChunkedArray) -> NDArray[np.uint8]:
    """A column of 16-byte ids as uint8 [rows, 16]; under a null lies anything."""
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    return np.concatenate([np.empty((0, DIGEST_BYTES), dtype=np.uint8), *map(_id_matrix, chunks)])


def digest_sum(digests: NDArray[np.uint8]) -> int:
    """The sum of little-endian 128-bit digests modulo 2**128.

    Args:
        digests: uint8 array of shape [rows, 16], fewer than 2**32 rows.
    """
    limbs = np.ascontiguousarray(digests).view("<u4").reshape(-1, 4).sum(axis=0, dtype=np.uint64)
    return sum(int(limb) << (32 * index) for index, limb in enumerate(limbs)) % MULTISET_MODULUS


def multiset_hex(total: int) -> str:
    """How a manifest writes a sum of digests: 32 hex digits, most significant first."""
    return f"{total % MULTISET_MODULUS:032x}"


def _fixed_width(column: pa.ChunkedArray, digests: NDArray[np.uint8] | None) -> NDArray[np.uint8]:
    """A column's part of every message, uint8 [rows, 8 or 17]."""
    if pa.types.is_integer(column.type):
        numbers: NDArray[np.uint8] = column.to_numpy().astype("<i8").reshape(-1, 1).view(np.uint8)
        return numbers
    valid = column.is_valid().to_numpy()
    if pa.types.is_fixed_size_binary(column.type):
        cells = id_bytes(column)
    else:
        cells = string_digests(column) if digests is None else digests
    part = np.zeros((len(column), 1 + DIGEST_BYTES), dtype=np.uint8)
    part[:, 0] = valid
    part[valid, 1:] = cells[valid]
    return part


def _id_matrix(chunk: pa.FixedSizeBinaryArray) -> NDArray[np.uint8]:
    rows = _matrix(chunk.buffers()[1])
    return rows[chunk.offset : chunk.offset + len(chunk)]


def _matrix(digests: bytes | pa.Buffer) -> NDArray[np.uint8]:
    return np.frombuffer(digests, dtype=np.uint8).reshape(-1, DIGEST_BYTES)
