"""The settings of a report: what it shows, never what its numbers are."""

from __future__ import annotations

from schemas.settings import Settings


class ReportSettings(Settings):
    """From ``[aggregate]``, ``PPL_AGGREGATE_*`` and flags.

    Attributes:
        by: Crossings, each a comma-separated list of columns; none means the default crossings.
        department_names: Show departments by their names; by their opaque codes otherwise.
    """

    by: tuple[str, ...] = ()
    department_names: bool = False
