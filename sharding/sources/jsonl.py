r"""JSON Lines: one object a line, and only ``\n`` ends a line.

A string is taken as it is, a number as it is written in the file, true and false as words, null and an absent key as
null. An object or list in a mapped column is malformed, as is a repeated key or a line that is no JSON object.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sharding.sources.cutting import cut_file, read_span
from sharding.sources.source import (
    INVALID_UNICODE,
    MALFORMED,
    UNDECODABLE,
    UTF8_BOM,
    Header,
    Rows,
    Span,
    string_table,
)

HEAD_LINES = 1_000


@dataclass(frozen=True, slots=True)
class JsonLinesSource:
    """One JSON object a line."""

    def header(self, path: Path, head: bytes) -> Header:  # noqa: ARG002 - the protocol's form
        """See ``Source``; keys of the first lines, since any later line may have more."""
        keys: dict[str, None] = {}
        for line in head.removeprefix(UTF8_BOM).split(b"\n")[:-1][:HEAD_LINES]:
            try:
                keys.update(dict.fromkeys(_object(line.decode("utf-8"))))
            except (ValueError, RecursionError):
                continue
        return Header(tuple(keys), closed=False)

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


def _record(line: bytes, columns: Mapping[str, str], seen: set[str]) -> list[bytes | None] | str:
    """The cells of one line, or the reason why there are none."""
    try:
        record = _object(line.decode("utf-8"))
    except UnicodeDecodeError:
        return UNDECODABLE
    except (ValueError, RecursionError):
        return MALFORMED
    seen.update(record)
    try:
        return [_cell(record.get(column)) for column in columns.values()]
    except UnicodeEncodeError:
        return INVALID_UNICODE
    except TypeError:
        return MALFORMED


def _object(text: str) -> dict[str, Any]:
    value = json.loads(
        text, parse_int=str, parse_float=str, parse_constant=_no_constant, object_pairs_hook=_unique_keys
    )
    if not isinstance(value, dict):
        raise ValueError("no object")  # noqa: TRY004 - one kind of error for whatever is no record
    return value


def _cell(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if not isinstance(value, str):
        raise TypeError("nested")
    return value.encode("utf-8")


def _no_constant(_name: str) -> Any:
    raise ValueError("no JSON number")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        raise ValueError("repeated key")
    return record
