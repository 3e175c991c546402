"""What side files say, made once into tables to look notes up in, which every task maps from the disk.

One task makes them all, so that both passes and every worker see the same; like all scratch files they are sealed, and
a resumed build uses them only if they are intact. Side files may be larger than memory: they are read part by part, and
a table is finished and written a share of its keys at a time, unless the family's tables hang on each other's rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import chain
from pathlib import Path

import pyarrow as pa

from schemas.documents import Document
from schemas.errors import IntegrityError
from schemas.ledgers import SideLedger
from schemas.seals import Seal, check_seal, label
from sharding.inputs import SourceFile
from sharding.lookup_rows import RowRuns, RunSizes, remove_stale_runs
from sharding.scratch import LOOKUP_FOLDER, Scratch
from sharding.sources.adapters import ADAPTERS, source_of
from sharding.sources.lookup_plans import LookupPlan
from sharding.sources.opening import opening_through

# Of side files, whose rows are short: their cells take many times as much.
MOST_BLOCK_BYTES = 4 << 20


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
    sizes: RunSizes = field(default_factory=RunSizes)

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
    plan = ADAPTERS[job.family].lookup_plan
    seals, ledgers = _made_by_key(job, plan) if plan else _made_whole(job)
    for side in job.sides:
        side.file.check_unchanged()
    lookups = Lookups(places=places, tables=dict(sorted(seals.items())), sides=ledgers)
    job.scratch.write_document(_index_path(job.scratch), lookups)
    return lookups


def open_lookups(scratch: Scratch, names: Sequence[str]) -> dict[str, pa.Table]:
    """Map lookup tables from the disk; only what is looked at is read.

    Raises:
        IntegrityError: a table cannot be read.
    """
    return {name: _mapped(_table_path(scratch, name)) for name in names}


def _made_by_key(job: LookupJob, plan: LookupPlan) -> tuple[dict[str, Seal], list[SideLedger]]:
    """The tables of a plan; memory holds a part of a side file, or a share of a table."""
    remove_stale_runs(job.scratch)
    seals: dict[str, Seal] = {}
    made: dict[str, pa.Table] = {}
    with ExitStack() as stack:
        runs = [
            stack.enter_context(RowRuns(job.scratch, kind.name, empty=plan.no_rows(kind), sizes=job.sizes))
            for kind in plan.kinds
        ]

        def tell(use: str, table: pa.Table) -> None:
            cells = plan.cells_of(use, table)
            for kind, told in zip(plan.kinds, runs, strict=True):
                if use in kind.uses:
                    told.add(kind.rows_of(cells))

        ledgers = [_read(job, side, tell) for side in job.sides]
        for kind, told in zip(plan.kinds, runs, strict=True):
            tables = (kind.table_of(share, made) for share in told.shares())
            seals[kind.name] = _write(job.scratch, kind.name, tables)
            made[kind.name] = _mapped(_table_path(job.scratch, kind.name))
    return seals, ledgers


def _made_whole(job: LookupJob) -> tuple[dict[str, Seal], list[SideLedger]]:
    """The tables of a family that makes them all at once; a column that a file lacks is null there."""
    parts: dict[str, list[pa.Table]] = {}
    for side in job.sides:
        nothing = pa.schema([(name, pa.large_string()) for name in side.columns]).empty_table()
        parts.setdefault(side.file.use, []).append(nothing)
    ledgers = [_read(job, side, lambda use, table: parts[use].append(table)) for side in job.sides]
    sides = {use: pa.concat_tables(tables, promote_options="default") for use, tables in parts.items()}
    made = ADAPTERS[job.family].lookups(sides)
    return {name: _write(job.scratch, name, [made[name]]) for name in sorted(made)}, ledgers


def _read(job: LookupJob, side: SideFile, take: Callable[[str, pa.Table], None]) -> SideLedger:
    """Hand over all rows of a side file, part by part, with what it is for."""
    num_read = 0
    rejected: Counter[str] = Counter()
    source = source_of(side.file.format, job.family, side.file.use)
    with opening_through(job.scratch.opened):
        for span in source.spans(side.path, min(job.block_bytes, MOST_BLOCK_BYTES)):
            for rows in source.read(side.path, span, columns=side.columns):
                take(side.file.use, rows.table)
                num_read += rows.num_read
                rejected.update(rows.rejected)
    return SideLedger(num_read=num_read, rejected=dict(sorted(rejected.items())))


def _write(scratch: Scratch, name: str, tables: Iterable[pa.Table]) -> Seal:
    """One record batch for each table, so that what is not asked for need not be put together; at least one."""

    def write(file: object) -> None:
        parts = iter(tables)
        first = next(parts)
        with pa.ipc.new_file(file, first.schema) as writer:
            for part in chain([first], parts):
                writer.write_table(part.combine_chunks())

    return scratch.publish(_table_path(scratch, name), write)


def _mapped(path: Path) -> pa.Table:
    try:
        with pa.memory_map(str(path)) as file:
            return pa.ipc.open_file(file).read_all()
    except (pa.ArrowException, OSError):
        raise IntegrityError(f"{label(path)}: no readable lookup table; run again to make it again") from None


def _intact(scratch: Scratch, places: str) -> Lookups | None:
    try:
        lookups = scratch.read_document(_index_path(scratch), Lookups)
        for name, seal in lookups.tables.items():
            check_seal(_table_path(scratch, name), seal)
    except IntegrityError:
        return None
    return lookups if lookups.places == places else None


def _index_path(scratch: Scratch) -> Path:
    return scratch.folder / "lookups.json"


def _table_path(scratch: Scratch, name: str) -> Path:
    return scratch.folder / LOOKUP_FOLDER / f"{name}.arrow"
