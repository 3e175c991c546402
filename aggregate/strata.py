"""Cells of a crossing, each computed from the records themselves, exactly, whatever the order or the threads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from aggregate import limbs
from aggregate.records import COUNTS, PATIENT, SCORED
from schemas.errors import IntegrityError
from schemas.tally import Tally, pool

Key = tuple[str | None, ...]
WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class Cell:
    """What is known of one stratum.

    Attributes:
        key: Value of each column of the crossing; null is a value of its own.
        tally: Exact tally of the scored records.
        num_skipped: Records that were not scored.
        num_patients: Distinct known patients among the scored records.
        num_without_patient: Scored records whose patient is unknown.
    """

    key: Key
    tally: Tally
    num_skipped: int
    num_patients: int
    num_without_patient: int


def cells(records: pl.DataFrame, columns: Sequence[str]) -> list[Cell]:
    """Group the records by columns; no column gives the whole as one cell.

    Args:
        records: See ``aggregate.records``.
        columns: Columns of ``records``.

    Returns:
        One cell per combination that occurs, ordered by key with null last.
    """
    if not columns:
        records, columns = records.with_columns(pl.lit("").alias(WHOLE)), [WHOLE]
    losses = _limb_sums(records, columns)
    counted = records.group_by(columns).agg(
        pl.col(SCORED).sum().cast(pl.Int64).alias("num_records"),
        (~pl.col(SCORED)).sum().cast(pl.Int64).alias("num_skipped"),
        pl.col(PATIENT).filter(pl.col(SCORED)).drop_nulls().n_unique().alias("num_patients"),
        pl.col(PATIENT).filter(pl.col(SCORED)).null_count().alias("num_without_patient"),
        pl.col(COUNTS).sum(),
    )
    found = [_cell(row, tuple(row[name] for name in columns), losses) for row in counted.iter_rows(named=True)]
    return sorted(found, key=lambda cell: [(value is None, value or "") for value in cell.key])


def require_conserved(found: Sequence[Cell], total: Tally, *, where: str) -> None:
    """The cells of a crossing add up to the whole, bit for bit.

    Raises:
        IntegrityError: they do not.
    """
    if pool(cell.tally for cell in found) != total:
        raise IntegrityError(f"crossing {where}: strata do not add up to the whole; report this as a bug")


def _limb_sums(records: pl.DataFrame, columns: Sequence[str]) -> dict[Key, list[tuple[int, int, int, int]]]:
    if len(records) >= limbs.MAX_ROWS:
        raise IntegrityError(f"run: {len(records)} records, fewer than {limbs.MAX_ROWS} can be summed; split the run")
    sums = records.filter(SCORED).group_by([*columns, limbs.LIMB]).agg(pl.col(limbs.PARTS).sum())
    found: dict[Key, list[tuple[int, int, int, int]]] = defaultdict(list)
    for row in sums.iter_rows():
        found[row[: len(columns)]].append(row[len(columns) :])
    return found


def _cell(row: dict[str, Any], key: Key, losses: dict[Key, list[tuple[int, int, int, int]]]) -> Cell:
    counts = {name: row[name] for name in ("num_records", *COUNTS)}
    return Cell(
        key=key,
        tally=Tally(loss_nats=limbs.join(losses.get(key, ())), **counts),
        num_skipped=row["num_skipped"],
        num_patients=row["num_patients"],
        num_without_patient=row["num_without_patient"],
    )
