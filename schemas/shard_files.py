"""Opening a shard of a build, encrypted or in the clear."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.build_keys import shard_place
from schemas.errors import IntegrityError
from schemas.folders import Build
from schemas.manifests import ShardEntry
from schemas.parquet import open_parquet
from schemas.seals import label
from schemas.tables import check, shard_schema


def read_shard(build: Build, shard: ShardEntry) -> pa.Table:
    """All rows of a shard, with the schema checked.

    Raises:
        AccessDeniedError: it is encrypted, and its key was not granted.
        IntegrityError: the file is no Parquet file of this schema.
    """
    where = label(build.shard_path(shard))
    with open_shard(build, shard) as file:
        try:
            table = file.read()
        except (pa.ArrowException, OSError):
            raise IntegrityError(f"{where}: no readable Parquet file; restore the file or build again") from None
    check(table, shard_schema(build.manifest.features), where)
    return table


def open_shard(build: Build, shard: ShardEntry, content: bytes | None = None) -> pq.ParquetFile:
    """Open a shard's file, or its content if that was read already; errors as ``read_shard``."""
    path = build.shard_path(shard)
    source = path if content is None else pa.py_buffer(content)
    place = shard_place(build.manifest.build_id, shard.shard_id)
    return open_parquet(source, build.shard_key(shard), place, where=label(path))
