"""From a block's results to its partial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from schemas.parts import loss_column, tokens_column
from schemas.tables import feature_columns, partial_schema
from scoring.engine import RecordResult


def partial_table(carried: pa.Table, results: Sequence[RecordResult], parts: Sequence[str] = ()) -> pa.Table:
    """The rows of a partial.

    Args:
        carried: record_id, patient_id, encounter_id and features of the block, as in its shard.
        results: One for each row, in the same order.
        parts: What their losses are split into.

    Returns:
        A table of ``partial_schema``; equal inputs give equal rows on every rank.
    """
    schema = partial_schema(feature_columns(carried.schema), parts)
    computed: dict[str, list[Any]] = {
        "status": [result.status for result in results],
        "loss_nats": [result.loss_nats for result in results],
        "check_loss_nats": [result.check_loss_nats for result in results],
        "num_tokens": [result.num_tokens for result in results],
        "num_words": [result.num_words for result in results],
        "num_bytes": [result.num_bytes for result in results],
        "num_windows": [result.num_windows for result in results],
        "precision": [result.precision for result in results],
    }
    for place, part in enumerate(parts):
        losses = [result.parts[place] if result.parts else None for result in results]
        computed[loss_column(part)] = [loss.loss_nats if loss else None for loss in losses]
        computed[tokens_column(part)] = [loss.num_tokens if loss else 0 for loss in losses]
    columns = [
        pa.chunked_array([pa.array(computed[item.name], type=item.type)])
        if item.name in computed
        else carried.column(item.name)
        for item in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
