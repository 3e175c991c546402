"""Small builds for tests: rows in, a committed build out, on real Dask workers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.access_options import reader_access
from schemas.folders import Build, open_build
from schemas.shard_files import read_shard
from sharding.build import build_corpus
from sharding.cluster import ClusterOptions
from sharding.config import ShardingSettings
from sharding.preparation import Request

COLUMNS = {"id": "note_id", "text": "note", "department": "dept", "patient": "mrn"}
HEADER = ("note_id", "note", "dept", "mrn")
KEY = "0f" * 32

Row = tuple[str | None, ...]


def some_rows(num_rows: int, *, departments: Sequence[str | None] = ("Cardiology", "Oncology")) -> list[Row]:
    """Synthetic rows of ``HEADER``, all different."""
    return [
        (f"n{number}", f"note {number} " * (number % 40 + 1), departments[number % len(departments)], f"p{number // 3}")
        for number in range(num_rows)
    ]


def csv_bytes(rows: Iterable[Row], header: Sequence[str] = HEADER, *, newline: str = "\n") -> bytes:
    """CSV in which null is an unquoted empty field and every value is quoted."""
    lines = [",".join(header)]
    lines += [",".join("" if cell is None else '"' + cell.replace('"', '""') + '"' for cell in row) for row in rows]
    return (newline.join(lines) + newline).encode()


def write_rows(path: Path, rows: Sequence[Row], header: Sequence[str] = HEADER) -> Path:
    """Write rows in the format of the suffix."""
    if path.suffix == ".csv":
        path.write_bytes(csv_bytes(rows, header))
    elif path.suffix == ".jsonl":
        lines = [json.dumps(dict(zip(header, row, strict=True)), ensure_ascii=False) for row in rows]
        path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    else:
        columns = {name: [row[index] for row in rows] for index, name in enumerate(header)}
        schema = pa.schema([(name, pa.string()) for name in header])
        pq.write_table(pa.table(columns, schema=schema), path, row_group_size=max(1, len(rows) // 3))
    return path


def request(inputs: Sequence[Path], corpus: Path, scheduler: str, **changes: Any) -> Request:
    """A build of ``COLUMNS`` with a fixed key; ``changes`` are settings, or ``block_bytes``."""
    corpus.mkdir(parents=True, exist_ok=True)
    key_path = corpus.parent / "test.key"
    key_path.write_text(KEY)
    block_bytes = changes.pop("block_bytes", 1 << 20)
    values: Mapping[str, Any] = {"columns": COLUMNS, "max_rejects": "100%", **changes}
    return Request(
        inputs=[str(path) for path in inputs],
        corpus=corpus,
        settings=ShardingSettings.model_validate(values),
        cluster=ClusterOptions(scheduler=scheduler),
        key_path=key_path,
        block_bytes=block_bytes,
    )


def build(inputs: Sequence[Path], corpus: Path, scheduler: str, **changes: Any) -> Build:
    """As ``request``, carried out."""
    return build_corpus(request(inputs, corpus, scheduler, **changes))[0]


def opened(path: Path) -> Build:
    """A build with the keys that its corpus has, as a command opens it that is told nothing of keys."""
    return open_build(path, reader_access(path, principal=None, keyring=None, plaintext=False))


def records_of(made: Build) -> list[dict[str, Any]]:
    """All records of a build, by raw id."""
    tables = [read_shard(made, shard) for shard in made.manifest.shards]
    return sorted((row for table in tables for row in table.to_pylist()), key=lambda row: str(row["raw_id"]))
