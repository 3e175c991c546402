r"""JSON Lines: one object a line, and only ``\n`` ends a line.

A string is taken as it is, a number as it is written in the file, true and false as words, null and an absent key as
null. An object or list in a mapped column is malformed, as is a repeated key or a line that is no JSON object.

A column ``meta.author.dept`` is the key of that name if the object has one; otherwise what comes before the first point
is the key of an object within, and the rest is looked up there in the same way. A null or absent object on the way
gives null; a list, string, number or truth value on the way is malformed, since the path means something else there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sharding.sources.cutting import cut_file, read_span
from sharding.sources.source import (
    ALL_COLUMNS,
    HEAD_BYTES,
    INVALID_UNICODE,
    MALFORMED,
    UNDECODABLE,
    UTF8_BOM,
    Header,
    Rows,
    Span,
    nested_text,
    row_digest,
    string_table,
)
from sharding.sources.strict_json import strict_object

HEAD_LINES = 1_000
MAX_DEPTH = 8


@dataclass(frozen=True, slots=True)
class JsonLinesSource:
    """One JSON object a line."""

    def header(self, path: Path, head: bytes) -> Header:  # noqa: ARG002 - the protocol's form
        """See ``Source``; keys of the first lines, since any later line may have more.

        A last line that is cut is no object, so it need not be told from one at the end of the file.
        """
        keys: dict[str, None] = {}
        paths: dict[str, None] = {}
        lines = head.removeprefix(UTF8_BOM).split(b"\n")
        num_objects = 0
        for line in lines[:HEAD_LINES]:
            try:
                record = strict_object(line, number=str)
            except (ValueError, RecursionError):
                continue
            num_objects += 1
            keys.update(dict.fromkeys(record))
            paths.update(dict.fromkeys(_paths(record)))
        single = tuple(path for path in paths if path not in keys)
        return Header(tuple(keys), closed=False, paths=single, is_cut=not num_objects and ends_in_first_line(head))

    def spans(self, path: Path, block_bytes: int) -> list[Span]:
        """See ``Source``."""
        return cut_file(path, 0, block_bytes=block_bytes, record_end=lambda buffer: buffer.rfind(b"\n") + 1)[0]

    def read(self, path: Path, span: Span, *, columns: Mapping[str, str]) -> Iterator[Rows]:
        """See ``Source``."""
        buffer = read_span(path, span)
        lines = (buffer if span.start else buffer.removeprefix(UTF8_BOM)).split(b"\n")
        cells: dict[str, list[bytes | None]] = {role: [] for role in columns}
        rejected: Counter[str] = Counter()
        seen: set[str] = set()
        for line in lines:
            if not line.strip():
                continue
            values = _record(line, columns, seen)
            if isinstance(values, str):
                rejected[values] += 1
                continue
            for role, value in zip(columns, values, strict=True):
                cells[role].append(value)
        yield Rows(string_table(cells)[0], rejected, frozenset(role for role in columns if columns[role] in seen))


def ends_in_first_line(head: bytes) -> bool:
    """Whether the first bytes of a file are not all of it, and its first line goes on behind them.

    In no encoding do ``HEAD_BYTES`` of a file become less than a quarter as many of UTF-8.
    """
    return len(head) >= HEAD_BYTES // 4 and b"\n" not in head.lstrip()


def _record(line: bytes, columns: Mapping[str, str], seen: set[str]) -> list[bytes | None] | str:
    """The cells of one line, or the reason why there are none."""
    try:
        record = strict_object(line, number=str)
    except UnicodeDecodeError:
        return UNDECODABLE
    except (ValueError, RecursionError):
        return MALFORMED
    try:
        found = [
            (column, True, _digest(record)) if column == ALL_COLUMNS else (column, *_reached(record, column))
            for column in columns.values()
        ]
        seen.update(column for column, is_there, _ in found if is_there)
        return [_cell(value) for _, _, value in found]
    except UnicodeEncodeError:
        return INVALID_UNICODE
    except TypeError:
        return MALFORMED


def _reached(record: dict[str, Any], column: str) -> tuple[bool, Any]:
    """Whether a column is in an object or, by its path, in one within; and its value.

    Raises:
        TypeError: the path leads through something that is no object.
    """
    inner: Any = record
    while inner is not None:
        if not isinstance(inner, dict):
            raise TypeError("no object")
        if column in inner:
            return True, inner[column]
        first, point, column = column.partition(".")
        inner = inner.get(first) if point else None
    return False, None


def _paths(record: dict[str, Any], depth: int = 1) -> Iterator[str]:
    """Paths of the plain values in the objects within a record."""
    for key, value in record.items():
        if isinstance(value, dict):
            if depth < MAX_DEPTH:
                yield from (f"{key}.{path}" for path in _paths(value, depth + 1))
        elif depth > 1 and not isinstance(value, list):
            yield key


def _digest(record: dict[str, Any]) -> str:
    """Of a whole record; objects, lists and what UTF-8 cannot hold count as their JSON text."""

    def cell(value: Any) -> bytes | None:
        try:
            return _cell(value)
        except (TypeError, UnicodeEncodeError):
            return nested_text(value)

    return row_digest((key, cell(value)) for key, value in record.items()).decode()


def _cell(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if not isinstance(value, str):
        raise TypeError("nested")
    return value.encode("utf-8")
