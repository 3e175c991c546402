"""From what an adapter has found out about notes to rows of roles, with everything that is missing counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import polars as pl
import pyarrow as pa

from schemas.tables import FEATURE_PREFIX
from sharding.sources.adapter import DEPARTMENT, ENCOUNTER, PATIENT, TIME, UNKNOWN, Adapted

# Notes are written outside of hospital stays too, and a note without a time has no year, which is counted.
UNCOUNTED = (ENCOUNTER, TIME)


def to_roles(rows: pa.Table, found: pl.DataFrame, *, ids: str, texts: str, rejected: Counter[str]) -> Adapted:
    """Rows of roles.

    Args:
        rows: Notes as they were read.
        found: As many rows of strings: ``department``, ``patient``, ``encounter``, ``time`` and the case features by
            their names; null where nothing is known.
        ids: Column of the record ids.
        texts: Column of the notes' text, which goes through byte for byte.
        rejected: Notes that are not among the rows, by reason.

    Returns:
        The department of a note without one is ``UNKNOWN``. Nulls are counted, but for encounters and times.
    """
    whole = found.with_columns(pl.col(DEPARTMENT).fill_null(UNKNOWN))
    unresolved = Counter({name: found[name].null_count() for name in found.columns if name not in UNCOUNTED})
    unresolved[DEPARTMENT] = int((whole[DEPARTMENT] == UNKNOWN).sum())
    single = {"id": rows.column(ids), "text": rows.column(texts)}
    answered = whole.rename({name: FEATURE_PREFIX + name for name in feature_names(found)})
    answers = answered.to_arrow(compat_level=pl.CompatLevel.oldest())
    table = pa.table({**single, **dict(zip(answers.column_names, answers.columns, strict=True))})
    return Adapted(table, rejected, +unresolved)


def counted(adapted: Adapted, flags: pl.DataFrame) -> Adapted:
    """With the records counted for which a flag is set, by the name of its column; null is not set."""
    counts = Counter({flag.name: int(flag.fill_null(False).sum()) for flag in flags})
    return replace(adapted, unresolved=adapted.unresolved + counts)


def feature_names(found: pl.DataFrame) -> list[str]:
    """The case features among the columns."""
    return [name for name in found.columns if name not in (DEPARTMENT, PATIENT, ENCOUNTER, TIME)]
