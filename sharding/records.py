"""From source rows to shard rows: ids become digests, lengths are measured, and what cannot be kept is counted.

A pure function of the row, the key and the settings: whichever worker, block or file a record comes from, its shard row
is the same, byte for byte.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from numpy.typing import NDArray

from schemas.multiset import cells_of, row_digests, string_digests
from schemas.tables import FEATURE_PREFIX, ID_TYPE, shard_schema
from sharding.config import LENGTH_BAND, ShardingSettings
from sharding.identity import ENCOUNTER, ID_BYTES, PATIENT, RECORD, RecordKey
from sharding.placement import NO_TIME
from sharding.resolving import resolve
from sharding.sources.source import WHOLE_ROW

NULL_ID = "null_id"
NULL_TEXT = "null_text"
EMPTY_TEXT = "empty_text"
TOO_LONG = "too_long"
REASONS = (NULL_ID, NULL_TEXT, EMPTY_TEXT, TOO_LONG)

# Rows in a run that is worth a view of its own.
LEAST_RUN = 16

BAND_STARTS = (128, 512, 1024, 4096)
BAND_NAMES = ("0000-0127", "0128-0511", "0512-1023", "1024-4095", "4096+")

_KEY_FIELDS = [
    ("record_id", ID_TYPE),
    ("row_digest", ID_TYPE),
    ("text_hash", pa.uint64()),
    ("stratum", pa.uint64()),
    ("department", pa.uint64()),
    ("estimated_tokens", pa.int64()),
]
_GROUP_FIELDS = [("group", ID_TYPE), ("time", pa.int64())]


@dataclass(frozen=True, slots=True)
class Records:
    """Shard rows in source order, and the rows that are none.

    Attributes:
        table: Of ``shard_schema``.
        codes: Department code of each row, a dictionary of strings.
        rejected: Counts by (department code, reason).
        departments: Name of every department code that occurred.
        times: Microseconds since 1970 UTC of each row, int64; null where unknown.
        unresolved: Values that could not be read, of all records, by role or feature name.
    """

    table: pa.Table
    codes: pa.DictionaryArray
    rejected: Counter[tuple[str, str]]
    departments: dict[str, str | None]
    times: pa.Array
    unresolved: Counter[str]


def to_records(
    rows: pa.Table, key: RecordKey, settings: ShardingSettings, *, ids: pa.FixedSizeBinaryArray | None = None
) -> Records:
    """Make shard rows.

    Args:
        rows: A source's table: one string column per mapped role.
        key: The corpus' key.
        settings: Of the build.
        ids: Record ids that pass 1 has made of the sound rows; those of later rows may follow.
    """
    resolved = resolve(rows, settings)
    names = _encoded(_column(resolved.table, "department"))
    departments = {key.department_code(name): name for name in names.dictionary.to_pylist()}
    codes = pa.DictionaryArray.from_arrays(names.indices, pa.array(departments, pa.string()))
    reasons = _reasons(rows, settings)
    sound, unsound = pa.array(reasons == 0), np.flatnonzero(reasons)
    rejected = Counter(zip(codes.take(pa.array(unsound)).to_pylist(), _names(reasons[unsound]), strict=True))
    num_sound = len(reasons) - len(unsound)
    if ids is None or len(ids) < num_sound:
        ids = _record_ids(_kept(rows, reasons == 0), key, has_id=settings.has_id)
    return Records(
        table=_shard_rows(_kept(resolved.table, reasons == 0), ids.slice(0, num_sound), key, settings=settings),
        codes=codes.filter(sound),
        rejected=rejected,
        departments=departments,
        times=resolved.times.filter(sound),
        unresolved=resolved.unresolved,
    )


def key_schema(settings: ShardingSettings) -> pa.Schema:
    """Of the key tables; ids of groups and times only if they are needed, since there may be 10 million rows."""
    return pa.schema(_KEY_FIELDS if settings.group == "none" else [*_KEY_FIELDS, *_GROUP_FIELDS])


def to_keys(records: Records, settings: ShardingSettings) -> pa.Table:
    """One row of ``key_schema`` per record: all that placing needs, and no text."""
    table = records.table
    features = [_encoded(table.column(name)) for name in table.column_names if name.startswith(FEATURE_PREFIX)]
    numbers = [code_number(code) for code in records.codes.dictionary.to_pylist()]
    texts = string_digests(table.column("text"))
    columns = [
        table.column("record_id"),
        _ids(row_digests(table, {"text": texts}).tobytes()),
        pa.array(np.ascontiguousarray(texts[:, :8]).view("<u8").reshape(-1), pa.uint64()),
        _strata([records.codes, *features]),
        pa.array(numbers, pa.uint64()).take(records.codes.indices),
        table.column("estimated_tokens"),
    ]
    if settings.group != "none":
        # A record that is in no group is one of its own.
        group = pc.coalesce(table.column(f"{settings.group}_id"), table.column("record_id"))
        columns += [group, records.times.fill_null(NO_TIME)]
    return pa.table(columns, schema=key_schema(settings))


@lru_cache(maxsize=1 << 16)
def stratum_hash(case: tuple[str | None, ...]) -> int:
    """xxh3_64 of a department code and case features; length-prefixed, null is not the empty string."""
    parts = [b"\xff" * 8 if part is None else len(part.encode()).to_bytes(8, "little") + part.encode() for part in case]
    return xxhash.xxh3_64_intdigest(b"".join(parts))


def _strata(columns: Sequence[pa.DictionaryArray]) -> pa.Array:
    """``stratum_hash`` of every row, computed once for each case."""
    case_of = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        combined = case_of * len(column.dictionary) + column.indices.to_numpy()
        _, first_rows, case_of = np.unique(combined, return_index=True, return_inverse=True)
    cases = zip(*(_values_at(column, first_rows) for column in columns), strict=True)
    return pa.array(map(stratum_hash, cases), pa.uint64(), size=len(first_rows)).take(pa.array(case_of))


def _values_at(column: pa.DictionaryArray, rows: NDArray[np.int64]) -> list[str | None]:
    names = column.dictionary.to_pylist()
    return [names[index] for index in column.indices.to_numpy()[rows].tolist()]


def code_number(code: str) -> int:
    """A department code as a 48-bit number."""
    return int(code.removeprefix("d-"), 16)


def code_name(number: int) -> str:
    """The inverse of ``code_number``."""
    return f"d-{number:012x}"


def estimate_tokens(num_bytes: NDArray[np.int64], bytes_per_token: float) -> NDArray[np.int64]:
    """Tokens expected in texts of these lengths, rounded up."""
    return np.ceil(num_bytes / bytes_per_token).astype(np.int64)


def _reasons(rows: pa.Table, settings: ShardingSettings) -> NDArray[np.int64]:
    """0 for a sound row, else 1 + the index in ``REASONS`` of the first reason against it."""
    text = rows.column("text")
    lengths = pc.binary_length(text).fill_null(0).to_numpy()
    null_id = _is_null(rows, "id") if settings.has_id else np.zeros(rows.num_rows, dtype=np.bool_)
    null_text = _is_null(rows, "text")
    # White space alone says nothing either; around words it is kept byte for byte.
    empty = (lengths == 0) | pc.utf8_is_space(text).fill_null(False).to_numpy()
    conditions = [null_id, null_text, empty, lengths > settings.max_record_bytes]
    return np.select(conditions, range(1, len(conditions) + 1), default=0)


def _kept(table: pa.Table, is_kept: NDArray[np.bool_]) -> pa.Table:
    """Some rows, as a view: as a rule nearly all are kept, and their text is copied once, later."""
    borders = np.flatnonzero(np.diff(np.concatenate([[False], is_kept, [False]]).astype(np.int8)))
    if len(borders) > len(is_kept) // LEAST_RUN:
        return table.filter(pa.array(is_kept))
    runs = zip(borders[::2].tolist(), borders[1::2].tolist(), strict=True)
    return pa.concat_tables([table.slice(0, 0), *(table.slice(start, stop - start) for start, stop in runs)])


def _shard_rows(rows: pa.Table, ids: pa.Array, key: RecordKey, *, settings: ShardingSettings) -> pa.Table:
    num_bytes = pc.binary_length(rows.column("text")).cast(pa.int64()).to_numpy()
    tokens = estimate_tokens(num_bytes, settings.bytes_per_token)
    bands = pa.array(BAND_NAMES, pa.large_string()).take(pa.array(np.searchsorted(BAND_STARTS, tokens, side="right")))
    columns: dict[str, Any] = {
        "record_id": ids,
        "raw_id": _column(rows, "id"),
        "department": _column(rows, "department"),
        "patient_id": _digests(_column(rows, "patient"), key, PATIENT),
        "encounter_id": _digests(_column(rows, "encounter"), key, ENCOUNTER),
        "text": rows.column("text"),
        "num_bytes": pa.array(num_bytes),
        "estimated_tokens": pa.array(tokens),
        FEATURE_PREFIX + LENGTH_BAND: bands,
    }
    columns |= {name: rows.column(name) for name in rows.column_names if name.startswith(FEATURE_PREFIX)}
    schema = shard_schema(settings.feature_names)
    return pa.table([columns[name] for name in schema.names], schema=schema).combine_chunks()


def _record_ids(rows: pa.Table, key: RecordKey, *, has_id: bool) -> pa.Array:
    """From the source's id; without one from the whole row, so that equal rows have one id."""
    return _ids(b"".join(key.digests(RECORD, cells_of(rows.column("id" if has_id else WHOLE_ROW)))))


def _digests(column: pa.ChunkedArray, key: RecordKey, domain: bytes) -> pa.Array:
    encoded = column.combine_chunks().dictionary_encode()
    distinct = _ids(b"".join(key.digests(domain, cells_of(pa.chunked_array([encoded.dictionary])))))
    return distinct.take(encoded.indices)


def _ids(digests: bytes) -> pa.Array:
    return pa.FixedSizeBinaryArray.from_buffers(ID_TYPE, len(digests) // ID_BYTES, [None, pa.py_buffer(digests)])


def _column(rows: pa.Table, role: str) -> pa.ChunkedArray:
    if role in rows.column_names:
        return rows.column(role)
    return pa.chunked_array([pa.nulls(rows.num_rows, pa.large_string())])


def _encoded(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """With null as one of the values."""
    return column.combine_chunks().dictionary_encode(null_encoding="encode")


def _names(reasons: NDArray[np.int64]) -> list[str]:
    return [REASONS[reason - 1] for reason in reasons.tolist()]


def _is_null(rows: pa.Table, role: str) -> NDArray[np.bool_]:
    column = rows.column(role)
    found: NDArray[np.bool_] = column.is_null().to_numpy()
    return found
