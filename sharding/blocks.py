"""From the cut of the inputs to what each task is told: its block, how notes are read, what they are looked up in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from schemas.console import notice
from sharding.cluster import Cluster
from sharding.jobs import BlockJob, told
from sharding.lookups import LookupJob, SideFile, make_lookups
from sharding.preparation import Prepared, Request
from sharding.scratch_documents import DepartmentTable, Survey
from sharding.side_rows import SideRows, said_of, whole_of
from sharding.sources.adapters import ADAPTERS
from sharding.sources.source import Span


@dataclass(frozen=True, slots=True)
class ReadyBlocks:
    """The jobs of all blocks, and what became of the rows of each side file."""

    jobs: list[BlockJob]
    sides: list[SideRows]


def ready_blocks(request: Request, prepared: Prepared, survey: Survey, *, cluster: Cluster) -> ReadyBlocks:
    """What pass 1 needs, once the lookup tables are there."""
    if prepared.recognised.settings.source not in ADAPTERS:
        return ReadyBlocks(block_jobs(prepared, survey), [])
    files = _side_files(prepared, survey)
    job = LookupJob(prepared.recognised.settings.source, files, prepared.scratch, request.block_bytes)
    lookups = cluster.run(make_lookups, [job], title="lookups", unit="bytes")[0]
    sides = [SideRows(side.file.path, ledger) for side, ledger in zip(files, lookups.sides, strict=True)]
    whole = whole_of(sides)
    if whole.rejected:
        notice(f"inputs: rows of side files that cannot be read and say nothing: {said_of(whole)}")
    return ReadyBlocks(block_jobs(prepared, survey, lookups=sorted(lookups.tables)), sides)


def block_jobs(prepared: Prepared, survey: Survey, *, lookups: Sequence[str] = ()) -> list[BlockJob]:
    """What the tasks are told, and the table of departments where they find it; ``lookups`` names the lookup tables."""
    settings = prepared.recognised.settings
    table = DepartmentTable(code_of=settings.departments)
    prepared.scratch.write_document(prepared.scratch.departments(), table)
    return [
        BlockJob(
            number=number,
            file=prepared.sealed[block.file].file,
            path=_plain_path(prepared, survey, block.file),
            span=Span(block.start, block.stop, block.num_bytes),
            settings=told(settings),
            key_path=prepared.key_path,
            scratch=prepared.scratch,
            columns=prepared.recognised.note_columns[prepared.sealed[block.file].file.path],
            lookups=lookups,
        )
        for number, block in enumerate(survey.blocks)
    ]


def _side_files(prepared: Prepared, survey: Survey) -> list[SideFile]:
    """The side files of a family."""
    recognised = prepared.recognised
    return [
        SideFile(item.file, _plain_path(prepared, survey, number), recognised.side_columns[item.file.path])
        for number, item in enumerate(prepared.sealed)
        if item.file.path in recognised.side_columns
    ]


def _plain_path(prepared: Prepared, survey: Survey, number: int) -> Path:
    """An input, or its plain UTF-8 copy."""
    is_copied = survey.files[number].utf8 is not None
    return prepared.scratch.utf8(number) if is_copied else prepared.sealed[number].file.path
