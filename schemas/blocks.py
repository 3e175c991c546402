"""What a manifest says of the blocks of a shard: one description for whoever writes rows and whoever checks them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from schemas.manifests import BlockEntry
from schemas.tables import carried_columns, content_digests, feature_columns


def block_entries(table: pa.Table, counts: Sequence[int]) -> list[BlockEntry]:
    """Describe consecutive rows of a shard.

    Args:
        table: Of ``shard_schema``.
        counts: Rows of each block, none of them 0.
    """
    ends = np.cumsum(counts)
    num_bytes, tokens = (_sums(table.column(name), ends) for name in ("num_bytes", "estimated_tokens"))
    carried = table.select(carried_columns(feature_columns(table.schema)))
    digests = zip(content_digests(table, counts), content_digests(carried, counts), strict=True)
    return [
        BlockEntry(
            num_records=count,
            num_text_bytes=size,
            estimated_tokens=estimate,
            content_digest=whole,
            carried_digest=part,
        )
        for count, size, estimate, (whole, part) in zip(counts, num_bytes, tokens, digests, strict=True)
    ]


def blocks_digest(blocks: Iterable[BlockEntry]) -> str:
    """Hex SHA-256 over the content digests of a shard's blocks, in order: the content of the shard."""
    return hashlib.sha256(b"".join(bytes.fromhex(block.content_digest) for block in blocks)).hexdigest()


def _sums(column: pa.ChunkedArray, ends: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[int]:
    """Sum of each block; exact, since no shard has 2**63 bytes."""
    totals = np.concatenate([[0], np.cumsum(column.to_numpy())])
    found: list[int] = np.diff(totals[np.concatenate([[0], ends])]).tolist()
    return found
