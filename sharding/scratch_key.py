"""The key under which a build's unfinished work lies, and files under it.

``key.json`` in the scratch folder holds the key, wrapped by the KEK ``scratch`` of whoever may build. Seals of such
files are those of what they hold, so two tasks that write one file by turns write the same in this sense too. If the
key does not open any more, because KEKs were rotated meanwhile, there is a new one, and whatever was under the old is
made again.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, cast

import xxhash

from schemas.access import KeySource
from schemas.documents import Document, read_document, write_document
from schemas.errors import AccessDeniedError, IntegrityError
from schemas.keys import SCRATCH, Context, WrappedKey
from schemas.seals import Seal, label, opened
from schemas.streams import DecryptingReader, EncryptingWriter

KEY_FILE = "key.json"


class ScratchKey(Document):
    """The wrapped key of one scratch folder."""

    kind = "exactppl.scratch.key"

    wrapped: WrappedKey


def ready_scratch_key(folder: Path, keys: KeySource, build_id: str) -> None:
    """Keep the key that is there, if it opens; else make one.

    Raises:
        AccessDeniedError: the principal was not granted unfinished work.
    """
    try:
        scratch_key(folder, keys, build_id)
    except (IntegrityError, AccessDeniedError):
        made = keys.open().keys.generate_data_key(SCRATCH, _context(build_id))
        write_document(folder / KEY_FILE, ScratchKey(wrapped=made.wrapped), replace=True)


def scratch_key(folder: Path, keys: KeySource, build_id: str) -> bytes:
    """The key of a scratch folder, 32 bytes.

    Raises:
        AccessDeniedError: the principal was not granted unfinished work.
        IntegrityError: there is no key, or it is of another folder.
    """
    path = folder / KEY_FILE
    try:
        found = path.stat()
    except OSError:
        found = None  # reading it tells why
    version = None if found is None else (found.st_ino, found.st_mtime_ns)
    return _unwrapped(keys, path, build_id, version)


def write_under(key: bytes, place: str, write: Callable[[BinaryIO], object], file: BinaryIO) -> Seal:
    """Let a writer stream into an encrypted file; the seal of what it wrote."""
    stream = _SealingWriter(EncryptingWriter(file, key, place))
    write(cast(BinaryIO, stream))
    return stream.finish()


def write_unsealed(key: bytes, place: str, write: Callable[[BinaryIO], object], file: BinaryIO) -> None:
    """As ``write_under``, where the parts of the file have digests of their own."""
    stream = EncryptingWriter(file, key, place)
    write(cast(BinaryIO, stream))
    stream.finish()


@contextmanager
def opened_under(key: bytes, place: str, path: Path) -> Iterator[BinaryIO]:
    """Open an encrypted file for reading, from anywhere in it.

    Raises:
        IntegrityError: it is no such file, damaged, or of another place.
    """
    with opened(path) as file:
        yield cast(BinaryIO, DecryptingReader(file, key, place, where=label(path)))


def _context(build_id: str) -> Context:
    return {"build": build_id, "scratch": KEY_FILE}


@lru_cache(maxsize=4)
def _unwrapped(keys: KeySource, path: Path, build_id: str, _version: tuple[int, int] | None) -> bytes:
    """Once in a process for each principal and version of the file, and not for every scratch file."""
    return keys.open().keys.decrypt(read_document(path, ScratchKey).wrapped, _context(build_id))


class _SealingWriter(io.RawIOBase):
    """Passes on what is written, and takes its digests."""

    def __init__(self, stream: EncryptingWriter) -> None:
        super().__init__()
        self._stream = stream
        self._fast, self._strong, self._num_bytes = xxhash.xxh3_128(), hashlib.sha256(), 0

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, content: Any) -> int:
        """Take bytes; returns how many."""
        view = memoryview(content).cast("B")
        self._fast.update(view)
        self._strong.update(view)
        self._num_bytes += len(view)
        return self._stream.write(view)

    def tell(self) -> int:
        """How many bytes were taken."""
        return self._num_bytes

    def finish(self) -> Seal:
        """End the stream; the seal of all that was written."""
        self._stream.finish()
        return Seal(num_bytes=self._num_bytes, xxh3_128=self._fast.hexdigest(), sha256=self._strong.hexdigest())
