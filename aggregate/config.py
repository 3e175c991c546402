"""The settings of a report: what it shows, never what its numbers are."""

from __future__ import annotations

from schemas.settings import Settings


class ReportSettings(Settings):
    """From ``[aggregate]``, ``PPL_AGGREGATE_*`` and flags.

    Attributes:
        by: Crossings, each a comma-separated list of columns; none means the default crossings.
        codes_only: Show departments by their opaque codes, without names.
    """

    by: tuple[str, ...] = ()
    codes_only: bool = False
