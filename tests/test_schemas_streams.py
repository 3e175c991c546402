"""Laws of encrypted streams: they read as written from anywhere, or not at all."""

from __future__ import annotations

import io
import random
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from typing import BinaryIO

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import IntegrityError
from schemas.streams import CHUNK_BYTES, HEADER_BYTES, DecryptingReader, EncryptingWriter

KEY = bytes(range(32))
STORED = CHUNK_BYTES + 16
lengths = st.sampled_from([0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES, 200_001])


def content_of(num_bytes: int) -> bytes:
    """Bytes in which every place is different enough to be told from others."""
    return random.Random(num_bytes).randbytes(num_bytes)


def written(parts: Sequence[bytes], *, key: bytes = KEY, place: str = "spills/1") -> bytes:
    """The encrypted file of some parts."""
    file = io.BytesIO()
    writer = EncryptingWriter(file, key, place)
    for part in parts:
        assert writer.write(part) == len(part)
    assert writer.tell() == sum(map(len, parts))
    writer.finish()
    return file.getvalue()


def on_disk(content: bytes) -> BinaryIO:
    """A real file of these bytes, at its beginning."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by its collector, and with the test at the latest
    file.write(content)
    file.seek(0)
    return file


def read_back(content: bytes, *, key: bytes = KEY, place: str = "spills/1") -> bytes:
    """All that a reader gives of a file."""
    with on_disk(content) as file:
        return DecryptingReader(file, key, place, where="spill").read()


@given(num_bytes=lengths, cuts=st.lists(st.integers(0, 200_001), max_size=4))
def test_stream_reads_as_written_however_it_came(num_bytes: int, cuts: list[int]) -> None:
    """The parts in which it was written play no part, and its length is that of the chunks with their tags."""
    content = content_of(num_bytes)
    borders = [0, *sorted(min(cut, num_bytes) for cut in cuts), num_bytes]

    file = written([content[start:stop] for start, stop in pairwise(borders)])

    assert read_back(file) == content
    assert len(file) == HEADER_BYTES + num_bytes + 16 * max(1, -(-num_bytes // CHUNK_BYTES))


@given(num_bytes=lengths, places=st.lists(st.tuples(st.integers(0, 200_100), st.integers(0, 150_000)), max_size=6))
def test_any_part_can_be_read(num_bytes: int, places: list[tuple[int, int]]) -> None:
    """Seeking and reading gives what slicing the content would, also beyond the end."""
    content = content_of(num_bytes)

    with on_disk(written([content])) as file:
        reader = DecryptingReader(file, KEY, "spills/1", where="spill")
        for start, length in places:
            assert reader.seek(start) == start
            assert reader.read(length) == content[start : start + length]
            assert reader.seek(-1 if num_bytes else 0, io.SEEK_END) == max(0, num_bytes - 1)


@given(num_bytes=lengths, data=st.data())
def test_any_changed_byte_is_found(num_bytes: int, data: st.DataObject) -> None:
    """A flipped bit in header, text or tag is an error, never other text."""
    file = bytearray(written([content_of(num_bytes)]))
    file[data.draw(st.integers(0, len(file) - 1))] ^= 1 << data.draw(st.integers(0, 7))

    with pytest.raises(IntegrityError, match="spill: does not open with its key"):
        read_back(bytes(file))


@given(num_bytes=lengths, data=st.data())
def test_any_cut_or_addition_is_found_at_once(num_bytes: int, data: st.DataObject) -> None:
    """Also at the border of two chunks, and before anything is read but the end."""
    file = written([content_of(num_bytes)])
    borders = [HEADER_BYTES + number * STORED for number in range(len(file) // STORED + 1)]
    length = data.draw(
        st.one_of(st.sampled_from(borders), st.integers(0, len(file) - 1)).filter(lambda n: n < len(file))
    )

    for damaged in (file[:length], file + bytes(16), file + file[HEADER_BYTES:]):
        with on_disk(damaged) as opened, pytest.raises(IntegrityError, match="does not open"):
            DecryptingReader(opened, KEY, "spills/1", where="spill")


def test_chunks_swapped_repeated_or_dropped_are_found() -> None:
    """Each chunk opens at its own place only."""
    file = written([content_of(4 * CHUNK_BYTES)])
    header, chunks = file[:HEADER_BYTES], [file[HEADER_BYTES + n * STORED :][:STORED] for n in range(4)]

    for order in ([1, 0, 2, 3], [0, 0, 2, 3], [0, 2, 3], [0, 1, 2], [3, 1, 2, 3]):
        with pytest.raises(IntegrityError, match="does not open"):
            read_back(header + b"".join(chunks[number] for number in order))


def test_file_opens_only_with_its_key_at_its_place() -> None:
    """One worker's file is not taken for another's, nor one build's for another's."""
    file = written([b"text"])

    assert read_back(file) == b"text"
    for changed in ({"key": bytes(32)}, {"place": "spills/2"}):
        with pytest.raises(IntegrityError, match="does not open"):
            read_back(file, **changed)  # type: ignore[arg-type]


def test_equal_contents_give_different_files_without_the_text() -> None:
    """Nobody sees that two files are equal, and none has a word of the text."""
    text = b"note of a patient " * 10_000

    one, two = written([text]), written([text])

    assert one[len(b"XPPLENC1") :][:16] != two[len(b"XPPLENC1") :][:16]
    assert b"patient" not in one
    assert not pieces_of(one) & pieces_of(two)


def pieces_of(file: bytes) -> set[bytes]:
    """Its first blocks of a cipher's size."""
    return {file[start : start + 16] for start in range(HEADER_BYTES, 4096, 16)}


def test_unfinished_stream_is_none() -> None:
    """What a killed writer left is refused."""
    file = io.BytesIO()
    EncryptingWriter(file, KEY, "spills/1").write(content_of(3 * CHUNK_BYTES))

    with pytest.raises(IntegrityError, match="does not open"):
        read_back(file.getvalue())


def test_arrow_reads_and_writes_through_a_stream() -> None:
    """Arrow's files, which are read from their end, can lie in one."""
    table = pa.table({"number": list(range(50_000)), "text": [f"note {n}" for n in range(50_000)]})
    file = io.BytesIO()
    writer = EncryptingWriter(file, KEY, "keys/1")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as arrow:
        arrow.write_table(table)
    writer.write(memoryview(sink.getvalue()))
    writer.finish()

    with on_disk(file.getvalue()) as opened:
        found = pa.ipc.open_file(DecryptingReader(opened, KEY, "keys/1", where="keys")).read_all()

    assert found.equals(table)
