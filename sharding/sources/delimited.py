"""CSV and TSV (RFC 4180): quoted fields may hold separators, newlines of any kind and doubled quotes.

An unquoted empty field is null and a quoted one is the empty string. Blank lines are no records. A record with another
number of fields than the header, or with text after a closing quote, is malformed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.errors import DataError
from schemas.seals import label
from sharding.sources.cutting import cut_file, read_span
from sharding.sources.opening import opened_text
from sharding.sources.quoting import Fields, find_fields, first_record, is_closed, last_record_end
from sharding.sources.ranges import ranges
from sharding.sources.source import (
    ALL_COLUMNS,
    HEAD_BYTES,
    MALFORMED,
    UNDECODABLE,
    UTF8_BOM,
    Header,
    Rows,
    Span,
    decoded_table,
    row_digest,
)

QUOTES_AROUND = 2
# Below this mean, bytes are gathered one by one instead of cell by cell.
SHORT_BYTES = 64


@dataclass(frozen=True, slots=True)
class DelimitedSource:
    """Quoted text with one separator byte; the first record names the columns."""

    delimiter: str

    def header(self, path: Path, head: bytes) -> Header:
        """See ``Source``."""
        return Header(tuple(self._first_record(path, head)[0]), closed=True)

    def spans(self, path: Path, block_bytes: int) -> list[Span]:
        """See ``Source``."""
        start = self._after_header(path)[1]
        find_end = partial(last_record_end, delimiter=ord(self.delimiter))
        spans, rest = cut_file(path, start, block_bytes=block_bytes, record_end=find_end)
        if rest and not is_closed(rest, ord(self.delimiter)):
            raise DataError(
                f"{label(path)}: a quoted field in the record at byte {spans[-1].start} is never closed, so whatever "
                "follows it would be lost; mend the quotes"
            )
        return spans

    def read(self, path: Path, span: Span, *, columns: Mapping[str, str]) -> Iterator[Rows]:
        """See ``Source``."""
        names, _ = self._after_header(path)
        buffer = read_span(path, span)
        fields = find_fields(buffer, ord(self.delimiter))
        firsts, num_malformed = _sound_records(fields, len(names))
        cells = {
            role: _digests(buffer, fields, firsts, names=names)
            if column == ALL_COLUMNS
            else _cells(buffer, fields, firsts + names.index(column))
            for role, column in columns.items()
        }
        table, num_undecodable = decoded_table(pa.table(cells))
        rejected = Counter({MALFORMED: num_malformed, UNDECODABLE: num_undecodable})
        yield Rows(table, +rejected, frozenset(columns))

    def _after_header(self, path: Path) -> tuple[list[str], int]:
        with opened_text(path) as file:
            return self._first_record(path, file.read(HEAD_BYTES))

    def _first_record(self, path: Path, head: bytes) -> tuple[list[str], int]:
        skipped = len(UTF8_BOM) if head.startswith(UTF8_BOM) else 0
        try:
            cells, stop = first_record(head, ord(self.delimiter), start=skipped)
            return [cell.decode("utf-8") for cell in cells], stop
        except ValueError:
            raise DataError(
                f"{label(path)}: no header of column names in the first {HEAD_BYTES} bytes in this encoding; "
                "add a header line, or set --encoding"
            ) from None


def _sound_records(fields: Fields, num_columns: int) -> tuple[NDArray[np.int64], int]:
    """Index of the first field of each sound record, and the number of malformed ones."""
    lasts = np.flatnonzero(fields.ends_record)
    firsts = np.concatenate([np.zeros(1, dtype=np.int64), lasts[:-1] + 1])[: len(lasts)]
    counts = lasts - firsts + 1
    blank = (counts == 1) & (fields.starts[firsts] == fields.stops[firsts])
    sound = np.logical_and.reduceat(fields.sound, firsts) if len(firsts) else np.zeros(0, dtype=np.bool_)
    good = sound & (counts == num_columns) & ~blank
    return firsts[good], int((~good & ~blank).sum())


def _cells(buffer: bytes, fields: Fields, indexes: NDArray[np.int64]) -> pa.Array:
    """Values of some sound fields, ``large_binary``; an unquoted empty field is null."""
    num_quotes = fields.num_quotes[indexes]
    is_quoted = num_quotes > 0
    starts, stops = fields.starts[indexes] + is_quoted, fields.stops[indexes] - is_quoted
    is_doubled, sizes = num_quotes > QUOTES_AROUND, stops - starts
    if sizes.sum() <= SHORT_BYTES * len(sizes) and not is_doubled.any():
        values = np.frombuffer(buffer, dtype=np.uint8)[ranges(starts, stops)].tobytes()
    else:
        cells = [buffer[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
        for index in np.flatnonzero(is_doubled).tolist():
            cells[index] = cells[index].replace(b'""', b'"')
            sizes[index] = len(cells[index])
        values = b"".join(cells)
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes)])
    valid = np.packbits(is_quoted | (stops > starts), bitorder="little")
    buffers = [pa.py_buffer(valid), pa.py_buffer(offsets), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.large_binary(), len(sizes), buffers)


def _digests(buffer: bytes, fields: Fields, firsts: NDArray[np.int64], *, names: Sequence[str]) -> pa.Array:
    columns = [_cells(buffer, fields, firsts + index).to_pylist() for index in range(len(names))]
    rows = zip(*columns, strict=True)
    return pa.array([row_digest(zip(names, cells, strict=True)) for cells in rows], pa.large_binary())
