"""Encrypted files that can be read from anywhere in them: unfinished work holds note text, so it lies encrypted too.

The file is cut into chunks of 64 KiB, each under AES-256-GCM with a key of the file alone and the chunk's number as
nonce; the last chunk is marked in its nonce (the STREAM construction: Hoang, Reyhanitabar, Rogaway, Vizár, "Online
Authenticated-Encryption and its Nonce-Reuse Misuse-Resistance", 2015). So chunks cannot be changed, swapped, repeated,
dropped or cut off at the end, nor can a file be put in another one's place::

    "XPPLENC1" | salt, 16 random bytes | chunk 0: ciphertext, tag of 16 bytes | chunk 1 ... | last chunk

The key is HKDF-SHA-256 of the master key, the salt and the place that the file was written for.
"""

from __future__ import annotations

import io
import os
import secrets
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa

from schemas.ciphers import NONCE_BYTES, TAG_BYTES, derived_key
from schemas.errors import IntegrityError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MAGIC = b"XPPLENC1"
SALT_BYTES = 16
HEADER_BYTES = len(MAGIC) + SALT_BYTES
CHUNK_BYTES = 1 << 16
CHUNKS_AT_ONCE = 16
_STORED_BYTES = CHUNK_BYTES + TAG_BYTES


class EncryptingWriter:
    """Writes a stream into an open file; it is whole only after ``finish``.

    Args:
        file: Open for writing, at its beginning.
        key: Master key of 32 bytes.
        place: What the file is written for; a reader must name the same.
    """

    def __init__(self, file: BinaryIO, key: bytes, place: str) -> None:
        salt = secrets.token_bytes(SALT_BYTES)
        self._cipher = _cipher(key, salt, place)
        self._file = file
        self._pending = bytearray()
        self._stored = bytearray(CHUNKS_AT_ONCE * _STORED_BYTES)
        self._num_chunks = 0
        file.write(MAGIC + salt)

    def write(self, content: bytes | bytearray | memoryview) -> int:
        """Take bytes; returns how many. Whole chunks are written at once, but for the one that may be the last."""
        view = memoryview(content).cast("B")
        num_bytes = len(view)
        if self._pending:
            room = CHUNK_BYTES - len(self._pending)
            self._pending += view[:room]
            view = view[room:]
            if not view:
                return num_bytes
            self._put(memoryview(self._pending))
            self._pending = bytearray()
        while len(view) > CHUNK_BYTES:
            num_bytes_now = min(CHUNKS_AT_ONCE, (len(view) - 1) // CHUNK_BYTES) * CHUNK_BYTES
            self._put(view[:num_bytes_now])
            view = view[num_bytes_now:]
        self._pending += view
        return num_bytes

    def tell(self) -> int:
        """How many bytes were taken."""
        return self._num_chunks * CHUNK_BYTES + len(self._pending)

    def flush(self) -> None:
        """Nothing can be written before it is known whether it is the last."""

    def finish(self) -> None:
        """Write the last chunk."""
        self._file.write(self._cipher.encrypt(_nonce(self._num_chunks, is_last=True), self._pending, None))
        self._num_chunks += 1
        self._pending = bytearray()

    def _put(self, chunks: memoryview) -> None:
        """Write whole chunks, none of them the last."""
        stored, end = memoryview(self._stored), 0
        for start in range(0, len(chunks), CHUNK_BYTES):
            nonce, room = _nonce(self._num_chunks, is_last=False), stored[end : end + _STORED_BYTES]
            end += self._cipher.encrypt_into(nonce, chunks[start : start + CHUNK_BYTES], None, room)
            self._num_chunks += 1
        self._file.write(stored[:end])


class DecryptingReader(io.RawIOBase):
    """Reads a stream from any place in it; nothing is given out that was not written so.

    Args:
        file: Open for reading; not closed with the reader.
        key: Master key of 32 bytes.
        place: What the file was written for.
        where: How messages name the file.

    Raises:
        IntegrityError: the file is no such stream, is damaged, cut, of another place, or under another key. Its end is
            checked here, each other chunk when it is read.
    """

    def __init__(self, file: BinaryIO, key: bytes, place: str, *, where: str) -> None:
        super().__init__()
        self._file, self._where, self._position = file, where, 0
        stored = os.fstat(file.fileno()).st_size - HEADER_BYTES
        header = file.read(HEADER_BYTES)
        self._num_chunks, rest = divmod(stored, _STORED_BYTES)
        if stored < TAG_BYTES or header[: len(MAGIC)] != MAGIC or 0 < rest < TAG_BYTES:
            raise self._damaged()
        self._num_chunks += rest > 0
        self._num_bytes = stored - self._num_chunks * TAG_BYTES
        self._cipher = _cipher(key, header[len(MAGIC) :], place)
        self._chunk_number, self._chunk = -1, b""
        self._chunk_at((self._num_chunks - 1) * CHUNK_BYTES)

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Where the next byte comes from."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go elsewhere; behind the end there is nothing to read."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._num_bytes}[whence]
        if start + offset < 0:
            raise ValueError("before the beginning")
        self._position = start + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer; less than whole at the end only."""
        target = memoryview(buffer).cast("B")[: max(0, self._num_bytes - self._position)]
        filled = 0
        while filled < len(target):
            num_whole = min(CHUNKS_AT_ONCE, (len(target) - filled) // CHUNK_BYTES)
            if self._position % CHUNK_BYTES or not num_whole:
                chunk = memoryview(self._chunk_at(self._position))[self._position % CHUNK_BYTES :]
                num_now = min(len(chunk), len(target) - filled)
                target[filled : filled + num_now] = chunk[:num_now]
            else:
                num_now = num_whole * CHUNK_BYTES
                self._whole_chunks_into(target[filled : filled + num_now])
            filled += num_now
            self._position += num_now
        return filled

    def read(self, size: int | None = -1) -> bytes:
        """So many bytes, or what is left; fewer at the end only."""
        left = max(0, self._num_bytes - self._position)
        wanted = left if size is None or size < 0 else min(size, left)
        pieces: list[memoryview] = []
        while wanted:
            chunk = memoryview(self._chunk_at(self._position))[self._position % CHUNK_BYTES :][:wanted]
            pieces.append(chunk)
            wanted -= len(chunk)
            self._position += len(chunk)
        return b"".join(pieces)

    def readall(self) -> bytes:
        """What is left."""
        return self.read()

    def _chunk_at(self, position: int) -> bytes:
        number = position // CHUNK_BYTES
        if number != self._chunk_number:
            self._file.seek(HEADER_BYTES + number * _STORED_BYTES)
            self._chunk = self._opened(self._file.read(_STORED_BYTES), number)
            self._chunk_number = number
        return self._chunk

    def _whole_chunks_into(self, target: memoryview) -> None:
        """Open chunks from the position on straight into their place."""
        number, num_chunks = self._position // CHUNK_BYTES, len(target) // CHUNK_BYTES
        self._file.seek(HEADER_BYTES + number * _STORED_BYTES)
        # Arrow keeps what is freed. Fresh memory costs more than the cipher: the kernel clears it page by page.
        stored = memoryview(pa.allocate_buffer(num_chunks * _STORED_BYTES)).cast("B")
        if self._file.readinto(stored) != len(stored):  # type: ignore[attr-defined]  # every open file has it
            raise self._damaged()
        for index in range(num_chunks):
            chunk = stored[index * _STORED_BYTES : (index + 1) * _STORED_BYTES]
            self._open_into(chunk, number + index, target[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES])

    def _open_into(self, stored: memoryview, number: int, target: memoryview) -> None:
        from cryptography.exceptions import InvalidTag

        nonce = _nonce(number, is_last=number == self._num_chunks - 1)
        try:
            self._cipher.decrypt_into(nonce, stored, None, target)
        except InvalidTag:
            raise self._damaged() from None

    def _opened(self, stored: bytes, number: int) -> bytes:
        from cryptography.exceptions import InvalidTag

        try:
            return self._cipher.decrypt(_nonce(number, is_last=number == self._num_chunks - 1), stored, None)
        except InvalidTag:
            raise self._damaged() from None

    def _damaged(self) -> IntegrityError:
        return IntegrityError(
            f"{self._where}: does not open with its key; it is damaged, cut or another file; run again to make it again"
        )


def _cipher(key: bytes, salt: bytes, place: str) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(derived_key(key, "stream", salt.hex(), place))


def _nonce(number: int, *, is_last: bool) -> bytes:
    return number.to_bytes(NONCE_BYTES - 1, "big") + bytes([is_last])
