"""The settings of a report: what it shows, never what its numbers are."""

from __future__ import annotations

from pydantic import Field

from schemas.settings import Settings

DEFAULT_MIN_CELL = 11


class ReportSettings(Settings):
    """From ``[aggregate]``, ``PPL_AGGREGATE_*`` and flags.

    Attributes:
        by: Crossings, each a comma-separated list of columns; none means the default crossings.
        min_cell: Strata with fewer records or patients are hidden, with those that would give them away; 0 hides none.
            Less than the default is marked.
        department_names: Show departments by their names; by their opaque codes otherwise.
    """

    by: tuple[str, ...] = ()
    min_cell: int = Field(default=DEFAULT_MIN_CELL, ge=0)
    department_names: bool = False
