"""Which rows there are, whatever their order: the sum of their 128-bit digests modulo 2**128.

A sum, not an XOR: two copies of one row would cancel out in an XOR, as would any even number of them.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

DIGEST_BYTES = 16
MULTISET_MODULUS = 1 << 128

_NULL_LENGTH = -1


def row_digests(table: pa.Table) -> NDArray[np.uint8]:
    """BLAKE2b-128 of every row of a table of strings, binary ids and non-null int64 columns.

    A row's message is one int64 per column (a length in bytes, -1 for null, or the number itself), then the bytes of
    its strings and ids in column order; so ("ab", "c") and ("a", "bc"), or null and "", never meet.

    Returns:
        uint8 array of shape [rows, 16].
    """
    head = np.empty((table.num_rows, table.num_columns), dtype="<i8")
    parts: list[list[bytes]] = []
    for index, column in enumerate(table.columns):
        if pa.types.is_integer(column.type):
            head[:, index] = column.to_numpy()
            continue
        binary = column.cast(pa.large_binary())
        head[:, index] = pc.binary_length(binary).fill_null(_NULL_LENGTH).to_numpy()
        parts.append(binary.fill_null(b"").to_pylist())
    width = head.shape[1] * head.itemsize
    heads = head.tobytes()
    digests = bytearray()
    for row in range(table.num_rows):
        message = b"".join([heads[row * width : (row + 1) * width], *(column[row] for column in parts)])
        digests += hashlib.blake2b(message, digest_size=DIGEST_BYTES).digest()
    return np.frombuffer(bytes(digests), dtype=np.uint8).reshape(table.num_rows, DIGEST_BYTES)


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
