"""What a worker is told: paths, numbers and settings, and nothing that must not stand in a log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from schemas.access import KeySource
from schemas.seals import Seal
from sharding.config import ShardingSettings
from sharding.inputs import SourceFile
from sharding.scratch import Scratch
from sharding.scratch_documents import DepartmentTable, PlannedShard
from sharding.sources.adapter import NOTES
from sharding.sources.adapters import source_of
from sharding.sources.source import Source, Span

LEAST_SPILLS = 32
MOST_SPILL_BYTES = 128 << 20


@dataclass(frozen=True, slots=True)
class BlockJob:
    """Read one block; ``path`` is the input, or its UTF-8 copy.

    ``settings`` are those of ``told``; ``columns`` is the mapping with which its notes are read; ``lookups`` are the
    names of the family's lookup tables.
    """

    number: int
    file: SourceFile
    path: Path
    span: Span
    settings: ShardingSettings
    key_path: Path
    scratch: Scratch
    columns: Mapping[str, str]
    lookups: Sequence[str] = ()

    def whole_settings(self) -> ShardingSettings:
        """The settings with the table of departments.

        Raises:
            IntegrityError: the table is not in the scratch folder, or damaged.
        """
        table = self.scratch.read_document(self.scratch.departments(), DepartmentTable).code_of
        return self.settings.model_copy(update={"departments": table})

    @property
    def source(self) -> Source:
        """How to read its notes."""
        return source_of(self.file.format, self.settings.source, NOTES)

    @property
    def num_bytes(self) -> int:
        """Its share of the work."""
        return self.span.num_bytes


@dataclass(frozen=True, slots=True)
class SpillJob:
    """Send the records of some blocks to their shards; each block comes with the seal of its assignment."""

    number: int
    blocks: Sequence[tuple[BlockJob, Seal]]

    @property
    def num_bytes(self) -> int:
        """Its share of the work."""
        return sum(block.num_bytes for block, _ in self.blocks)


def spill_jobs(blocks: Sequence[BlockJob], assignments: Sequence[Seal]) -> list[SpillJob]:
    """Give neighbouring blocks one spill file, so that a shard is in a few large parts and not in many small ones.

    It depends on the blocks alone, so that a resumed build finds the files of the one before.
    """
    size = min(max(sum(block.num_bytes for block in blocks) // LEAST_SPILLS, 1), MOST_SPILL_BYTES)
    ends = np.cumsum([block.num_bytes for block in blocks])
    groups = groupby(zip(ends.tolist(), blocks, assignments, strict=True), key=lambda item: (item[0] - 1) // size)
    return [SpillJob(number, [(block, seal) for _, block, seal in group]) for number, (_, group) in enumerate(groups)]


@dataclass(frozen=True, slots=True)
class ShardJob:
    """Write one shard.

    Attributes:
        shard: As planned.
        number: Of the shard in the plan.
        parts: Where its records are in the spill files, as ``sharding.spill.shard_parts`` tells it, uint64 [parts, 4].
        block_tokens: Estimated tokens per block.
        settings: Those of ``told``.
        key_path: Of the corpus' key, by which departments are known.
        scratch: Where the spill files are.
        build: Folder of the build.
        keys: The builder's keyring; None for a build in the clear.
    """

    shard: PlannedShard
    number: int
    parts: NDArray[np.uint64]
    block_tokens: int
    settings: ShardingSettings
    key_path: Path
    scratch: Scratch
    build: Path
    keys: KeySource | None = None

    @property
    def num_bytes(self) -> int:
        """Its share of the work."""
        return self.shard.estimated_tokens


def told(settings: ShardingSettings) -> ShardingSettings:
    """Settings as they may stand in a message to a scheduler: without the names of departments."""
    return settings.model_copy(update={"departments": {}})
