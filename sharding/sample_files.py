"""Synthetic notes as a CSV, JSON Lines or Parquet file, written in parts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.errors import UsageError
from schemas.seals import Seal, label, publish_with
from sharding.sample import COLUMNS, Note, sample_notes

ROWS_PER_PART = 5_000

Writer = Callable[[BinaryIO, Iterator[list[Note]]], None]


def write_sample(path: Path, *, num_records: int, num_departments: int, seed: int) -> Seal:
    """Write notes to a file whose suffix names the format; equal arguments give an equal file.

    Raises:
        UsageError: the suffix is of no format that can be written.
        IntegrityError: the file exists with another content.
    """
    write = WRITERS.get(path.suffix.lower())
    if write is None:
        raise UsageError(f"{label(path)}: no known suffix; name a file that ends in {', '.join(WRITERS)}")
    notes = sample_notes(num_records, num_departments, seed=seed)
    parts = iter(lambda: list(islice(notes, ROWS_PER_PART)), [])
    return publish_with(path, lambda file: write(file, parts))


def _write_csv(file: BinaryIO, parts: Iterator[list[Note]]) -> None:
    """Null is an empty field; everything else is quoted."""
    file.write((",".join(COLUMNS) + "\r\n").encode())
    for part in parts:
        for note in part:
            cells = ("" if cell is None else '"' + cell.replace('"', '""') + '"' for cell in note.as_row().values())
            file.write((",".join(cells) + "\r\n").encode())


def _write_jsonl(file: BinaryIO, parts: Iterator[list[Note]]) -> None:
    for part in parts:
        for note in part:
            file.write(json.dumps(note.as_row(), ensure_ascii=False).encode() + b"\n")


def _write_parquet(file: BinaryIO, parts: Iterator[list[Note]]) -> None:
    schema = pa.schema([(name, pa.large_string()) for name in COLUMNS])
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for part in parts:
            writer.write_table(pa.Table.from_pylist([note.as_row() for note in part], schema=schema))


WRITERS: dict[str, Writer] = {".csv": _write_csv, ".jsonl": _write_jsonl, ".parquet": _write_parquet}
