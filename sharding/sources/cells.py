"""Tables of strings as polars columns, and what cells mean: blank is null, times become numbers.

Ids stay text. Those that are integers by a public schema are written in one way, since a table that went through
another program may have them as floats or with zeros before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl
import pyarrow as pa

from sharding.dates import date_of, utc_microseconds, years_between
from sharding.features import age_band, map_distinct

DAY_MICROSECONDS = 86_400_000_000

_INTEGER = r"^(-?)0*([0-9]+)(?:[.]0*)?$"


def cells(table: pa.Table | None, names: Sequence[str], *, integers: Sequence[str] = ()) -> pl.DataFrame:
    """Some columns of a table as strings without space around them.

    Args:
        table: Of strings; None stands for a table without rows.
        names: Columns of the result, in this order. One that the table does not have is null in every row.
        integers: Those that hold integers: ``102.0`` and ``0102`` become ``102``; what is no integer stays as it is.

    Returns:
        String columns, in which a blank cell is null.
    """
    num_rows = 0 if table is None else table.num_rows
    there = set() if table is None else set(table.column_names)
    columns = {
        name: table.column(name) if table is not None and name in there else pa.nulls(num_rows, pa.large_string())
        for name in names
    }
    stripped = {name: pl.col(name).str.strip_chars() for name in names}
    plain = {
        name: text.str.replace(_INTEGER, "${1}${2}") if name in integers else text for name, text in stripped.items()
    }
    frame = pl.DataFrame(pa.table(columns))
    return frame.select(pl.when(text != "").then(text).alias(name) for name, text in plain.items())


def mapped(column: pl.Series, function: Callable[[str], str | None]) -> pl.Series:
    """As ``map_distinct``, from and to polars."""
    return pl.Series(column.name, map_distinct(to_arrow(column), function), dtype=pl.String)


def moments(column: pl.Series) -> pl.Series:
    """Microseconds since 1970-01-01 UTC, int64; null for what is no date."""
    return _numbers(column, utc_microseconds)


def ends_of_days(column: pl.Series) -> pl.Series:
    """The last microsecond of each day, as in ``moments``."""
    return _numbers(column, _end_of_day)


def timestamps(moments: pl.Series) -> pl.Series:
    """``time``: microseconds since 1970 UTC as ISO 8601 text without an offset."""
    times = pl.from_epoch(moments, "us").dt.strftime("%Y-%m-%dT%H:%M:%S%.6f")
    return times.alias("time")


def dated(column: pl.Series) -> pl.Series:
    """The column without what is no date."""
    return mapped(column, lambda text: text if date_of(text) else None)


def age_bands(births: pl.Series, days: pl.Series) -> pl.Series:
    """``age_band``: the band of the whole years from each birth to each day; null where one of them is no date."""
    bands = [age_band(years_between(birth, day)) for birth, day in zip(births, days, strict=True)]
    return pl.Series("age_band", bands, dtype=pl.String)


def to_arrow(column: pl.Series) -> pa.Array:
    """The column as Arrow; strings are ``large_string``."""
    return column.to_arrow(compat_level=pl.CompatLevel.oldest())


def _numbers(column: pl.Series, function: Callable[[str], int | None]) -> pl.Series:
    values = [None if text is None else function(text) for text in column]
    return pl.Series(column.name, values, dtype=pl.Int64)


def _end_of_day(text: str) -> int | None:
    day = date_of(text)
    start = utc_microseconds(day.isoformat()) if day else None
    return None if start is None else start + DAY_MICROSECONDS - 1
