"""Text in another encoding becomes UTF-8 first, so that only one encoding has to be cut, split and checked.

Bytes that the encoding does not know become bytes that UTF-8 does not know: the record that holds them, and no other,
is rejected as undecodable when it is read.
"""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import BinaryIO

from schemas.errors import IntegrityError
from schemas.seals import label, opened, publish_with

CHUNK_BYTES = 1 << 20

# A lone surrogate: no encoding decodes to one, and its three bytes under "surrogatepass" are no valid UTF-8.
_MARK = "\udc80"
_MARK_HANDLER = "exactppl.mark"


def to_utf8(content: bytes, encoding: str) -> bytes:
    """Decode a prefix of a file; a character cut at the end is left out."""
    if encoding == "utf-8":
        return content
    return _decoder(encoding).decode(content).removeprefix("\ufeff").encode("utf-8", "surrogatepass")


def transcode(source: Path, target: Path, encoding: str) -> None:
    """Write a text file again as UTF-8 without a byte order mark."""

    def write(out: BinaryIO) -> None:
        decoder, is_first = _decoder(encoding), True
        with opened(source) as file:
            while chunk := file.read(CHUNK_BYTES):
                text = decoder.decode(chunk)
                out.write((text.removeprefix("\ufeff") if is_first else text).encode("utf-8", "surrogatepass"))
                is_first = False
        out.write(decoder.decode(b"", final=True).encode("utf-8", "surrogatepass"))

    try:
        publish_with(target, write, replace=True)
    except UnicodeError:
        raise IntegrityError(f"{label(source)}: not in encoding {encoding} at all; set --encoding") from None


def _decoder(encoding: str) -> codecs.IncrementalDecoder:
    codecs.register_error(_MARK_HANDLER, _marked)
    return codecs.getincrementaldecoder(encoding)(_MARK_HANDLER)


def _marked(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return _MARK, error.end
