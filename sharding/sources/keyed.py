"""Tables to look keys up in that are mapped from the disk: a search touches a few pages, however long the table is.

Rows are sorted by the hash of their key, so a key is found by bisection; the key itself is compared too, so a collision
of hashes costs a step and never gives a wrong row. A long table comes from its file in parts, which are never put
together: that would copy what has not been asked for.

Shapes: N rows of the table, W wanted keys, C parts of a column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from numpy.typing import NDArray

KEY = "key"
HASH = "key_hash"
HASHED_AT_ONCE = 1 << 20
Side = Literal["left", "right"]


def keyed(table: pa.Table) -> pa.Table:
    """A table with a column ``key`` as one that ``find`` can search; equal keys must have been settled before."""
    hashes = _hashes(table.column(KEY))
    order = np.argsort(hashes, kind="stable")
    sorted_table = table.take(pa.array(order)).combine_chunks()
    return sorted_table.append_column(HASH, pa.array(hashes[order]))


def latest(table: pa.Table, by: Sequence[str]) -> pa.Table:
    """One row per key: the last in the order of some columns (null first), whatever the order of the rows is."""
    # Descending, since nulls go to the end either way.
    order = pc.sort_indices(table, sort_keys=[(KEY, "ascending"), *((name, "descending") for name in by)])
    rows = table.take(order)
    keys = rows.column(KEY).combine_chunks()
    is_first = np.ones(len(keys), dtype=np.bool_)
    if len(keys) > 1:
        is_first[1:] = pc.not_equal(keys.slice(1), keys.slice(0, len(keys) - 1)).to_numpy(zero_copy_only=False)
    return rows.filter(pa.array(is_first))


def find(table: pa.Table, wanted: Sequence[str | None]) -> NDArray[np.int64]:
    """Row of each wanted key, int64 [W]; -1 where there is none."""
    distinct = [key for key in dict.fromkeys(wanted) if key is not None]
    starts, stops = rows_with(table, hashes_of(distinct))
    keys_N = table.column(KEY)
    row_of = {
        key: next((row for row in range(start, stop) if keys_N[row].as_py() == key), -1)
        for key, start, stop in zip(distinct, starts.tolist(), stops.tolist(), strict=True)
    }
    return np.array([-1 if key is None else row_of[key] for key in wanted], dtype=np.int64)


def values_at(table: pa.Table, name: str, rows: NDArray[np.int64]) -> pa.Array:
    """Values of a column at some rows, null for -1; as long as ``rows``."""
    values = table.column(name).take(pa.array(rows, mask=rows < 0))
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def rows_with(table: pa.Table, hashes: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First row and the row after the last of those whose key has each hash, int64 [W] both; keys may share a hash."""
    parts = [part.to_numpy() for part in table.column(HASH).chunks if len(part)]
    ends_C = np.array([part[-1] for part in parts], dtype=np.uint64)
    firsts, lasts = np.searchsorted(ends_C, hashes, side="left"), np.searchsorted(ends_C, hashes, side="right")
    return _positions(parts, hashes, firsts, side="left"), _positions(parts, hashes, lasts, side="right")


def rows_at(table: pa.Table, rows: NDArray[np.int64]) -> pa.Table:
    """The rows with these ascending numbers."""
    batches = table.to_batches()
    stops = np.cumsum([batch.num_rows for batch in batches], dtype=np.int64)
    cuts = np.searchsorted(rows, stops)
    starts = np.concatenate([[0], cuts])[:-1]
    taken = [
        batch.take(pa.array(rows[start:cut] - (stop - batch.num_rows)))
        for batch, start, cut, stop in zip(batches, starts, cuts, stops, strict=True)
        if start < cut
    ]
    return pa.Table.from_batches(taken, table.schema)


def hashes_of(keys: Sequence[str]) -> NDArray[np.uint64]:
    """Hash of each key, uint64 [W]."""
    return np.array([hash_of(key) for key in keys], dtype=np.uint64)


def hash_of(key: str) -> int:
    """xxh3_64 of a key's UTF-8 bytes."""
    return xxhash.xxh3_64_intdigest(key.encode())


def _hashes(keys: pa.ChunkedArray) -> NDArray[np.uint64]:
    """Hash of each key, uint64 [N]; a part at a time, since Python strings take several times the room."""
    parts = (keys.slice(start, HASHED_AT_ONCE).to_pylist() for start in range(0, len(keys), HASHED_AT_ONCE))
    return np.fromiter((hash_of(key) for part in parts for key in part), dtype=np.uint64, count=len(keys))


def _positions(
    parts: Sequence[NDArray[np.uint64]], hashes: NDArray[np.uint64], part_of: NDArray[np.int64], *, side: Side
) -> NDArray[np.int64]:
    """Where each hash is to be found or put, int64 [W], by the number of the part in which that is."""
    starts = np.cumsum([0, *map(len, parts)], dtype=np.int64)
    found = starts[part_of]
    for number in np.unique(part_of[part_of < len(parts)]):
        here = part_of == number
        found[here] += np.searchsorted(parts[number], hashes[here], side=side)
    return found
