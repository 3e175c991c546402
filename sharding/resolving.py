"""What raw cells mean: departments by the hospital's table, features by their functions, times by the calendar.

A pure function of the row. What cannot be read becomes null and is counted, also in records that are dropped later.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pyarrow as pa

from schemas.tables import FEATURE_PREFIX
from sharding.config import ShardingSettings
from sharding.dates import utc_microseconds
from sharding.departments import UNLISTED_DEPARTMENT, name_departments
from sharding.derived import AS_IT_IS, FUNCTIONS
from sharding.features import map_distinct
from sharding.sources.adapter import DEPARTMENT, TIME


@dataclass(frozen=True, slots=True)
class Resolved:
    """Rows of roles as they go on.

    Attributes:
        table: The same rows; departments and features resolved.
        times: Microseconds since 1970 UTC, int64; null where unknown, and everywhere unless groups stay together.
        unresolved: Records with a value that could not be read, by role, feature name, or
            ``unlisted_department``.
    """

    table: pa.Table
    times: pa.Array
    unresolved: Counter[str]


def resolve(rows: pa.Table, settings: ShardingSettings) -> Resolved:
    """Resolve a source's rows; roles that a row lacks stay absent."""
    unresolved: Counter[str] = Counter()
    table = rows
    if settings.departments and DEPARTMENT in rows.column_names:
        named = name_departments(rows.column(DEPARTMENT), settings.departments, settings.on_unknown)
        table = _with_column(table, DEPARTMENT, named.column)
        unresolved[UNLISTED_DEPARTMENT] = named.num_unlisted
    for name, feature in settings.columns.features.items():
        role = FEATURE_PREFIX + name
        if feature.function != AS_IT_IS and role in rows.column_names:
            found = map_distinct(rows.column(role), FUNCTIONS[feature.function])
            table = _with_column(table, role, found)
            unresolved[name] = found.null_count - rows.column(role).null_count
    times = pa.nulls(rows.num_rows, pa.int64())
    if settings.group != "none" and TIME in rows.column_names:
        given = rows.column(TIME)
        times = pa.array([None if text is None else utc_microseconds(text) for text in given.to_pylist()], pa.int64())
        unresolved[TIME] = times.null_count - given.null_count
    return Resolved(table=table, times=times, unresolved=+unresolved)


def _with_column(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, column)
