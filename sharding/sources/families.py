"""Which file of a known family is which table: by its columns, and by its name where columns are not enough.

Notes are told by their columns alone, so that a table in parts of any name is found. Side tables need their name too:
the diagnoses and the procedures of MIMIC-III have the very same columns. A file of such a name without its columns is
told apart from files of no use. Upper and lower case do not matter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from sharding.sources.adapter import NOTES, ONLY_TEXT, Adapted, Contents
from sharding.sources.lookup_plans import LookupPlan, Tables, made_whole
from sharding.sources.source import Header, Source

# What may follow a table's name when it is stored in parts: "_3", "-00001-of-00004", ".part2".
_PART = r"([._-]+(part|chunk|split)?[._-]*[0-9][0-9a-z._-]*)?"

# Measured with MIMIC-IV's services, of 41 bytes a row as CSV: 170 bytes a row on the disk, and 340 MB for 500,000 rows
# as for a million; the rest is room for longer cells.
SIDE_TABLE = Contents(row_bytes=256, memory_bytes=350 << 20)


@dataclass(frozen=True, slots=True)
class FileKind:
    """One table of a family.

    Attributes:
        use: What it is for; ``NOTES`` or the table's own name.
        stem: The name that its files must have, perhaps with the number of a part; None if any name will do.
        required: Columns without which a file is not this table, in lower case.
        optional: Columns that are used where they are.
        nullable: Those of ``required`` that the public schema lets be null, so that lines of JSON may not have them.
    """

    use: str
    stem: str | None
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    nullable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableFamily:
    """An ``Adapter`` of tables that are known by their columns.

    Attributes:
        name: As in ``--source``.
        features: Case features that it makes, sorted.
        kinds: Its tables; the first that fits a file is taken.
        lookup_plan: See ``Adapter.lookup_plan``.
        make_records: See ``Adapter.records``.
    """

    name: str
    features: tuple[str, ...]
    kinds: tuple[FileKind, ...]
    lookup_plan: LookupPlan
    make_records: Callable[[pa.Table, Tables], Adapted]

    def use_of(self, stem: str, header: Header) -> str | None:
        """See ``Adapter``."""
        return use_of(self.kinds, stem, header)

    def lacking(self, stem: str, header: Header) -> tuple[str, ...]:
        """See ``Adapter``."""
        return lacking(self.kinds, stem, header)

    def source(self, use: str, file_source: Source) -> Source:  # noqa: ARG002 - the protocol's form
        """See ``Adapter``."""
        return file_source

    def columns(self, use: str, header: Header) -> Mapping[str, str]:
        """See ``Adapter``."""
        return columns_of(self.kinds, use, header)

    def contents(self, use: str) -> Contents:
        """See ``Adapter``."""
        return ONLY_TEXT if use == NOTES else SIDE_TABLE

    def lookups(self, sides: Tables) -> dict[str, pa.Table]:
        """See ``Adapter``."""
        return made_whole(self.lookup_plan, sides)

    def parts(self, rows: pa.Table, lookups: Tables) -> Iterator[pa.Table]:  # noqa: ARG002 - the protocol's form
        """See ``Adapter``; rows point to nothing large."""
        yield rows

    def records(self, rows: pa.Table, lookups: Tables) -> Adapted:
        """See ``Adapter``."""
        return self.make_records(rows, lookups)


def use_of(kinds: Sequence[FileKind], stem: str, header: Header) -> str | None:
    """The use of the first kind that fits a file; see ``Adapter.use_of``."""
    fitting = (kind.use for kind in kinds if _is_named(kind, stem) and _may_be(kind, header))
    return next(fitting, None)


def lacking(kinds: Sequence[FileKind], stem: str, header: Header) -> tuple[str, ...]:
    """What the side table that a file is named after needs and the file lacks; see ``Adapter.lacking``."""
    named = (_missing(kind, header) for kind in kinds if kind.stem is not None and _is_named(kind, stem))
    return next(named, ())


def columns_of(kinds: Sequence[FileKind], use: str, header: Header) -> dict[str, str]:
    """Lower-case name → column in the file; see ``Adapter.columns``.

    Of two columns that differ in case only, the first one counts. Where a header is not closed, a column that has not
    been seen may still come: it is expected in the case of the others.
    """
    kind = next(kind for kind in kinds if kind.use == use)
    there: dict[str, str] = {}
    for column in header.columns:
        there.setdefault(column.lower(), column)
    wanted = (*kind.required, *kind.optional)
    if header.closed:
        return {name: there[name] for name in wanted if name in there}
    seen = [there[name] for name in kind.required if name in there]
    is_upper = all(column.isupper() for column in seen)
    return {name: there.get(name, name.upper() if is_upper else name) for name in wanted}


def _is_named(kind: FileKind, stem: str) -> bool:
    return kind.stem is None or re.fullmatch(re.escape(kind.stem) + _PART, stem) is not None


def _may_be(kind: FileKind, header: Header) -> bool:
    """A column that may be null and has not been seen may still come, unless the header is closed."""
    missing = set(_missing(kind, header))
    return not missing if header.closed else missing <= set(kind.nullable)


def _missing(kind: FileKind, header: Header) -> tuple[str, ...]:
    there = {column.lower() for column in header.columns}
    return tuple(name for name in kind.required if name not in there)
