"""Text in another encoding, or compressed, becomes plain UTF-8 first: only that has to be cut, split and checked.

Bytes that the encoding does not know become bytes that UTF-8 does not know: the record that holds them, and no other,
is rejected as undecodable when it is read.
"""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import BinaryIO

from schemas.errors import IntegrityError
from schemas.seals import label
from sharding.sources.compression import plain_chunks

# A lone surrogate: no encoding decodes to one, and its three bytes under "surrogatepass" are no valid UTF-8.
_MARK = "\udc80"
_MARK_HANDLER = "exactppl.mark"
# Codecs of Python's own: escapes, parts of host names, tables that are still to be named. No text file is in them.
NO_CHARSETS = frozenset(
    {"charmap", "idna", "mbcs", "oem", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"}
)


def charset(name: str) -> str:
    """Python's name of a charset.

    Raises:
        LookupError: there is none of this name.
        ValueError: it cannot be a name.
    """
    found = codecs.lookup(name).name
    if found in NO_CHARSETS:
        raise LookupError
    return found


def to_utf8(content: bytes, encoding: str) -> bytes:
    """Decode a prefix of a file; a character cut at the end is left out."""
    if encoding == "utf-8":
        return content
    return _decoder(encoding).decode(content).removeprefix("\ufeff").encode("utf-8", "surrogatepass")


def transcode(source: Path, out: BinaryIO, encoding: str) -> None:
    """Write a text file again as plain UTF-8; one in another encoding also loses its byte order mark.

    Raises:
        IntegrityError: the file is compressed and cut or damaged, or not in this encoding at all.
    """
    if encoding == "utf-8":  # compressed only: what is no UTF-8 is found record by record, as in a plain file
        out.writelines(plain_chunks(source))
        return
    decoder, is_first = _decoder(encoding), True
    try:
        for chunk in plain_chunks(source):
            text = decoder.decode(chunk)
            out.write((text.removeprefix("\ufeff") if is_first else text).encode("utf-8", "surrogatepass"))
            is_first = False
        out.write(decoder.decode(b"", final=True).encode("utf-8", "surrogatepass"))
    except UnicodeError:
        raise not_in(source, encoding) from None


def not_in(path: Path, encoding: str) -> IntegrityError:
    """What is wrong with a file that an encoding gives up, as UTF-16 does without a byte order mark."""
    return IntegrityError(f"{label(path)}: not in encoding {encoding} at all; set --encoding, such as utf-16-le")


def _decoder(encoding: str) -> codecs.IncrementalDecoder:
    codecs.register_error(_MARK_HANDLER, _marked)
    return codecs.getincrementaldecoder(encoding)(_MARK_HANDLER)


def _marked(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return _MARK, error.end
