"""The seam for file formats: what a source must be able to do, and the values that pass through it.

A source never interprets a cell: every value becomes the string that a CSV file of the same data would hold, or null.
Records that cannot be read at all are counted by reason; what they hold is never said.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

MALFORMED = "malformed"
UNDECODABLE = "undecodable"
INVALID_UNICODE = "invalid_unicode"

# The role of a record's digest over all its columns, asked for as this column; it makes the id where no column does.
WHOLE_ROW = "row"
ALL_COLUMNS = "\0*"

UTF8_BOM = b"\xef\xbb\xbf"
HEAD_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Span:
    """A record-aligned part of a file: bytes for text formats, row groups for Parquet; ``stop`` is exclusive."""

    start: int
    stop: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Header:
    """Columns that a look at the file has shown.

    Attributes:
        columns: Their names.
        closed: Whether there can be no others.
        paths: Further columns that lie in nested objects, with points between the keys: ``meta.author.dept``.
        is_cut: Whether the look ended inside the first line, so that nothing of the file is known.
    """

    columns: tuple[str, ...]
    closed: bool
    paths: tuple[str, ...] = ()
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class Rows:
    """Some records of a span, in file order.

    Attributes:
        table: One ``large_string`` column per mapped role, valid UTF-8.
        rejected: Records of the span that are not in the table, by reason.
        roles_seen: Roles whose column occurred.
        unresolved: Records in the table for which something could not be found out, by what.
        num_more: Rows of the table that are no record of their own, but tell more of the one before.
    """

    table: pa.Table
    rejected: Counter[str] = field(default_factory=Counter)
    roles_seen: frozenset[str] = frozenset()
    unresolved: Counter[str] = field(default_factory=Counter)
    num_more: int = 0

    @property
    def num_read(self) -> int:
        """Records of the span, those that are not in the table too."""
        num_rows: int = self.table.num_rows
        return num_rows - self.num_more + self.rejected.total()


class Source(Protocol):
    """One file format. ``columns`` maps roles to source columns."""

    def header(self, path: Path, head: bytes) -> Header:
        """The columns of a file.

        Args:
            path: The file.
            head: Its first bytes as UTF-8 (at most ``HEAD_BYTES``), for text formats.

        Raises:
            DataError: the file has no readable header.
        """
        ...

    def spans(self, path: Path, block_bytes: int) -> list[Span]:
        """Cut a file at record borders into parts of about ``block_bytes``.

        Raises:
            DataError: a border cannot be found, for instance after a quote that is never closed.
        """
        ...

    def read(self, path: Path, span: Span, *, columns: Mapping[str, str]) -> Iterator[Rows]:
        """The records of one span, in parts that fit into memory.

        Raises:
            DataError: the file cannot be read as this format.
        """
        ...


def row_digest(cells: Iterable[tuple[str, bytes | None]]) -> bytes:
    """Hex of the BLAKE2b-128 of a record's (column, cell) pairs, in the order of the names.

    A null is as an absent column, so that a record has one digest in every format and any order of columns.
    """
    digest = hashlib.blake2b(digest_size=16)
    for name, cell in sorted((name, cell) for name, cell in cells if cell is not None):
        for part in (name.encode("utf-8", "surrogatepass"), cell):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
    return digest.hexdigest().encode()


def nested_text(value: Any) -> bytes:
    """A list or object as JSON text in which equal values are equal: keys sorted, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=str).encode()


def string_table(cells: Mapping[str, Sequence[bytes | None]]) -> tuple[pa.Table, int]:
    """A table of strings from bytes; rows with a cell that is not UTF-8 are left out and counted."""
    arrays = {role: pa.array(values, pa.large_binary()) for role, values in cells.items()}
    return decoded_table(pa.table(arrays))


def decoded_table(binary: pa.Table) -> tuple[pa.Table, int]:
    """As ``string_table``, from a table of ``large_binary`` columns."""
    schema = pa.schema([pa.field(name, pa.large_string()) for name in binary.column_names])
    try:
        return binary.cast(schema), 0
    except pa.ArrowInvalid:
        sound = [
            all(map(_is_utf8, row)) for row in zip(*(column.to_pylist() for column in binary.columns), strict=True)
        ]
    kept = binary.filter(pa.array(sound, pa.bool_()))
    return kept.cast(schema), len(sound) - kept.num_rows


def _is_utf8(cell: bytes | None) -> bool:
    try:
        (cell or b"").decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
