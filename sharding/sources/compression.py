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
from typing import IO, BinaryIO

import pyarrow as pa

from schemas.errors import IntegrityError
from schemas.seals import label, opened

CHUNK_BYTES = 1 << 20
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
            stream = _stream(file, compression_of(path))
            while chunk := stream.read(CHUNK_BYTES):
                num_bytes += len(chunk)
                yield chunk
        except (EOFError, zlib.error, pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # the disk, not the stream: ``opened`` has the words for it
            raise IntegrityError(
                f"{label(path)}: cut or damaged after {num_bytes} plain bytes, a whole {compression_of(path)} stream "
                "was expected; copy or compress the file again"
            ) from None


def plain_head(path: Path, num_bytes: int) -> bytes:
    """The first plain bytes of a file."""
    head = b""
    for chunk in plain_chunks(path):
        head += chunk
        if len(head) >= num_bytes:
            break
    return head[:num_bytes]


def _stream(file: BinaryIO, compression: str | None) -> IO[bytes]:
    if compression == "gzip":
        return gzip.GzipFile(fileobj=file)  # type: ignore[return-value]  # reads as one, and owns no file
    if compression == "zstd":
        stream: IO[bytes] = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")
        return stream
    return file
