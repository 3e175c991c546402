"""Joins of notes with side tables: one row per key, or the latest row of a key that is not after a time.

A lookup is a ``keyed`` table, so a block finds the rows of its few thousand keys by bisection and polars joins those
alone. What a lookup holds does not depend on the order of the rows that it was made of. Where rows contradict each
other one is picked, and marked as such.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import polars as pl
import pyarrow as pa

from sharding.sources.keyed import HASH, KEY, hashes_of, keyed, rows_at, rows_with
from sharding.sources.ranges import ranges

TIME = "time"
# Whether the row was picked from several that differ; null where there is none.
CONFLICT = "is_conflicting"


def lookup(frame: pl.DataFrame, unique: Sequence[str] = (KEY,)) -> pa.Table:
    """A table to look things up in.

    Args:
        frame: With the string column ``key`` and, for ``latest``, the int64 column ``time``.
        unique: Columns of which no two rows may have the same values; rows in which one is null are left out. Of
            several rows the one is kept that sorts first by all columns in their order, null last.

    Returns:
        The rows as ``keyed`` gives them, by ``unique`` where hashes are equal, with the boolean column ``CONFLICT``.
    """
    sound = frame.drop_nulls(unique).unique().sort(frame.columns, nulls_last=True)
    marked = sound.with_columns((pl.len().over(list(unique)) > 1).alias(CONFLICT))
    single = marked.unique(unique, keep="first", maintain_order=True)
    return keyed(single.sort(unique).to_arrow(compat_level=pl.CompatLevel.oldest()))


def answers(keys: pl.Series, table: pa.Table) -> pl.DataFrame:
    """What a lookup with one row per key says of each key, in the keys' order; null where it says nothing."""
    asked = pl.DataFrame({KEY: keys})
    return asked.join(_rows_of(table, keys), on=KEY, how="left", maintain_order="left").drop(KEY)


def latest(keys: pl.Series, times: pl.Series, table: pa.Table) -> pl.DataFrame:
    """For each key and time, the lookup's row of that key with the latest time not after it; null where none is.

    Args:
        keys: Strings; null has no row.
        times: int64, as long; null has no row.
        table: A lookup with one row per key and time.

    Returns:
        The lookup's other columns, in the keys' order.
    """
    asked = pl.DataFrame({KEY: keys, TIME: times}).with_row_index("row")
    # With ``by``, polars cannot check the order that it needs: both sides are sorted by time here.
    found = (
        asked.drop_nulls()
        .sort(TIME)
        .join_asof(_rows_of(table, keys).sort(TIME), on=TIME, by=KEY, check_sortedness=False)
    )
    return asked.select("row").join(found.drop(KEY, TIME), on="row", how="left", maintain_order="left").drop("row")


def telling(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows that say anything of their key, so that an empty row contradicts none."""
    return frame.filter(pl.any_horizontal(pl.exclude(KEY).is_not_null()))


def completed(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows in which a value that some rows of a key tell, and none tells otherwise, stands in every row of that key.

    For what is true of a key at all times, such as of a person: rows that complete each other become equal, and those
    that contradict each other differ in what they contradict each other in alone, and tell something of it each.
    """
    names = [name for name in frame.columns if name != KEY]
    return frame.with_columns(pl.coalesce(name, pl.col(name).min().over(KEY)).alias(name) for name in names)


def completed_lookup(frame: pl.DataFrame) -> pa.Table:
    """See ``lookup`` and ``completed``; one row per key."""
    return lookup(completed(frame))


def first_told(found: Sequence[pl.DataFrame], name: str) -> tuple[pl.Series, list[pl.DataFrame]]:
    """The first value that several answers tell, row by row.

    Args:
        found: Answers to the same questions, each with the column ``name``.
        name: Column of the values.

    Returns:
        The values, and each answer with null in all columns where it was not asked, since one before told a value.
    """
    everywhere = pl.repeat(value=True, n=len(found[0]), eager=True)
    asked = accumulate((answer[name].is_null() for answer in found[:-1]), operator.and_, initial=everywhere)
    needed = [answer.select(pl.when(rows).then(pl.all())) for rows, answer in zip(asked, found, strict=True)]
    return pl.select(pl.coalesce(answer[name] for answer in found)).to_series(), needed


def any_set(found: Sequence[pl.DataFrame], flag: str) -> pl.Series:
    """Where a flag is set in one of several answers; null is not set."""
    return pl.select(pl.any_horizontal(answer[flag].fill_null(value=False) for answer in found)).to_series()


def _rows_of(table: pa.Table, keys: pl.Series) -> pl.DataFrame:
    """The lookup's rows whose key has the hash of one of these keys."""
    starts, stops = rows_with(table, np.unique(hashes_of(keys.drop_nulls().unique().to_list())))
    return pl.DataFrame(rows_at(table, ranges(starts, stops)).drop_columns([HASH]))
