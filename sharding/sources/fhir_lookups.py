"""Tables to look notes up in: one per type of resource of an export, from identifiers to resources, and of files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from schemas.errors import DataError
from schemas.seals import label
from sharding.dates import utc_microseconds
from sharding.sources.fhir_json import resource_of, string
from sharding.sources.fhir_references import resource_key
from sharding.sources.fhir_sides import FIELDS, IDENTIFIERS, PLACE, SIDE_COLUMNS, TARGET, WITHDRAWN
from sharding.sources.fhir_types import BINARY, ENCOUNTER, ORGANIZATION, PATIENT
from sharding.sources.keyed import KEY, find, keyed, latest, values_at
from sharding.sources.opening import opened_text

# Fields of an encounter that refer to another resource, and its type.
REFERENCES = {"organization": ORGANIZATION, "subject": PATIENT}
# What tells which of two resources of one id is the later one, the first that does.
VERSION = ("updated", "version")
# Column that marks a resource of which nobody knows which version is the last, while they say different things.
AMBIGUOUS = "is_ambiguous"
# The files in which binaries stand, and the column with a file's row there.
FILES, FILE = "files", "file"
UNTOLD = -(2**63)
PARSED_AT_ONCE = 1 << 20

_VERSION_NUMBER = re.compile(r"[0-9]{1,18}")


def lookup_tables(sides: Sequence[pa.Table]) -> dict[str, pa.Table]:
    """One searchable table per type of resource, one from identifiers to resources, and one of files.

    Of several versions of a resource the one that was updated last counts, and of those that were updated together, or
    nobody knows when, the one with the greatest version number, then the one whose cells sort last, null first: the
    choice never hangs on a file's name or order. Where it hangs on the cells, the resource is marked. An identifier of
    two resources is none's; one of an encounter that was entered in error is another's, if that one has it too.
    """
    empty = pa.schema([(name, pa.large_string()) for name in SIDE_COLUMNS]).empty_table()
    whole = pa.concat_tables([empty, *sides])
    rows = {kind: _rows_of(whole, kind) for kind in FIELDS}
    identifiers = _unambiguous(_rows_of(whole, IDENTIFIERS), _withdrawn(rows[ENCOUNTER]))
    for name, kind in REFERENCES.items():
        targets = _targets(rows[kind].column(KEY), identifiers)
        rows[ENCOUNTER] = _with_column(rows[ENCOUNTER], name, _resolved(rows[ENCOUNTER].column(name), targets))
    tables = {kind: keyed(_last_versions(rows[kind], kind)) for kind in FIELDS}
    return {**tables, **_with_files(tables[BINARY]), IDENTIFIERS: keyed(identifiers)}


def find_resources(lookups: Mapping[str, pa.Table], kind: str, keys: Sequence[str | None]) -> pa.Array:
    """Row in the table of a type for each reference key, int64, null where the export has no such resource."""
    rows = find(lookups[kind], keys)
    targets = values_at(lookups[IDENTIFIERS], TARGET, find(lookups[IDENTIFIERS], keys)).to_pylist()
    by_identifier = find(lookups[kind], targets)
    rows[rows < 0] = by_identifier[rows < 0]
    return pa.array(rows, mask=rows < 0)


def binary_data(lookups: Mapping[str, pa.Table], rows: pa.Array) -> list[str | None]:
    """The base64 of binaries by their rows, read from where they stand; null for null and for one that holds nothing.

    Raises:
        DataError: the file has changed since its binaries were found.
    """
    found = lookups[BINARY].select([KEY, FILE, *PLACE[1:]]).take(rows).to_pylist()
    data: list[str | None] = [None] * len(found)
    by_file: dict[int, list[int]] = {}
    for index, row in enumerate(found):
        if row[FILE] is not None:
            by_file.setdefault(row[FILE], []).append(index)
    for number, indexes in by_file.items():
        path = Path(unquote(lookups[FILES].column(PLACE[0])[number].as_py(), errors="surrogateescape"))
        with opened_text(path) as file:
            for index in indexes:
                file.seek(int(found[index]["start"]))
                resource = resource_of(file.read(int(found[index]["num_bytes"])))
                if isinstance(resource, str) or resource_key(BINARY, str(resource.get("id"))) != found[index][KEY]:
                    raise DataError(f"{label(path)}: changed while it was read; run again when nobody writes to it")
                data[index] = string(resource, "data")
    return data


def _with_files(binaries: pa.Table) -> dict[str, pa.Table]:
    """The table of binaries with the row of each one's file instead of its path, and the table of these files."""
    paths = pc.unique(binaries.column(PLACE[0])).drop_null().sort()
    numbers = pc.index_in(binaries.column(PLACE[0]), value_set=paths)
    files = pa.table({PLACE[0]: paths})
    return {BINARY: binaries.drop_columns([PLACE[0]]).append_column(FILE, numbers), FILES: files}


