"""How lookup tables are made of side tables that are larger than memory: row by row, then key by key.

What a lookup table says of a key hangs on the rows of this key alone. So rows of side files are told as rows of lookup
tables where they are read, and a table is finished a share of its keys at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

Tables = Mapping[str, pa.Table]


@dataclass(frozen=True, slots=True)
class LookupKind:
    """One lookup table.

    Attributes:
        name: Of the table.
        uses: The side tables that it is made of.
        rows_of: What rows of a side table tell, row by row, in any number of rows with the string column ``key``, which
            is not null; the columns are the same for all uses.
        table_of: The table of some keys, as ``keyed`` gives it, from all that was told of them, in any order and
            perhaps repeated, and from the tables of the plan that come before this one.
    """

    name: str
    uses: tuple[str, ...]
    rows_of: Callable[[pl.DataFrame], pl.DataFrame]
    table_of: Callable[[pl.DataFrame, Tables], pa.Table]


@dataclass(frozen=True, slots=True)
class LookupPlan:
    """All lookup tables of a family.

    Attributes:
        cells_of: Rows of the side table of a use as columns with their meaning; none for None.
        kinds: The tables, each after those that it is made with.
    """

    cells_of: Callable[[str, pa.Table | None], pl.DataFrame]
    kinds: tuple[LookupKind, ...]

    def no_rows(self, kind: LookupKind) -> pl.DataFrame:
        """What is told of a table by side tables without rows: its columns."""
        return kind.rows_of(self.cells_of(kind.uses[0], None))


def alone(table_of: Callable[[pl.DataFrame], pa.Table]) -> Callable[[pl.DataFrame, Tables], pa.Table]:
    """``table_of`` for a table that is made without others."""
    return lambda rows, _: table_of(rows)


def made_whole(plan: LookupPlan, sides: Tables) -> dict[str, pa.Table]:
    """All lookup tables of side tables that fit into memory."""
    told = {use: plan.cells_of(use, table) for use, table in sides.items()}
    made: dict[str, pa.Table] = {}
    for kind in plan.kinds:
        rows = [kind.rows_of(told[use]) for use in kind.uses if use in told]
        made[kind.name] = kind.table_of(pl.concat([plan.no_rows(kind), *rows]), made)
    return made
