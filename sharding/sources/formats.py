"""Which source reads which file. A new format is one more line here."""

from __future__ import annotations

from pathlib import Path

from sharding.sources.compression import COMPRESSIONS, compression_of, format_suffix
from sharding.sources.delimited import DelimitedSource
from sharding.sources.jsonl import JsonLinesSource
from sharding.sources.parquet import ParquetSource
from sharding.sources.source import Source

FORMATS: dict[str, Source] = {
    "csv": DelimitedSource(","),
    "tsv": DelimitedSource("\t"),
    "jsonl": JsonLinesSource(),
    "parquet": ParquetSource(),
}
SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}


def format_of(path: Path, wanted: str) -> str | None:
    """The format to read a file as; None if neither the setting nor the suffix says."""
    if wanted != "auto":
        return wanted
    found = SUFFIXES.get(format_suffix(path))
    return None if found and not is_text(found) and compression_of(path) else found


def known_suffixes() -> str:
    """All suffixes that say what a file is, for messages."""
    return f"{', '.join(SUFFIXES)}, or one of text with {' or '.join(COMPRESSIONS)} behind it"


def is_text(file_format: str) -> bool:
    """Whether the format has an encoding."""
    return file_format != "parquet"


def is_delimited(file_format: str) -> bool:
    """Whether columns are named by the first line, if it is a header at all."""
    return isinstance(FORMATS[file_format], DelimitedSource)
