"""Compressed text files, read as a stream of plain bytes: gzip of any number of members, Zstandard of any of frames.

A file is compressed if its last suffix says so; the suffix before it names the format (``notes.csv.gz``). A stream that
is cut or damaged is an error of the whole file, never fewer records, and so is a file of no bytes: even an empty text
has a stream. gzip always has a checksum; a Zstandard frame has one if its writer put it there, as the zstd command
does.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from schemas.errors import IntegrityError
from schemas.seals import label, opened

CHUNK_BYTES = 1 << 20
# So closely it is told what a stream held before its damage.
PIECE_BYTES = 1 << 16
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}


def compression_of(path: Path) -> str | None:
    """How a file's bytes are compressed, by its last suffix; None for plain bytes."""
    return COMPRESSIONS.get(path.suffix.lower())


def format_suffix(path: Path) -> str:
    """The suffix that names the format, in lower case: ``.csv`` of ``notes.csv.gz``."""
    return (Path(path.stem) if compression_of(path) else path).suffix.lower()


def plain_chunks(path: Path) -> Iterator[bytes]:
    """The plain bytes of a file in parts of at most ``CHUNK_BYTES``, decompressed if its name says that it must be.

    Raises:
        IntegrityError: the file is absent, or its stream is cut or damaged.
        TemporaryError: the disk failed.
    """
    num_bytes = 0
    with opened(path) as file:
        try:
            if compression_of(path) and not file.read(1):
                raise EOFError
            file.seek(0)
            for piece in _pieces(file, compression_of(path)):
                num_bytes += len(piece)
                yield piece
        except (EOFError, zlib.error, pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # the disk, not the stream: ``opened`` has the words for it
            raise IntegrityError(
                f"{label(path)}: cut or damaged after at least {num_bytes} plain bytes, a whole {compression_of(path)} "
                "stream was expected; copy or compress the file again"
            ) from None


def plain_head(path: Path, num_bytes: int) -> bytes:
    """The first plain bytes of a file."""
    head = b""
    for chunk in plain_chunks(path):
        head += chunk
        if len(head) >= num_bytes:
            break
    return head[:num_bytes]


def _pieces(file: BinaryIO, compression: str | None) -> Iterator[bytes]:
    """As much as there is at a time: a reader that fills a whole chunk first loses what came before the damage."""
    if compression == "gzip":
        stream = gzip.GzipFile(fileobj=file)
        yield from iter(lambda: stream.read1(PIECE_BYTES), b"")
    elif compression == "zstd":
        frames = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")
        yield from iter(lambda: frames.read(PIECE_BYTES), b"")
    else:
        yield from iter(lambda: file.read(CHUNK_BYTES), b"")
