"""From the cut of the inputs to what each task is told: its block, how notes are read, what they are looked up in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from schemas.console import notice
from sharding.cluster import Cluster
from sharding.jobs import BlockJob
from sharding.lookups import LookupJob, Lookups, SideFile, make_lookups
from sharding.preparation import Prepared, Request
from sharding.scratch import Survey
from sharding.sources.adapters import ADAPTERS
from sharding.sources.source import Span


def ready_blocks(request: Request, prepared: Prepared, survey: Survey, *, cluster: Cluster) -> list[BlockJob]:
    """The jobs of all blocks, once the lookup tables that they need are there."""
    if prepared.recognised.settings.source not in ADAPTERS:
        return block_jobs(prepared, survey)
    lookups = _lookups(request, prepared, survey, cluster=cluster)
    if lookups.rejected:
        said = ", ".join(f"{count} {reason}" for reason, count in lookups.rejected.items())
        notice(f"inputs: rows of side files that cannot be read and say nothing: {said}")
    return block_jobs(prepared, survey, lookups=sorted(lookups.tables))


def block_jobs(prepared: Prepared, survey: Survey, *, lookups: Sequence[str] = ()) -> list[BlockJob]:
    """What the tasks are told; ``lookups`` names the lookup tables."""
    return [
        BlockJob(
            number=number,
            file=prepared.sealed[block.file].file,
            path=_plain_path(prepared, survey, block.file),
            span=Span(block.start, block.stop, block.num_bytes),
            settings=prepared.recognised.settings,
            key_path=prepared.key_path,
            scratch=prepared.scratch,
            columns=prepared.recognised.note_columns[prepared.sealed[block.file].file.path],
            lookups=lookups,
        )
        for number, block in enumerate(survey.blocks)
    ]


def _lookups(request: Request, prepared: Prepared, survey: Survey, *, cluster: Cluster) -> Lookups:
    """Make the lookup tables of a family of files, unless they are there."""
    recognised = prepared.recognised
    sides = [
        SideFile(item.file, _plain_path(prepared, survey, number), recognised.side_columns[item.file.path])
        for number, item in enumerate(prepared.sealed)
        if item.file.path in recognised.side_columns
    ]
    job = LookupJob(recognised.settings.source, sides, prepared.scratch, request.block_bytes)
    return cluster.run(make_lookups, [job], title="lookups", unit="bytes")[0]


def _plain_path(prepared: Prepared, survey: Survey, number: int) -> Path:
    """An input, or its plain UTF-8 copy."""
    is_copied = survey.files[number].utf8 is not None
    return prepared.scratch.utf8(number) if is_copied else prepared.sealed[number].file.path
