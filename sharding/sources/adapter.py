"""The seam for families of files: which hold notes, which say more about them, and how a record is made of both.

A table of notes with all its columns needs no adapter. A hospital's export has notes in one file and departments,
patients and diagnoses in others: an adapter knows that family's names and columns, makes small lookup tables of the
side files once, and turns rows of notes into rows of roles. Whatever a side file would have said and does not is
counted, never guessed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from sharding.sources.source import Header, Source

if TYPE_CHECKING:
    from sharding.sources.lookup_plans import LookupPlan

NOTES = "notes"
# One file that holds notes and also says more about them: it is read for both, as a side table under this name.
MIXED = "mixed"
# Roles that a family tells beside id, text and case features.
DEPARTMENT, PATIENT, ENCOUNTER, TIME = "department", "patient", "encounter", "time"
UNKNOWN = "UNKNOWN"
# Counted beside what is missing: a record whose encounter names another patient or was entered in error, and one that
# relies on side rows which contradict each other, by what they are of.
ENCOUNTER_OF_OTHER_PATIENT = "encounter_of_other_patient"
ENCOUNTER_ENTERED_IN_ERROR = "encounter_entered_in_error"
ENCOUNTER_FAULTS = (ENCOUNTER_OF_OTHER_PATIENT, ENCOUNTER_ENTERED_IN_ERROR)
CONFLICTING = "conflicting_"


@dataclass(frozen=True, slots=True)
class Adapted:
    """Rows of roles, and what happened on the way.

    Attributes:
        table: One ``large_string`` column per role (id, text, department, patient, encounter, ``feature.NAME``, and
            ``time`` as ISO 8601 where the family tells it); a row of notes may give several records or none.
        rejected: Records that are not in the table, by reason.
        unresolved: Records in the table for which a side file had no answer or no good one, by what is missing
            (``department``, ``patient`` or a feature's name) or wrong (see above).
    """

    table: pa.Table
    rejected: Counter[str] = field(default_factory=Counter)
    unresolved: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Contents:
    """What becomes of a file, for estimates before it is read.

    Attributes:
        has_text: Its bytes are text of notes, but for what stands around it.
        row_bytes: Lookup tables on the disk for each of its rows, with what they are made from.
        row_memory_bytes: Memory for each of its rows of the worker that makes the lookup tables.
        memory_bytes: Memory of that worker however many rows there are.
    """

    has_text: bool = False
    row_bytes: int = 0
    row_memory_bytes: int = 0
    memory_bytes: int = 0


ONLY_TEXT = Contents(has_text=True)


class Adapter(Protocol):
    """One family of files."""

    @property
    def name(self) -> str:
        """As in ``--source``."""
        ...

    @property
    def features(self) -> tuple[str, ...]:
        """Case features that it makes, sorted."""
        ...

    def use_of(self, stem: str, header: Header) -> str | None:
        """What a file is for: ``notes``, ``mixed``, the name of a side table, or None if it is not of this family.

        Args:
            stem: The file's name in lower case without the suffixes of format and compression.
            header: As the family's own source of notes tells it; of one that is cut, nothing can be told.
        """
        ...

    def lacking(self, stem: str, header: Header) -> tuple[str, ...]:
        """Columns that a file does not have, though its name is that of a side table which needs them."""
        ...

    def source(self, use: str, file_source: Source) -> Source:
        """How to read a file for this use: by its format, or by the family's own way."""
        ...

    def columns(self, use: str, header: Header) -> Mapping[str, str]:
        """Name in the table that is read → column in the file, for the columns that this file has."""
        ...

    def contents(self, use: str) -> Contents:
        """What becomes of a file of this use."""
        ...

    @property
    def lookup_plan(self) -> LookupPlan | None:
        """How the lookup tables are made key by key; None for a family whose tables hang on each other's rows."""
        ...

    def lookups(self, sides: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        """Tables to look departments, patients and the like up in, from the side tables that are there, all at once."""
        ...

    def parts(self, rows: pa.Table, lookups: Mapping[str, pa.Table]) -> Iterator[pa.Table]:
        """Rows of notes in parts, at least one, of which each fits into memory with what its rows point to."""
        ...

    def records(self, rows: pa.Table, lookups: Mapping[str, pa.Table]) -> Adapted:
        """Rows of notes as rows of roles, in the same order; a pure function of its arguments, record by record.

        A lookup table may point into side files instead of holding what they hold; they are sealed, and do not change.
        """
        ...
