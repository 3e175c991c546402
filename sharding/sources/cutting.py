"""Cutting a text file into spans that end where a record ends, in one pass and with bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sharding.sources.opening import opened_text
from sharding.sources.source import Span


def cut_file(
    path: Path, start: int, *, block_bytes: int, record_end: Callable[[bytes], int]
) -> tuple[list[Span], bytes]:
    """Cut from ``start`` to the end of the file.

    Args:
        path: A text file.
        start: Offset of the first record.
        block_bytes: Size to aim at; a longer record gets a span of its own.
        record_end: Offset after the last complete record of a buffer that begins with a record, or 0.

    Returns:
        The spans, and the bytes after the last record end, for which the last span stands too.
    """
    spans: list[Span] = []
    rest, begin = b"", start
    with opened_text(path) as file:
        file.seek(start)
        # A record that outgrows the block doubles the buffer, so that a long record is not searched over and over.
        while chunk := file.read(max(block_bytes - len(rest), len(rest), 1)):
            buffer = rest + chunk
            end = record_end(buffer)
            if end:
                spans.append(Span(begin, begin + end, end))
            rest, begin = buffer[end:], begin + end
    if rest:
        spans.append(Span(begin, begin + len(rest), len(rest)))
    return spans, rest


def read_span(path: Path, span: Span) -> bytes:
    """The bytes of a span."""
    with opened_text(path) as file:
        file.seek(span.start)
        return file.read(span.stop - span.start)
