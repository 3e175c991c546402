"""A content digest says what the rows are, and nothing of how they happen to lie in memory or on disk."""

from __future__ import annotations

import datetime
import hashlib
import io
import itertools
import struct
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.tables import content_digest

SCHEMA = pa.schema(
    [
        pa.field("id", pa.binary(4)),
        pa.field("text", pa.large_string()),
        pa.field("short", pa.string()),
        pa.field("raw", pa.binary()),
        pa.field("count", pa.int64()),
        pa.field("small", pa.uint8()),
        pa.field("loss", pa.float64()),
        pa.field("flag", pa.bool_()),
        pa.field("day", pa.date32()),
    ]
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.none() | st.binary(min_size=4, max_size=4),
            "text": st.none() | TEXT,
            "short": st.none() | TEXT,
            "raw": st.none() | st.binary(max_size=4),
            "count": st.none() | st.integers(-(2**63), 2**63 - 1),
            "small": st.none() | st.integers(0, 255),
            "loss": st.none() | st.floats(allow_nan=False),
            "flag": st.none() | st.booleans(),
            "day": st.none() | st.dates(datetime.date(1900, 1, 1), datetime.date(2100, 1, 1)),
        }
    ),
    max_size=20,
)


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    """A table of ``SCHEMA``."""
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def one_column(values: list[Any], kind: pa.DataType) -> pa.Table:
    """A table of one column."""
    return pa.table({"x": pa.array(values, kind)})


@given(rows=ROWS, cuts=st.lists(st.integers(0, 20), max_size=5))
def test_chunks_do_not_matter(rows: list[dict[str, Any]], cuts: list[int]) -> None:
    """Rows in any number of chunks, empty ones too, have one digest."""
    whole = table_of(rows)
    borders = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    parts = [whole.slice(start, end - start) for start, end in itertools.pairwise(borders)]

    chunked = pa.concat_tables(parts)

    assert content_digest(chunked) == content_digest(whole)
    assert content_digest(chunked.combine_chunks()) == content_digest(whole)


@given(rows=ROWS, start=st.integers(0, 20), length=st.integers(0, 20))
def test_a_slice_equals_its_own_copy(rows: list[dict[str, Any]], start: int, length: int) -> None:
    """A view into a larger buffer digests as the same rows made afresh."""
    view = table_of(rows).slice(start, length)

    copy = table_of(rows[start : start + length])

    assert content_digest(view) == content_digest(copy)


@given(rows=ROWS)
def test_what_lies_under_a_null_does_not_matter(rows: list[dict[str, Any]]) -> None:
    """Nulls made by masking real values equal nulls that never held one."""
    values = pa.array([row["count"] for row in rows], pa.int64())
    junk = pa.array([7] * len(rows), pa.int64())
    masked = pa.Array.from_buffers(pa.int64(), len(rows), [_validity(values), _merged(values, junk).buffers()[1]])

    assert content_digest(pa.table({"x": masked})) == content_digest(pa.table({"x": values}))


@given(rows=ROWS, size=st.integers(1, 7), compression=st.sampled_from(["zstd", "snappy", "none"]), pages=st.booleans())
def test_parquet_does_not_matter(rows: list[dict[str, Any]], size: int, compression: str, pages: bool) -> None:
    """Any row-group size, compression and dictionary setting gives the digest back."""
    table = table_of(rows)
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=size, compression=compression, use_dictionary=pages)

    again = pq.read_table(pa.BufferReader(sink.getvalue()))

    assert content_digest(again) == content_digest(table)


