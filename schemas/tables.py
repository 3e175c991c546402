"""Arrow schemas of every table that crosses a stage border, and digests of their rows.

Columns carry their unit in the field metadata. Case features are columns named ``feature.NAME``; which there are is
said by the build manifest, so a schema is made for a list of feature names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from schemas.errors import IntegrityError
from schemas.parts import loss_column, tokens_column

SCHEMA_VERSION = 1
FEATURE_PREFIX = "feature."
JOINED_BYTES = 1 << 14
ID_TYPE = pa.binary(16)
CARRIED_IDS = ("record_id", "patient_id", "encounter_id")

STATUS_SCORED = "scored"
STATUS_NO_TOKENS = "no_tokens"
STATUS_NO_SCORED_TOKENS = "no_scored_tokens"
STATUS_NON_FINITE = "non_finite_loss"
SKIPPED_STATUSES = (STATUS_NO_TOKENS, STATUS_NO_SCORED_TOKENS, STATUS_NON_FINITE)


def shard_schema(features: Sequence[str]) -> pa.Schema:
    """One row per record of one department; sorted by placement hash; one row group per block."""
    return _schema(
        [
            _field("record_id", ID_TYPE, "keyed BLAKE2b-128 digest of the raw id"),
            _field("raw_id", pa.large_string(), "the source's own id; null where the source has none", nullable=True),
            _field("department", pa.large_string(), "the source's own name", nullable=True),
            _field("patient_id", ID_TYPE, "keyed BLAKE2b-128 digest; null where unknown", nullable=True),
            _field("encounter_id", ID_TYPE, "keyed BLAKE2b-128 digest; null where unknown", nullable=True),
            _field("text", pa.large_string(), "the note, byte for byte"),
            _field("num_bytes", pa.int64(), "UTF-8 bytes of text"),
            _field("estimated_tokens", pa.int64(), "tokens expected from num_bytes"),
            *_feature_fields(features),
        ]
    )


def partial_schema(features: Sequence[str], parts: Sequence[str] = ()) -> pa.Schema:
    """One row per record of one block, in the block's order; every record of the block is present.

    Args:
        features: Case features of the build.
        parts: What the run splits losses into, see ``schemas.parts``.
    """
    return _schema(
        [
            _field("record_id", ID_TYPE, "as in the shard"),
            _field("patient_id", ID_TYPE, "as in the shard", nullable=True),
            _field("encounter_id", ID_TYPE, "as in the shard", nullable=True),
            _field("status", pa.string(), "scored, or the reason why not"),
            _field("loss_nats", pa.float64(), "nats; sum over the record's tokens; null unless scored", nullable=True),
            _field("check_loss_nats", pa.float64(), "nats; the same in fp32, if that was checked", nullable=True),
            _field("num_tokens", pa.int64(), "scored tokens; 0 unless scored"),
            _field("num_words", pa.int64(), "words of the scored text; 0 unless scored"),
            _field("num_bytes", pa.int64(), "UTF-8 bytes of the scored text; 0 unless scored"),
            _field("num_windows", pa.int64(), "forward-pass rows the record took"),
            _field("precision", pa.string(), "compute precision of the record"),
            *_part_fields(parts),
            *_feature_fields(features),
        ]
    )


def carried_columns(features: Sequence[str]) -> list[str]:
    """Columns that go from a shard into the partials of its blocks as they are."""
    return [*CARRIED_IDS, *(FEATURE_PREFIX + name for name in features)]


def feature_columns(schema: pa.Schema) -> list[str]:
    """Names of the case features of a table, without their prefix."""
    return [name.removeprefix(FEATURE_PREFIX) for name in schema.names if name.startswith(FEATURE_PREFIX)]


def check(table: pa.Table | pa.RecordBatch, schema: pa.Schema, where: str) -> None:
    """The table has exactly this schema and no null where none is allowed.

    Raises:
        IntegrityError: names the columns that differ, never a value.
    """
    if not table.schema.equals(schema, check_metadata=False):
        found = {item.name: str(item.type) for item in table.schema}
        wanted = {item.name: str(item.type) for item in schema}
        names = sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
        raise IntegrityError(f"{where}: columns differ from schema {SCHEMA_VERSION}: {', '.join(names) or 'order'}")
    holes = [item.name for item in schema if not item.nullable and table.column(item.name).null_count]
    if holes:
        raise IntegrityError(f"{where}: null values in {', '.join(holes)}")


def schema_fingerprint(schema: pa.Schema) -> str:
    """Hex SHA-256 of the schema's names, types and nullability."""
    lines = [f"{item.name}\x1f{item.type}\x1f{int(item.nullable)}\n" for item in schema]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def content_digest(table: pa.Table) -> str:
    """Hex SHA-256 of the rows in order, whatever the chunks, buffers' offsets, encodings or file format.

    Each column contributes its name and type, its validity as one byte a row, then its values: for variable-length
    types the int64 lengths and the joined bytes, else the raw little-endian values with nulls as zero.
    """
    return content_digests(table, [table.num_rows])[0]


