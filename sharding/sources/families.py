"""Which file of a known family is which table: by its columns, and by its name where columns are not enough.

Notes are told by their columns alone, so that a table in parts of any name is found. Side tables need their name too:
the diagnoses and the procedures of MIMIC-III have the very same columns. Upper and lower case do not matter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sharding.sources.source import Header

# What may follow a table's name when it is stored in parts: "_3", "-00001-of-00004", ".part2".
_PART = r"([._-]+(part|chunk|split)?[._-]*[0-9][0-9a-z._-]*)?"


@dataclass(frozen=True, slots=True)
class FileKind:
    """One table of a family.

    Attributes:
        use: What it is for; ``NOTES`` or the table's own name.
        stem: The name that its files must have, perhaps with the number of a part; None if any name will do.
        required: Columns without which a file is not this table, in lower case.
        optional: Columns that are used where they are.
    """

    use: str
    stem: str | None
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()


def use_of(kinds: Sequence[FileKind], stem: str, header: Header) -> str | None:
    """The use of the first kind that fits a file; see ``Adapter.use_of``."""
    there = {column.lower() for column in header.columns}
    for kind in kinds:
        named = kind.stem is None or re.fullmatch(re.escape(kind.stem) + _PART, stem) is not None
        if named and there.issuperset(kind.required):
            return kind.use
    return None


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
    is_upper = all(there.get(name, "").isupper() for name in kind.required)
    return {name: there.get(name, name.upper() if is_upper else name) for name in wanted}
