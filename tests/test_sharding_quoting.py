"""Quoted CSV is cut and read exactly as Python's csv module reads it."""

from __future__ import annotations

import csv
import io
import tracemalloc
from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sharding.sources import quoting as module
from sharding.sources.quoting import find_fields, is_closed, last_record_end, unquoted

COMMA = ord(",")
TRICKY = st.text(alphabet='a",\r\n \x00é\u2028\x85', max_size=12)
RECORDS = st.lists(st.lists(TRICKY, min_size=1, max_size=4), max_size=6)


def _by_csv(text: str) -> list[list[str]]:
    return [row for row in csv.reader(io.StringIO(text, newline="")) if row]


def _by_us(buffer: bytes) -> list[list[str]]:
    fields = find_fields(buffer, COMMA)
    rows: list[list[str]] = [[]]
    for start, stop, ends in zip(fields.starts, fields.stops, fields.ends_record, strict=True):
        rows[-1].append(unquoted(buffer[start:stop]).decode())
        if ends:
            rows.append([])
    return [row for row in rows if row not in ([], [""])]


@given(RECORDS, st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]), st.sampled_from(["\n", "\r\n", "\r"]))
@example([['a\r\n"b"', ""]], csv.QUOTE_ALL, "\r\n")
def test_written_records_are_read_back(records: list[list[str]], quoting: int, newline: str) -> None:
    """Whatever the csv module writes is read back field by field."""
    out = io.StringIO(newline="")
    csv.writer(out, quoting=quoting, lineterminator=newline).writerows(records)

    found = _by_us(out.getvalue().encode())

    assert found == [row for row in _by_csv(out.getvalue()) if row != [""]]


@given(RECORDS, st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]), st.integers(1, 9))
def test_fields_do_not_hang_on_how_much_is_looked_at_at_a_time(
    records: list[list[str]], quoting: int, slice_bytes: int
) -> None:
    """Slices may begin and end anywhere, within quotes, between doubled ones, within a CRLF."""
    out = io.StringIO(newline="")
    csv.writer(out, quoting=quoting).writerows(records)
    buffer = out.getvalue().encode()
    whole = astuple(find_fields(buffer, COMMA))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SLICE_BYTES", slice_bytes)
        in_slices = astuple(find_fields(buffer, COMMA))

    assert all(np.array_equal(one, other) for one, other in zip(whole, in_slices, strict=True))


@pytest.mark.parametrize("share", [0.0, 0.55, 0.95])
def test_finding_fields_takes_little_more_memory_than_the_buffer(share: float) -> None:
    """Whatever share of it is quoted; long unquoted cells were held as a position for each byte, three times."""
    num_quoted = int(20_000 * share)
    buffer = b'"%s",%s\n' % (b"q" * num_quoted, b"u" * (20_000 - num_quoted)) * 800
    find_fields(buffer[:100], COMMA)

    tracemalloc.start()
    try:
        fields = find_fields(buffer, COMMA)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert len(fields.starts) == 1_600
    assert peak < 3 * len(buffer)


@given(st.text(alphabet='ab",\r\n', max_size=30))
@example('1,5" x,"y\nz"\n')
@example('a,"b')
@example('"a"b"c",d\n"e\n"')
def test_any_bytes_split_as_the_csv_module_splits_them(text: str) -> None:
    """Stray quotes too: the borders of records and fields are those of the csv module."""
    buffer = text.encode()

    fields = find_fields(buffer, COMMA)

    rows = [row for row in _by_csv(text) if row != [""]]
    if fields.sound.all():
        assert _by_us(buffer) == rows
    else:
        counts = [len(part) for part in _grouped(fields.ends_record.tolist())]
        blank = [len(row) == 1 for row in _by_csv(text)]
        assert [count for count in counts if count > 1] == [len(row) for row in _by_csv(text) if len(row) > 1]
        assert len(counts) >= len(blank)


def _grouped(ends: list[bool]) -> list[list[bool]]:
    groups: list[list[bool]] = [[]]
    for end in ends:
        groups[-1].append(end)
        if end:
            groups.append([])
    return [group for group in groups if group]


@given(st.text(alphabet='ab",\r\n', max_size=40), st.integers(1, 45))
def test_a_cut_never_changes_the_records(text: str, block_bytes: int) -> None:
    """Cutting at the last record end of any prefix, again and again, gives the records of the whole."""
    buffer = text.encode()

    parts, rest, place = [], b"", 0
    while place < len(buffer):
        rest, place = rest + buffer[place : place + block_bytes], place + block_bytes
        end = last_record_end(rest, COMMA)
        parts.append(rest[:end])
        rest = rest[end:]

    whole = _by_us(buffer)
    assert b"".join([*parts, rest]) == buffer
    assert [row for part in [*parts, rest] for row in _by_us(part)] == whole


@pytest.mark.parametrize(
    ("text", "closed"), [("a,b", True), ('a,"b', False), ('a,"b""', False), ('a,"b"', True), ('5" x,"y', False)]
)
def test_an_open_quote_at_the_end_is_seen(text: str, closed: bool) -> None:
    """A file may not end inside quotes, where the rest of it would be swallowed."""
    found = is_closed(text.encode(), COMMA)

    assert found is closed