def content_digests(table: pa.Table, counts: Sequence[int]) -> list[str]:
    """``content_digest`` of consecutive parts of a table.

    Args:
        table: All parts, one after the other.
        counts: Rows of each part.
    """
    columns = [(f"{item.name}\x1f{item.type}\n".encode(), _parts(table.column(item.name))) for item in table.schema]
    digests, start = [], 0
    for count in counts:
        digest = hashlib.sha256(count.to_bytes(8, "little"))
        for head, parts in columns:
            message: list[bytes | memoryview] = [head]
            for values, offsets in parts:
                first, last = (int(offsets[start]), int(offsets[start + count])) if count else (0, 0)
                message += [(last - first).to_bytes(8, "little"), values[first:last]]
            # At once, but for the large ones, which need not be copied.
            for piece in [b"".join(message)] if sum(map(len, message)) < JOINED_BYTES else message:
                digest.update(piece)
        digests.append(digest.hexdigest())
        start += count
    return digests


def _parts(column: pa.ChunkedArray) -> list[tuple[memoryview, NDArray[np.int64]]]:
    """What a column contributes: bytes, and where in them those of each row begin and end."""
    valid = _fixed(column.is_valid().cast(pa.uint8()), 1)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())  # booleans are bits in memory, and our slices are bytes
    if pa.types.is_fixed_size_binary(column.type):
        return [valid, _fixed(_filled(column, bytes(column.type.byte_width)), column.type.byte_width)]
    if pa.types.is_primitive(column.type):
        return [valid, _fixed(_filled(column, 0), column.type.bit_width // 8)]
    binary = column.cast(pa.large_binary())
    lengths = _fixed(_filled(pc.binary_length(binary), 0), 8)
    array = _single(_filled(binary, b""))
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int64)[array.offset : array.offset + len(array) + 1]
    return [valid, lengths, (_bytes_of(array.buffers()[2]), offsets)]


def _filled(column: pa.ChunkedArray, value: object) -> pa.ChunkedArray:
    return column.fill_null(pa.scalar(value, column.type)) if column.null_count else column


def _single(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _fixed(column: pa.ChunkedArray, width: int) -> tuple[memoryview, NDArray[np.int64]]:
    array = _single(column)
    return _bytes_of(array.buffers()[1]), (array.offset + np.arange(len(array) + 1)) * width


def _bytes_of(buffer: pa.Buffer | None) -> memoryview:
    return memoryview(b"") if buffer is None else memoryview(buffer).cast("B")


def _feature_fields(features: Sequence[str]) -> list[pa.Field]:
    return [_field(FEATURE_PREFIX + name, pa.large_string(), "case feature", nullable=True) for name in features]


def _part_fields(parts: Sequence[str]) -> list[pa.Field]:
    fields = []
    for part in parts:
        fields += [
            _field(loss_column(part), pa.float64(), "nats; share of loss_nats; null unless scored", nullable=True),
            _field(tokens_column(part), pa.int64(), "share of num_tokens; 0 unless scored"),
        ]
    return fields


def _field(name: str, kind: pa.DataType, meaning: str, *, nullable: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=nullable, metadata={"meaning": meaning})


def _schema(fields: list[pa.Field]) -> pa.Schema:
    return pa.schema(fields, metadata={"exactppl.schema_version": str(SCHEMA_VERSION)})
