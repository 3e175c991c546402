"""One block: its partial, checked against its seal and against what the manifest says of the block."""

from __future__ import annotations

import pyarrow as pa

from aggregate.runs import Run
from schemas.errors import IntegrityError
from schemas.folders import Build
from schemas.manifests import BlockEntry, PartialEntry
from schemas.partials import PartialFile, read_partial
from schemas.seals import label
from schemas.tables import carried_columns, content_digest, feature_columns


def read_sealed_partial(file: PartialFile, entry: PartialEntry, *, run: Run, build: Build) -> pa.Table:
    """The rows of a partial that is exactly the one its run sealed.

    Raises:
        AccessDeniedError: the department's losses were not granted.
        IntegrityError: names the file and what differs.
    """
    results_key = build.results_key(file.key.department)
    table, seal = read_partial(
        file,
        run_id=run.header.run_id,
        features=build.manifest.features,
        parts=run.header.parts,
        results_key=results_key,
    )
    where = label(file.path)
    if (entry.shard_id, entry.block) != (file.key.shard_id, file.key.block):
        raise IntegrityError(f"{where}: listed as another block than its name says; score again")
    if seal != entry.seal:
        raise IntegrityError(f"{where}: not the file that the run sealed; remove it and score again")
    if content_digest(table) != entry.content_digest:
        raise IntegrityError(f"{where}: rows differ from the digest that the run sealed; score again")
    return table


def require_same_records(partial: pa.Table, block: BlockEntry, *, where: str) -> None:
    """The partial holds the block's records, each once, in order, with their keys and case features.

    Args:
        partial: Rows of ``partial_schema``.
        block: What the manifest says of the block; no shard is opened for it.
        where: How to name the partial.

    Raises:
        IntegrityError: they are others, or differ; never tells a value.
    """
    carried = partial.select(carried_columns(feature_columns(partial.schema)))
    if partial.num_rows != block.num_records or content_digest(carried) != block.carried_digest:
        raise IntegrityError(
            f"{where}: {partial.num_rows} rows are not the block's {block.num_records} records with their ids and case "
            "features in order; remove it and score again"
        )
