"""Partials made in the test: sound ones, and every kind of unsound one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
from hypothesis import strategies as st

from schemas.partials import BlockKey, PartialFile, read_partial, write_partial
from schemas.tables import SKIPPED_STATUSES, STATUS_SCORED, partial_schema

RUN_ID = "r-0123456789abcdef"
KEY = BlockKey("d-0123456789ab-00003", 7)
FEATURES = ["sex", "diagnosis"]
LOSSES = st.floats(0, 1e6) | st.sampled_from([0.0, 5e-324, 1e308])


def row(number: int, *, status: str = STATUS_SCORED, loss_nats: float = 1.5, num_tokens: int = 3) -> dict[str, Any]:
    """One row of a partial."""
    scored = status == STATUS_SCORED
    return {
        "record_id": number.to_bytes(16, "big"),
        "patient_id": None if number % 3 else b"p" * 16,
        "encounter_id": None,
        "status": status,
        "loss_nats": loss_nats if scored else None,
        "check_loss_nats": None,
        "num_tokens": num_tokens if scored else 0,
        "num_words": 2 if scored else 0,
        "num_bytes": 9 if scored else 0,
        "num_windows": 1,
        "precision": "fp32",
        "feature.sex": [None, "F", ""][number % 3],
        "feature.diagnosis": "I00-I99",
    }


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    """A partial's table."""
    return pa.Table.from_pylist(rows, schema=partial_schema(FEATURES))


ROWS = st.lists(
    st.tuples(st.sampled_from([STATUS_SCORED, *SKIPPED_STATUSES]), LOSSES, st.integers(1, 10**9)), max_size=12
).map(
    lambda items: [
        row(number, status=status, loss_nats=loss, num_tokens=tokens)
        for number, (status, loss, tokens) in enumerate(items)
    ]
)
SMALL = [row(0), row(1, status="no_tokens"), row(2, loss_nats=2.25)]


def written(folder: Path, rows: list[dict[str, Any]] = SMALL, key: BlockKey = KEY) -> PartialFile:
    """A published partial."""
    return write_partial(folder, table_of(rows), run_id=RUN_ID, key=key)


def read(partial: PartialFile, *, run_id: str = RUN_ID, features: list[str] = FEATURES) -> pa.Table:
    """Its verified rows."""
    return read_partial(partial, run_id=run_id, features=features)[0]


def forged(folder: Path, content: bytes) -> PartialFile:
    """A file under the name that its own bytes ask for: damage that the digest in the name cannot show."""
    digest = xxhash.xxh3_128_hexdigest(content)
    path = folder / f"{KEY}.{digest}.parquet"
    path.write_bytes(content)
    return PartialFile(key=KEY, path=path, digest=digest)


def unchecked(folder: Path, table: pa.Table) -> PartialFile:
    """A well-labelled and well-sealed partial of any table, as a faulty writer could make it."""
    labels = {b"exactppl.run_id": RUN_ID.encode(), b"exactppl.block": str(KEY).encode()}
    pq.write_table(table.replace_schema_metadata(labels), folder / "unchecked")
    return forged(folder, (folder / "unchecked").read_bytes())
