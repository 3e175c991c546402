"""What side files say, made once into tables to look notes up in, which every task maps from the disk.

One task makes them all, so that both passes and every worker see the same; like all scratch files they are sealed, and
a resumed build uses them only if they are intact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pyarrow as pa

from schemas.documents import Document, read_document
from schemas.errors import IntegrityError
from schemas.manifests import SideLedger
from schemas.seals import Seal, check_seal, label
from sharding.inputs import SourceFile
from sharding.scratch import Scratch, write_sealed
from sharding.sources.adapters import ADAPTERS, source_of


class Lookups(Document):
    """The seal of each lookup table, and what became of the rows of each side file, in the order of the job.

    ``places`` is a digest of where the side files lie, since a lookup table may point into them.
    """

    kind = "exactppl.scratch.lookups"

    places: str
    tables: dict[str, Seal]
    sides: list[SideLedger]


@dataclass(frozen=True, slots=True)
class SideFile:
    """A file that says more about notes; ``path`` is the input, or its plain UTF-8 copy."""

    file: SourceFile
    path: Path
    columns: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class LookupJob:
    """Make the lookup tables of a family from its side files."""

    family: str
    sides: Sequence[SideFile]
    scratch: Scratch
    block_bytes: int

    @property
    def num_bytes(self) -> int:
        """Its share of the work."""
        return sum(side.file.num_bytes for side in self.sides)


def make_lookups(job: LookupJob) -> Lookups:
    """Write the lookup tables and their seals, unless an earlier try has."""
    places = sha256("\0".join(str(side.path) for side in job.sides).encode(errors="surrogateescape")).hexdigest()
    finished = _intact(job.scratch, places)
    if finished:
        return finished
    tables, ledgers = _side_tables(job)
    made = ADAPTERS[job.family].lookups(tables)
    seals = {name: _write(job.scratch, name, made[name]) for name in sorted(made)}
    for side in job.sides:
        side.file.check_unchanged()
    lookups = Lookups(places=places, tables=seals, sides=ledgers)
    write_sealed(job.scratch, _index_path(job.scratch), lookups)
    return lookups


def open_lookups(scratch: Scratch, names: Sequence[str]) -> dict[str, pa.Table]:
    """Map lookup tables from the disk; only what is looked at is read.

    Raises:
        IntegrityError: a table cannot be read.
    """
    return {name: _mapped(_table_path(scratch, name)) for name in names}


def _side_tables(job: LookupJob) -> tuple[dict[str, pa.Table], list[SideLedger]]:
    """All rows of the side files of each use, and a ledger of each file; a column that a file lacks is null there."""
    parts: dict[str, list[pa.Table]] = {}
    ledgers = []
    for side in job.sides:
        num_read = 0
        rejected: Counter[str] = Counter()
        source = source_of(side.file.format, job.family, side.file.use)
        nothing = pa.schema([(name, pa.large_string()) for name in side.columns]).empty_table()
        tables = parts.setdefault(side.file.use, [])
        tables.append(nothing)
        for span in source.spans(side.path, job.block_bytes):
            for rows in source.read(side.path, span, columns=side.columns):
                tables.append(rows.table)
                num_read += rows.num_read
                rejected.update(rows.rejected)
        ledgers.append(SideLedger(num_read=num_read, rejected=dict(sorted(rejected.items()))))
    return {use: pa.concat_tables(tables, promote_options="default") for use, tables in parts.items()}, ledgers


def _write(scratch: Scratch, name: str, table: pa.Table) -> Seal:
    def write(file: object) -> None:
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table.combine_chunks())

    return scratch.publish(_table_path(scratch, name), write)


def _mapped(path: Path) -> pa.Table:
    try:
        with pa.memory_map(str(path)) as file:
            return pa.ipc.open_file(file).read_all()
    except (pa.ArrowException, OSError):
        raise IntegrityError(f"{label(path)}: no readable lookup table; run again to make it again") from None


def _intact(scratch: Scratch, places: str) -> Lookups | None:
    try:
        lookups = read_document(_index_path(scratch), Lookups)
        for name, seal in lookups.tables.items():
            check_seal(_table_path(scratch, name), seal)
    except IntegrityError:
        return None
    return lookups if lookups.places == places else None


def _index_path(scratch: Scratch) -> Path:
    return scratch.folder / "lookups.json"


def _table_path(scratch: Scratch, name: str) -> Path:
    return scratch.folder / "lookups" / f"{name}.arrow"
