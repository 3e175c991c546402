"""One block: its partial, checked against its seal and against the rows of the shard that it claims to have scored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.errors import IntegrityError
from schemas.manifests import PartialEntry
from schemas.partials import PartialFile, read_partial
from schemas.seals import label
from schemas.tables import FEATURE_PREFIX, content_digest

ID_COLUMNS = ("record_id", "patient_id", "encounter_id")


def read_sealed_partial(file: PartialFile, entry: PartialEntry, *, run_id: str, features: list[str]) -> pa.Table:
    """The rows of a partial that is exactly the one its run sealed.

    Raises:
        IntegrityError: names the file and what differs.
    """
    table, seal = read_partial(file, run_id=run_id, features=features)
    where = label(file.path)
    if (entry.shard_id, entry.block) != (file.key.shard_id, file.key.block):
        raise IntegrityError(f"{where}: listed as another block than its name says; score again")
    if seal != entry.seal:
        raise IntegrityError(f"{where}: not the file that the run sealed; remove it and score again")
    if content_digest(table) != entry.content_digest:
        raise IntegrityError(f"{where}: rows differ from the digest that the run sealed; score again")
    return table


@contextmanager
def opened_shard(path: Path) -> Iterator[pq.ParquetFile]:
    """Open a shard for reading rows, with the project's errors.

    Raises:
        IntegrityError: the shard is absent or no readable Parquet file.
    """
    try:
        with pq.ParquetFile(path) as shard:
            yield shard
    except (OSError, pa.ArrowException):
        raise IntegrityError(f"{label(path)}: no readable Parquet file; restore the build") from None


def require_same_records(partial: pa.Table, shard: pq.ParquetFile, block: int, *, where: str) -> None:
    """The partial holds the block's records, each once, in order, with their keys and case features.

    Args:
        partial: Rows of ``partial_schema``.
        shard: The shard that the block is of; only key and feature columns are read, never text.
        block: Row group of the shard.
        where: How to name the partial.

    Raises:
        IntegrityError: names the columns that differ, never a value.
    """
    columns = key_columns(partial.schema.names)
    records: Any = shard.read_row_group(block, columns=columns)
    differing = [name for name in columns if not partial.column(name).equals(records.column(name))]
    if differing:
        raise IntegrityError(
            f"{where}: {partial.num_rows} rows differ from the block's {records.num_rows} records "
            f"in {', '.join(differing)}; remove it and score again"
        )


def key_columns(names: Sequence[str]) -> list[str]:
    """The columns that a partial shares with its shard."""
    return [name for name in names if name in ID_COLUMNS or name.startswith(FEATURE_PREFIX)]
