"""Every format gives the same strings, byte for byte, however it is cut; what cannot be read is counted."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schemas.errors import DataError
from sharding.sources.encodings import transcode
from sharding.sources.formats import FORMATS

MAPPING = {"id": "a", "text": "b"}
CELL = st.text(alphabet='x",\r\n\t \x00é科\u2028\x85', max_size=10)
ROWS = st.lists(st.tuples(CELL, CELL), max_size=8)


def read_all(path: Path, block_bytes: int = 1 << 20, columns: dict[str, str] | None = None) -> tuple[list, Counter]:
    """(rows, rejects) of a file, read span by span."""
    source = FORMATS[path.suffix[1:]]
    rows: list[tuple[str | None, ...]] = []
    rejected: Counter[str] = Counter()
    for span in source.spans(path, block_bytes):
        for part in source.read(path, span, columns=columns or MAPPING):
            rows += zip(*part.table.to_pydict().values(), strict=True)
            rejected += part.rejected
    return rows, rejected


@given(ROWS, st.integers(1, 60), st.sampled_from(["\n", "\r\n", "\r"]))
@example([("1", "a\r\nb"), ("2", '"\r\n"')], 9, "\r\n")
def test_quoted_crlf_on_a_block_border_stays_whole(rows: list[tuple[str, str]], block_bytes: int, newline: str) -> None:
    """Any text in quotes, quoted newlines too, comes back byte for byte for every block size."""
    out = io.StringIO(newline="")
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator=newline).writerows([("a", "b"), *rows])

    with TemporaryDirectory() as folder:
        path = Path(folder) / "in.csv"
        path.write_bytes(out.getvalue().encode())
        found, rejected = read_all(path, block_bytes)

    assert found == rows
    assert not rejected


@given(ROWS, st.integers(1, 60), st.booleans())
def test_json_lines_survive_any_block_size(rows: list[tuple[str, str]], block_bytes: int, ascii_only: bool) -> None:
    """Strings come back as they are, escaped or raw, for every block size."""
    lines = [json.dumps({"a": first, "b": second}, ensure_ascii=ascii_only) for first, second in rows]

    with TemporaryDirectory() as folder:
        path = Path(folder) / "in.jsonl"
        path.write_bytes("".join(f"{line}\n" for line in lines).encode())
        found, rejected = read_all(path, block_bytes)

    assert found == rows
    assert not rejected


@given(ROWS.filter(bool), st.sampled_from([1, 20]), st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
def test_cells_are_those_that_the_csv_module_wrote(rows: list[tuple[str, str]], factor: int, quoting: int) -> None:
    """Short or long, with quotes around or doubled within; an unquoted empty cell is null."""
    values = [(one + "x", two * factor) for one, two in rows]
    out = io.StringIO(newline="")
    csv.writer(out, quoting=quoting).writerows([("a", "b"), *values])

    with TemporaryDirectory() as folder:
        path = Path(folder) / "in.csv"
        path.write_bytes(out.getvalue().encode())
        found, _ = read_all(path)

    empty = "" if quoting == csv.QUOTE_ALL else None
    assert found == [(one, two or empty) for one, two in values]


def test_empty_is_not_null(tmp_path: Path) -> None:
    """In CSV an unquoted empty field is null, a quoted one the empty string; blank lines are no records."""
    path = tmp_path / "in.csv"
    path.write_bytes(b'a,b\n,x\n"",y\n\n1,\n2,""\r\n\r\n')

    found, rejected = read_all(path)

    assert found == [(None, "x"), ("", "y"), ("1", None), ("2", "")]
    assert not rejected


@pytest.mark.parametrize("name", ["NA", "None", "null", "N/A", "nan", "001", "1", "1e5", "[1, 2, 3]", "-0", "TRUE"])
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_text_that_looks_like_data_stays_text(tmp_path: Path, name: str, suffix: str) -> None:
    """Default nulls and guessed numbers do not exist: the same string comes out of every format."""
    path = tmp_path / f"in.{suffix}"
    if suffix == "csv":
        path.write_bytes(b'a,b\n"' + name.encode() + b'",x\n')
    elif suffix == "jsonl":
        path.write_bytes(json.dumps({"a": name, "b": "x"}).encode())
    else:
        pq.write_table(pa.table({"a": [name], "b": ["x"]}), path)

    found, _ = read_all(path)

    assert found == [(name, "x")]


def test_json_values_keep_their_spelling(tmp_path: Path) -> None:
    """Numbers are taken as written, true and false as words, null and an absent key as null."""
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'{"a": 1.50, "b": true}\n{"a": -0, "b": null}\n{"b": 12345678901234567890}\n')

    found, rejected = read_all(path)

    assert found == [("1.50", "true"), ("-0", None), (None, "12345678901234567890")]
    assert not rejected


def test_only_a_newline_ends_a_json_line(tmp_path: Path) -> None:
    """U+2028, U+0085 and a carriage return inside strings or between tokens do not split records."""
    values = ["a\u2028b", "a\u0085b", "a\rb", "a\x0cb", "plain"]
    path = tmp_path / "in.jsonl"
    lines = ['{"a": "1",\r "b": ' + json.dumps(value, ensure_ascii=False) + "}" for value in values]
    path.write_text("\n".join(lines), encoding="utf-8", newline="")

    found, rejected = read_all(path)

    assert [row[1] for row in found] == values
    assert not rejected


def test_unreadable_json_lines_are_counted_by_reason(tmp_path: Path) -> None:
    """A broken line, a nested cell, a repeated key, bad bytes and a lone surrogate each cost one record."""
    lines = [
        b'{"a": "1", "b": "x"}',
        b'{"a": "2", "b": "x"',
        b'{"a": "3", "b": ["x"]}',
        b'{"a": "4", "b": "x", "b": "y"}',
        b'{"a": "5", "b": NaN}',
        b"[1]",
        b'{"a": "6", "b": "\xff"}',
        b'{"a": "7", "b": "\\ud83d"}',
        b'{"a": "8", "b": "nul \\u0000"}',
        b"[" * 100_000,
    ]
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"\n".join(lines))

    found, rejected = read_all(path)

    assert found == [("1", "x"), ("8", "nul \x00")]
    assert rejected == {"malformed": 6, "undecodable": 1, "invalid_unicode": 1}


def test_unreadable_csv_records_are_counted_by_reason(tmp_path: Path) -> None:
    """A ragged row, text after a closing quote and bytes that are not UTF-8 each cost one record and no other."""
    path = tmp_path / "in.csv"
    path.write_bytes(b'a,b\n1,x\n2\n3,x,y\n4,"x"y\n5,\xff\n6,5" needle\n7,"x\x00"\n')

    found, rejected = read_all(path, 4)

    assert found == [("1", "x"), ("6", '5" needle'), ("7", "x\x00")]
    assert rejected == {"malformed": 3, "undecodable": 1}


def test_a_quote_that_never_closes_is_an_error(tmp_path: Path) -> None:
    """The rest of the file would be swallowed, so the error names the file and the byte, and quotes nothing."""
    path = tmp_path / "in.csv"
    path.write_bytes(b'a,b\n1,x\n2,"secret words\n3,x\n')

    with pytest.raises(DataError, match=r"in\.csv: a quoted field in the record at byte 8 is never closed") as caught:
        read_all(path, 5)

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_byte_order_mark_is_no_part_of_the_data(tmp_path: Path, suffix: str) -> None:
    """A UTF-8 BOM before the header or the first object is left out."""
    path = tmp_path / f"in.{suffix}"
    path.write_bytes(b"\xef\xbb\xbf" + (b"a,b\n1,x\n" if suffix == "csv" else b'{"a": "1", "b": "x"}\n'))

    found, rejected = read_all(path)

    assert (found, rejected) == ([("1", "x")], {})


@pytest.mark.parametrize("encoding", ["gb18030", "gbk", "utf-16", "utf-16-be", "utf-8-sig", "shift_jis"])
def test_declared_encodings_are_decoded(tmp_path: Path, encoding: str) -> None:
    """Text comes back as it was written in the declared encoding."""
    path, copy = tmp_path / "in.csv", tmp_path / "copy.csv"
    path.write_bytes('a,b\r\n1,"内科, 日本\r\n"\r\n'.encode(encoding))

    with copy.open("wb") as out:
        transcode(path, out, encoding)
    found, rejected = read_all(copy, 3)

    assert (found, rejected) == ([("1", "内科, 日本\r\n")], {})


@pytest.mark.parametrize(
    ("encoding", "bad"),
    [
        ("cp1252", b"\x81"),
        ("gb18030", b"\xff"),
        ("utf-16-le", b"\x00\xd8"),
        ("ascii", b"\xe9"),
        ("utf-16", b"\x00\xdc"),
    ],
)
def test_undecodable_bytes_cost_their_record_only(tmp_path: Path, encoding: str, bad: bytes) -> None:
    """Bytes unknown to the declared encoding never become U+FFFD: their record is rejected and counted."""
    path, copy = tmp_path / "in.csv", tmp_path / "copy.csv"
    after = "\n3,z\n".encode("utf-16-le" if encoding.startswith("utf-16") else encoding)
    path.write_bytes("a,b\n1,x\n2,y".encode(encoding) + bad + after)

    with copy.open("wb") as out:
        transcode(path, out, encoding)
    found, rejected = read_all(copy)

    assert found == [("1", "x"), ("3", "z")]
    assert rejected == {"undecodable": 1}


def test_utf16_cut_in_the_middle_of_a_character_is_counted(tmp_path: Path) -> None:
    """An odd byte at the end makes the last record undecodable."""
    path, copy = tmp_path / "in.csv", tmp_path / "copy.csv"
    path.write_bytes("a,b\n1,x\n2,y".encode("utf-16") + b"\x41")

    with copy.open("wb") as out:
        transcode(path, out, "utf-16")
    found, rejected = read_all(copy)

    assert (found, rejected) == ([("1", "x")], {"undecodable": 1})


def test_typed_parquet_columns_read_as_their_csv(tmp_path: Path) -> None:
    """Integers, whole floats, dictionaries, dates and booleans become the strings that a CSV file would hold."""
    columns = {
        "id": pa.array([1, None], pa.int32()),
        "text": pa.array(["x", "y"]).dictionary_encode(),
        "department": pa.array([1.0, 2.5]),
        "patient": pa.array([123_456_789_012.0, None]),
        "encounter": pa.array([True, False]),
        "feature.day": pa.array([0, 1], pa.date32()),
        "feature.raw": pa.array([b"ab", b"cd"], pa.binary(2)),
    }
    path = tmp_path / "in.parquet"
    pq.write_table(pa.table(columns), path)

    found, rejected = read_all(path, columns={name: name for name in columns})

    assert found == [
        ("1", "x", "1", "123456789012", "true", "1970-01-01", "ab"),
        (None, "y", "2.5", None, "false", "1970-01-02", "cd"),
    ]
    assert not rejected


def test_parquet_strings_that_are_not_utf8_are_counted(tmp_path: Path) -> None:
    """A writer that put other bytes into a string column costs its record only."""
    bad = pa.Array.from_buffers(pa.string(), 2, pa.array([b"x", b"\xff"], pa.binary()).buffers())
    path = tmp_path / "in.parquet"
    pq.write_table(pa.table({"a": ["1", "2"], "b": bad}), path)

    found, rejected = read_all(path)

    assert (found, rejected) == ([("1", "x")], {"undecodable": 1})


def test_a_broken_parquet_file_is_named_and_not_quoted(tmp_path: Path) -> None:
    """The reader's own message never gets out."""
    path = tmp_path / "in.parquet"
    path.write_bytes(b"PAR1 secret words PAR1")

    with pytest.raises(DataError, match=r"in\.parquet: no readable Parquet file") as caught:
        read_all(path)

    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_long_line_and_a_long_field_are_read(tmp_path: Path) -> None:
    """A 3 MB JSON line and a 200 KB CSV field are read whole, in blocks far smaller than they are."""
    lines, fields = tmp_path / "in.jsonl", tmp_path / "in.csv"
    lines.write_bytes(json.dumps({"a": "1", "b": "x" * 3_000_000}).encode() + b'\n{"a": "2", "b": "y"}')
    fields.write_bytes(b'a,b\n1,"' + b"x,\n" * 70_000 + b'"\n2,y\n')

    from_lines, from_fields = read_all(lines, 1_000)[0], read_all(fields, 1_000)[0]

    assert [len(row[1]) for row in from_lines] == [3_000_000, 1]
    assert [len(row[1]) for row in from_fields] == [210_000, 1]