def _rows_of(whole: pa.Table, kind: str) -> pa.Table:
    return whole.filter(pc.equal(whole.column("type"), kind))


def _targets(own: pa.ChunkedArray, identifiers: pa.Table) -> pl.DataFrame:
    """Identifier keys of the resources of a type, with their target; a key that is a resource's own is left out."""
    keys = pl.DataFrame({KEY: own}).unique()
    named = pl.DataFrame(identifiers).join(keys, left_on=TARGET, right_on=KEY, how="semi")
    return named.join(keys, on=KEY, how="anti")


def _resolved(references: pa.ChunkedArray, targets: pl.DataFrame) -> pa.Array:
    """References as the keys of the resources that they lead to; one that leads nowhere stays as it is."""
    asked = pl.DataFrame({KEY: references})
    found = asked.join(targets, on=KEY, how="left", maintain_order="left").select(pl.coalesce(TARGET, KEY).alias(KEY))
    return found[KEY].to_arrow(compat_level=pl.CompatLevel.oldest())


def _with_column(rows: pa.Table, name: str, column: pa.Array) -> pa.Table:
    return rows.set_column(rows.column_names.index(name), name, column)


def _withdrawn(encounters: pa.Table) -> pa.Array:
    """Keys of the encounters whose last version says that they were entered in error."""
    once = pc.unique(encounters.filter(pc.is_valid(encounters.column(WITHDRAWN))).column(KEY))
    versions = _ordered(encounters.filter(pc.is_in(encounters.column(KEY), once)))
    last = latest(versions, [*VERSION, WITHDRAWN])
    return last.filter(pc.is_valid(last.column(WITHDRAWN))).column(KEY).combine_chunks()


def _ordered(rows: pa.Table) -> pa.Table:
    """Rows whose columns of ``VERSION`` are numbers."""
    timed = _with_column(rows, "updated", _numbers(rows.column("updated"), utc_microseconds))
    return _with_column(timed, "version", _numbers(rows.column("version"), _version_number))


def _last_versions(rows: pa.Table, kind: str) -> pa.Table:
    ordered = _ordered(rows)
    last = latest(ordered, [*VERSION, *FIELDS[kind]]).select([KEY, *FIELDS[kind]])
    return last.append_column(AMBIGUOUS, pc.is_in(last.column(KEY), _contradicted(ordered, kind)))


def _contradicted(rows: pa.Table, kind: str) -> pa.Array:
    """Keys of which rows that are not known to be older than the last one say different things."""
    said = [name for name in FIELDS[kind] if name not in PLACE]
    repeated = pl.DataFrame(rows.select([KEY, *VERSION, *said])).filter(pl.col(KEY).is_duplicated())
    updated, version = map(pl.col, VERSION)
    last = updated.max()
    last_version = version.filter(updated == last).max()
    is_before = (updated != UNTOLD) & (updated < last.over(KEY))
    is_beside = (updated == UNTOLD) | (updated == last.over(KEY))
    is_older = is_before | (is_beside & (version != UNTOLD) & (version < last_version.over(KEY)))
    differing = repeated.filter(~is_older).select(KEY, *said).unique()
    return differing.filter(pl.col(KEY).is_duplicated())[KEY].to_arrow(compat_level=pl.CompatLevel.oldest())


def _numbers(column: pa.ChunkedArray, number_of: Callable[[str], int | None]) -> pa.Array:
    """A number of each text, int64, ``UNTOLD`` where there is none; a part at a time, since strings take much room."""
    parts = (column.slice(start, PARSED_AT_ONCE).to_pylist() for start in range(0, len(column), PARSED_AT_ONCE))
    numbers = (None if text is None else number_of(text) for part in parts for text in part)
    told = (UNTOLD if number is None else number for number in numbers)
    return pa.array(np.fromiter(told, np.int64, count=len(column)))


def _version_number(text: str) -> int | None:
    """Of a version id that is a number; others have no order."""
    return int(text) if _VERSION_NUMBER.fullmatch(text) else None


def _unambiguous(identifiers: pa.Table, withdrawn: pa.Array) -> pa.Table:
    """Identifier keys with their target, but for those that more than one resource has; what stands goes before."""
    named = identifiers.select([KEY, TARGET]).append_column(WITHDRAWN, pc.is_in(identifiers.column(TARGET), withdrawn))
    standing = pl.DataFrame(named).filter(pl.col(WITHDRAWN) == pl.col(WITHDRAWN).min().over(KEY))
    counted = standing.group_by(KEY).agg(pl.col(TARGET).min(), pl.col(TARGET).n_unique().alias("num_targets"))
    single = counted.filter(pl.col("num_targets") == 1).sort(KEY)
    return single.select(KEY, TARGET).to_arrow(compat_level=pl.CompatLevel.oldest())
