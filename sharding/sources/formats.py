"""Which source reads which file: by its suffix, and by its first line where a suffix is known to say too little."""

from __future__ import annotations

import re
from pathlib import Path

from sharding.sources.compression import COMPRESSIONS, compression_of, format_suffix
from sharding.sources.delimited import DelimitedSource
from sharding.sources.jsonl import JsonLinesSource
from sharding.sources.parquet import ParquetSource
from sharding.sources.source import UTF8_BOM, Source

# A new format is one more line here.
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


def seen_format(file_format: str, head: bytes) -> str:
    """The format of a file by its suffix, once its first bytes have been looked at.

    Vocabularies of OMOP (https://athena.ohdsi.org) come as ``CONCEPT.csv`` with tabs: what is called CSV and has tabs
    and no comma in the line of its column names is TSV.
    """
    first_line = re.split(rb"[\r\n]", head.removeprefix(UTF8_BOM).lstrip(b"\r\n"), maxsplit=1)[0]
    return "tsv" if file_format == "csv" and b"\t" in first_line and b"," not in first_line else file_format


def known_suffixes() -> str:
    """All suffixes that say what a file is, for messages."""
    return f"{', '.join(SUFFIXES)}, or one of text with {' or '.join(COMPRESSIONS)} behind it"


def is_text(file_format: str) -> bool:
    """Whether the format has an encoding."""
    return file_format != "parquet"


def is_delimited(file_format: str) -> bool:
    """Whether columns are named by the first line, if it is a header at all."""
    return isinstance(FORMATS[file_format], DelimitedSource)
