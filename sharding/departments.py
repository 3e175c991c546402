"""One code for the many spellings of a department, by the hospital's own table.

A spelling is looked up as it is, then without regard to case, width and the space around it.
Null is no spelling and stays null. The empty string is one only if the table says so. A code of the table stands for
itself.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from sharding.sources.adapter import UNKNOWN

OnUnknown = Literal["keep", "unknown", "fail"]
# Counts spellings in no entry of the table; ``department`` counts records of which a side file tells no department.
UNLISTED_DEPARTMENT = "unlisted_department"


@dataclass(frozen=True, slots=True)
class Named:
    """A column of departments by the table.

    Attributes:
        column: ``large_string``, null where the source had null.
        num_unlisted: Records whose department is in no entry, unless such are kept. ``UNKNOWN`` is no spelling.
    """

    column: pa.Array
    num_unlisted: int


def fold(text: str) -> str:
    """What two spellings have in common: Unicode NFKC, no case, no space around."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).strip()


def num_clashes(table: Mapping[str, str]) -> int:
    """Spellings that fold to one text but have more than one code."""
    codes: dict[str, set[str]] = {}
    for spelling, code in table.items():
        codes.setdefault(fold(spelling), set()).add(code)
    return sum(len(codes[fold(spelling)]) > 1 for spelling in table)


def name_departments(column: pa.Array | pa.ChunkedArray, table: Mapping[str, str], on_unknown: OnUnknown) -> Named:
    """Departments by the hospital's table.

    Args:
        column: Departments as the source has them, of any string type.
        table: Spelling to code; without clashes.
        on_unknown: A department in no entry is kept, becomes UNKNOWN and is counted, or is counted only, for the
            plan to fail.
    """
    folded = {fold(spelling): code for spelling, code in table.items()}
    encoded = (column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column).dictionary_encode()
    codes, is_unknown = [], []
    for name in encoded.dictionary.to_pylist():
        code = table.get(name, folded.get(fold(name)))
        is_known = code is not None or name in ("", UNKNOWN) or name in table.values()
        codes.append(code if code is not None else UNKNOWN if on_unknown == "unknown" and not is_known else name)
        is_unknown.append(on_unknown != "keep" and not is_known)
    rows = encoded.indices.drop_null().to_numpy()
    return Named(
        column=pa.array(codes, pa.large_string()).take(encoded.indices),
        num_unlisted=int(np.array(is_unknown, dtype=np.bool_)[rows].sum()),
    )
