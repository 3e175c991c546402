"""Encrypted Parquet: one key per file, and nothing of it readable without (Parquet modular encryption, AES-GCM).

Footer, pages, sizes and statistics are all under the file's own key; the AAD prefix, which is not in the file, says
which shard of which build it is, so that one cannot be put in another's place. Keys are given to each reader directly:
Arrow's own key tools keep unwrapped keys in a cache of the process, from which a second principal once could read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.errors import IntegrityError


def encryption(key: bytes | None, place: str) -> Any:
    """What a writer needs to encrypt a file for its place; None leaves it in the clear."""
    if key is None:
        return None
    from pyarrow.parquet.encryption import create_encryption_properties

    return create_encryption_properties(key, aad_prefix=place.encode(), store_aad_prefix=False)


def open_parquet(source: Path | pa.Buffer, key: bytes | None, place: str, *, where: str) -> pq.ParquetFile:
    """Open a Parquet file; with a key, only one that was encrypted with it for this place.

    Args:
        source: A file, or its content.
        key: 32 bytes; None for a file in the clear.
        place: As the writer named it.
        where: How messages name the file.

    Raises:
        IntegrityError: it is no such file.
    """
    properties = None
    if key is not None:
        from pyarrow.parquet.encryption import create_decryption_properties

        properties = create_decryption_properties(key, aad_prefix=place.encode())
    try:
        return pq.ParquetFile(
            pa.BufferReader(source) if isinstance(source, pa.Buffer) else source, decryption_properties=properties
        )
    except (pa.ArrowException, OSError):
        raise IntegrityError(
            f"{where}: no readable Parquet file{' under its key' if key else ''}; restore the file or make the build "
            "again"
        ) from None
