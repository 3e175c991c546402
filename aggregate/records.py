"""The records of a run as one polars frame: who, which stratum, how many tokens, and the loss cut into exact limbs.

Columns: ``department`` and ``feature.*`` (categorical, null kept), ``patient_id`` (binary, null where unknown),
``scored`` (bool), ``num_tokens``, ``num_words``, ``num_bytes`` (int64), and the columns of ``aggregate.limbs``, which
are zero where ``scored`` is false. Where a run splits losses, also the columns of its parts (``schemas.parts``), with
zeros in place of nulls. No text, no raw id.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pyarrow as pa

from aggregate.crossings import DEPARTMENT
from aggregate.limbs import split
from schemas.parts import part_columns, parts_of
from schemas.tables import FEATURE_PREFIX, STATUS_SCORED, partial_schema

SCORED = "scored"
PATIENT = "patient_id"
COUNTS = ("num_tokens", "num_words", "num_bytes")


def as_records(partial: pa.Table, department: str) -> pl.DataFrame:
    """One row per row of a verified partial.

    Args:
        partial: Rows of ``partial_schema``.
        department: Opaque code of the block's department.
    """
    features = [name for name in partial.schema.names if name.startswith(FEATURE_PREFIX)]
    parts = part_columns(parts_of(partial.schema))
    frame = pl.DataFrame(partial.select(["status", PATIENT, *COUNTS, *parts, *features]))
    losses = partial.column("loss_nats").fill_null(0.0).to_numpy()
    return frame.select(
        pl.lit(department).cast(pl.Categorical).alias(DEPARTMENT),
        pl.col(features).cast(pl.Categorical),
        pl.col(PATIENT),
        (pl.col("status") == STATUS_SCORED).alias(SCORED),
        pl.col(COUNTS),
        pl.col(parts).fill_null(0),
    ).hstack(split(losses))


def no_records(features: Sequence[str], parts: Sequence[str] = ()) -> pl.DataFrame:
    """A frame of no records: what a build of no blocks leaves, and the schema for all others."""
    return as_records(partial_schema(features, parts).empty_table(), "")
