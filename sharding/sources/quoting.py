"""Where the fields and records of quoted CSV begin and end, exactly as Python's csv module reads them.

In most files every quote opens a field at its start, closes it at its end, or is doubled inside it. Then a separator
or newline counts if and only if an even number of quotes precedes it, and numpy finds all of them at once. That
condition is checked at every quote. A buffer with a stray quote is walked field by field instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sharding.sources.ranges import ranges
from sharding.sources.source import HEAD_BYTES

QUOTE, LF, CR = 0x22, 0x0A, 0x0D

Positions = NDArray[np.int64]

# A file of which a smaller part than one in so many bytes is outside quotes is searched there only.
LEAST_QUOTED = 2
# What is outside quotes is looked at so much at a time, since 24 bytes of positions are held for each byte of it.
SLICE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Fields:
    """All fields of a record-aligned buffer, in order; arrays of shape [fields].

    Attributes:
        starts: Offset of the first byte, an opening quote included.
        stops: Offset after the last byte, a closing quote included.
        num_quotes: Quotes of a quoted field, the doubled ones within it too; 0 if it is not quoted.
        ends_record: The field is the last one of its record.
        sound: False where text follows a closing quote, or a quote is never closed.
    """

    starts: Positions
    stops: Positions
    num_quotes: Positions
    ends_record: NDArray[np.bool_]
    sound: NDArray[np.bool_]


def find_fields(buffer: bytes, delimiter: int) -> Fields:
    """Split a buffer that begins and ends at record borders."""
    data = np.frombuffer(buffer, dtype=np.uint8)
    quotes = np.flatnonzero(data == QUOTE)
    if len(quotes) % 2 or not _is_plain(data, quotes, delimiter):
        return _walk(buffer, delimiter, quotes)
    return _from_marks(data, _marks(data, quotes, delimiter), quotes)


def last_record_end(buffer: bytes, delimiter: int) -> int:
    """Offset after the last complete record of a buffer that begins at a record border; 0 if there is none.

    A carriage return at the very end does not count: its line feed may follow.
    """
    data = np.frombuffer(buffer, dtype=np.uint8)
    quotes = np.flatnonzero(data == QUOTE)
    if not _is_plain(data, quotes, delimiter):
        return _walked_record_end(buffer, delimiter)
    end = len(buffer)
    while True:
        place = max(buffer.rfind(b"\n", 0, end), buffer.rfind(b"\r", 0, end))
        if place < 0:
            return 0
        num_before = int(np.searchsorted(quotes, place))
        if num_before % 2:
            end = int(quotes[num_before - 1])
        elif place == len(buffer) - 1 and buffer[place] == CR:
            end = place
        else:
            return place + 1


def is_closed(buffer: bytes, delimiter: int) -> bool:
    """Whether a buffer that begins at a record border may end here: its last field is not inside quotes."""
    data = np.frombuffer(buffer, dtype=np.uint8)
    quotes = np.flatnonzero(data == QUOTE)
    if _is_plain(data, quotes, delimiter):
        return len(quotes) % 2 == 0
    return all(stop >= 0 for _, stop, _, _ in _walk_fields(buffer, delimiter))


def first_record(buffer: bytes, delimiter: int, *, start: int = 0) -> tuple[list[bytes], int]:
    """The cells of the first record from ``start`` that is not blank, and the offset after it.

    Raises:
        ValueError: the buffer ends before the record does, or the record is broken.
    """
    cells: list[bytes] = []
    for begin, stop, ends, sound in _walk_fields(buffer, delimiter, start=start):
        if not sound:
            raise ValueError("broken record")
        cells.append(unquoted(buffer[begin:stop]))
        if ends and stop >= len(buffer) - 1 and len(buffer) >= HEAD_BYTES:
            raise ValueError("record too long")
        if ends and cells != [b""]:
            return cells, min(stop + _border_size(buffer, stop), len(buffer))
        cells = [] if ends else cells
    raise ValueError("no record")


def unquoted(cell: bytes) -> bytes:
    """The value of a sound field."""
    return cell[1:-1].replace(b'""', b'"') if cell[:1] == b'"' else cell


def _is_plain(data: NDArray[np.uint8], quotes: Positions, delimiter: int) -> bool:
    """Each quote opens at a field's start, closes at a field's end, or is doubled."""
    opens, closes = quotes[0::2], quotes[1::2]
    border = np.zeros(256, dtype=np.bool_)
    border[[delimiter, LF, CR]] = True
    starts = (opens == 0) | border[data[np.maximum(opens - 1, 0)]]
    starts[1:] |= opens[1:] - 1 == closes[: len(opens) - 1]
    last = len(data) - 1
    ends = (closes == last) | border[data[np.minimum(closes + 1, last)]]
    num_pairs = len(opens) - 1
    ends[:num_pairs] |= closes[:num_pairs] + 1 == opens[1:][: len(closes)]
    return bool(starts.all() and ends.all())


def _marks(data: NDArray[np.uint8], quotes: Positions, delimiter: int) -> Positions:
    """Separators and newlines outside quotes; what is inside, which is most of a file of notes, is not looked at."""
    starts = np.concatenate([np.zeros(1, dtype=np.int64), quotes[1::2] + 1])
    stops = np.append(quotes[0::2], len(data))
    is_mostly_quoted = int((stops - starts).sum()) <= len(data) // LEAST_QUOTED
    marks = [np.empty(0, dtype=np.int64)]
    for begin in range(0, len(data), SLICE_BYTES):
        end = min(begin + SLICE_BYTES, len(data))
        if is_mostly_quoted:
            own = slice(np.searchsorted(stops, begin, "right"), np.searchsorted(starts, end))
            found = ranges(np.maximum(starts[own], begin), np.minimum(stops[own], end))
            is_outside = _is_border(data[found], delimiter)
        else:
            found = begin + np.flatnonzero(_is_border(data[begin:end], delimiter))
            is_outside = np.searchsorted(quotes, found) % 2 == 0
        marks.append(found[is_outside])
    return np.concatenate(marks)


def _is_border(data: NDArray[np.uint8], delimiter: int) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = (data == delimiter) | (data == LF) | (data == CR)
    return found


def _from_marks(data: NDArray[np.uint8], marks: Positions, quotes: Positions) -> Fields:
    """Fields from the separators and newlines outside quotes; a CRLF is one newline."""
    after_cr = np.zeros(len(marks), dtype=np.bool_)
    after_cr[1:] = (data[marks[1:]] == LF) & (data[marks[:-1]] == CR) & (marks[1:] == marks[:-1] + 1)
    stops = marks[~after_cr]
    followed = np.append(after_cr[1:], False)[~after_cr] if len(marks) else after_cr
    starts = np.concatenate([np.zeros(1, dtype=np.int64), stops + 1 + followed])
    ends_record = (data[stops] == LF) | (data[stops] == CR)
    if starts[-1] < len(data) or (len(stops) and not ends_record[-1]):
        stops, ends_record = np.append(stops, len(data)), np.append(ends_record, True)
    else:
        starts = starts[:-1]
    num_quotes = _num_quotes(data, quotes, starts, stops)
    return Fields(starts, stops, num_quotes, ends_record, np.ones(len(starts), dtype=np.bool_))


def _walk(buffer: bytes, delimiter: int, quotes: Positions) -> Fields:
    found = list(_walk_fields(buffer, delimiter))
    columns = zip(*found, strict=True) if found else ((), (), (), ())
    starts, stops, ends_record, sound = (np.array(column, dtype=np.int64) for column in columns)
    stops = np.where(stops < 0, len(buffer), stops)
    num_quotes = _num_quotes(np.frombuffer(buffer, dtype=np.uint8), quotes, starts, stops)
    return Fields(starts, stops, num_quotes, ends_record.astype(np.bool_), sound.astype(np.bool_))


def _num_quotes(data: NDArray[np.uint8], quotes: Positions, starts: Positions, stops: Positions) -> Positions:
    counts: Positions = np.searchsorted(quotes, stops) - np.searchsorted(quotes, starts)
    counts[(stops == starts) | (data[np.minimum(starts, len(data) - 1)] != QUOTE)] = 0
    return counts


def _walk_fields(buffer: bytes, delimiter: int, *, start: int = 0) -> Iterator[tuple[int, int, bool, bool]]:
    """(start, stop, ends its record, sound) of every field; stop is -1 if a quote is never closed."""
    border = re.compile(b"[" + re.escape(bytes([delimiter])) + b"\r\n]")
    size, more_follows = len(buffer), False
    while start < size or more_follows:
        after = _after_quotes(buffer, start)
        if after < 0:
            yield start, -1, True, False
            return
        match = border.search(buffer, after)
        stop = match.start() if match else size
        more_follows = match is not None and buffer[stop] == delimiter
        yield start, stop, not more_follows, after in (start, stop)
        start = stop + _border_size(buffer, stop)


def _after_quotes(buffer: bytes, start: int) -> int:
    """Offset after the closing quote of a quoted field; ``start`` if it is not quoted, -1 if it never closes."""
    if buffer[start : start + 1] != b'"':
        return start
    place = buffer.find(b'"', start + 1)
    while place >= 0 and buffer[place + 1 : place + 2] == b'"':
        place = buffer.find(b'"', place + 2)
    return place + 1 if place >= 0 else -1


def _border_size(buffer: bytes, stop: int) -> int:
    return 2 if buffer[stop : stop + 2] == b"\r\n" else 1


def _walked_record_end(buffer: bytes, delimiter: int) -> int:
    end = 0
    for _, stop, ends, _ in _walk_fields(buffer, delimiter):
        whole = ends and 0 <= stop < len(buffer) and not (buffer[stop] == CR and stop == len(buffer) - 1)
        end = stop + _border_size(buffer, stop) if whole else end
    return end