@given(first=ROWS, second=ROWS)
def test_equal_digests_mean_equal_rows(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> None:
    """Two tables have one digest exactly if they hold the same rows in the same order."""
    same = [list(map(repr, row.values())) for row in first] == [list(map(repr, row.values())) for row in second]

    assert (content_digest(table_of(first)) == content_digest(table_of(second))) == same


@given(rows=ROWS.filter(bool), data=st.data())
def test_one_other_value_changes_the_digest(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    """Whichever cell of whichever column changes, the digest changes."""
    place = data.draw(st.integers(0, len(rows) - 1))
    column = data.draw(st.sampled_from(SCHEMA.names))
    other: dict[str, Any] = {
        "id": b"abcd",
        "text": "other!",
        "short": "other!",
        "raw": b"other!",
        "count": 1,
        "small": 1,
        "loss": 1.5,
        "flag": True,
        "day": datetime.date(2200, 1, 1),
    }
    changed = [dict(row) for row in rows]
    changed[place][column] = other[column] if changed[place][column] != other[column] else None

    assert content_digest(table_of(changed)) != content_digest(table_of(rows))


# --- pairs that a careless digest confuses


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([None], [""]),
        (["ab", "c"], ["a", "bc"]),
        (["a", "b"], ["b", "a"]),
        (["a"], ["a", ""]),
        (["a"], ["a", None]),
        ([None, ""], ["", None]),
        (["a", "a"], ["a"]),
        (["\x00"], [""]),
        ([], [None]),
    ],
)
@pytest.mark.parametrize("kind", [pa.large_string(), pa.string(), pa.large_binary(), pa.binary()])
def test_texts_that_look_alike_differ(first: list[Any], second: list[Any], kind: pa.DataType) -> None:
    """Null and empty, moved borders, order, and a missing or repeated row are all told apart."""
    assert content_digest(one_column(first, kind)) != content_digest(one_column(second, kind))


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        ([None], [0], pa.int64()),
        ([None], [0.0], pa.float64()),
        ([None], [False], pa.bool_()),
        ([True, False], [False, True], pa.bool_()),
        ([True], [False], pa.bool_()),
        ([False] * 9, [False] * 8, pa.bool_()),
        ([0.0], [-0.0], pa.float64()),
        ([1, 2], [2, 1], pa.int64()),
        ([2**62], [2**62 + 1], pa.int64()),
        ([0], [256], pa.int32()),
        ([None], [bytes(4)], pa.binary(4)),
    ],
)
def test_numbers_that_look_alike_differ(first: list[Any], second: list[Any], kind: pa.DataType) -> None:
    """Null and zero, order, signs of zero, and every bit of a number count."""
    assert content_digest(one_column(first, kind)) != content_digest(one_column(second, kind))


@pytest.mark.parametrize(
    "kinds", [(pa.int64(), pa.int32()), (pa.string(), pa.large_string()), (pa.bool_(), pa.uint8())]
)
def test_the_type_counts(kinds: tuple[pa.DataType, pa.DataType]) -> None:
    """Equal values of another type are other content."""
    first, second = (content_digest(one_column([None], kind)) for kind in kinds)

    assert first != second


def test_names_and_order_of_columns_count() -> None:
    """A renamed column, or two columns swapped, is other content."""
    table = pa.table({"a": ["x"], "b": ["y"]})

    digests = {content_digest(item) for item in (table, table.rename_columns(["a", "c"]), table.select(["b", "a"]))}

    assert len(digests) == 3


def test_values_cannot_move_between_columns() -> None:
    """Text at the end of one column and at the start of the next are told apart."""
    first, second = pa.table({"a": ["xy"], "b": ["z"]}), pa.table({"a": ["x"], "b": ["yz"]})

    assert content_digest(first) != content_digest(second)


def test_an_empty_table_has_a_digest() -> None:
    """No rows, with or without chunks, is a defined content that depends on the schema only."""
    no_chunks = pa.table({"x": pa.chunked_array([], pa.large_string())})

    assert content_digest(no_chunks) == content_digest(one_column([], pa.large_string()))
    assert content_digest(no_chunks) != content_digest(one_column([], pa.int64()))


def test_a_digest_is_frozen() -> None:
    """The digest of these rows, computed here from the documented layout, is what every release gives."""
    table = pa.table(
        {
            "id": pa.array([b"abcd", None], pa.binary(4)),
            "text": pa.array(["é", None], pa.large_string()),
            "count": pa.array([5, None], pa.int64()),
            "flag": pa.array([True, None], pa.bool_()),
        }
    )
    valid = b"\x01\x00"
    layout: list[tuple[bytes, list[bytes]]] = [
        (b"id\x1ffixed_size_binary[4]\n", [valid, b"abcd\0\0\0\0"]),
        (b"text\x1flarge_string\n", [valid, struct.pack("<qq", 2, 0), "é".encode()]),
        (b"count\x1fint64\n", [valid, struct.pack("<qq", 5, 0)]),
        (b"flag\x1fbool\n", [valid, b"\x01\x00"]),
    ]
    expected = hashlib.sha256(struct.pack("<q", 2))
    for header, parts in layout:
        expected.update(header)
        for part in parts:
            expected.update(struct.pack("<q", len(part)) + part)

    digest = content_digest(table)

    assert digest == expected.hexdigest()
    assert digest == "a4f2227d188b62c4b33321de79a4c051824b907f88cda072dc5d70aac071424b"


def _validity(values: pa.Array) -> pa.Buffer | None:
    return values.buffers()[0]


def _merged(values: pa.Array, junk: pa.Array) -> pa.Array:
    return pc.coalesce(values, junk)
