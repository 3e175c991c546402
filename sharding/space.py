"""What a planned build will take on disk and in memory, and whether the disks have it: asked before it is written.

Twice: before anything is read by the inputs alone (``bounds``), when a disk is refused only if it is certainly too
small, and named if it may be; and after pass 1 by the plan, when it is refused. The plan knows how many records there
are and how long, but not how well they compress. A disk that fills up all the same ends the build as temporary, and it
goes on when there is room.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from schemas.console import notice
from schemas.errors import TemporaryError
from schemas.seals import wrapped_write
from sharding.bounds import PLAIN_PER_COMPRESSED, ROW_BYTES, SHARD_SHARE, SPILL_SHARE, WORKER_BYTES, Bound
from sharding.config import ShardingSettings
from sharding.folders import num_bytes
from sharding.scratch import Scratch
from sharding.scratch_documents import Plan, Survey
from sharding.spill import PART_BYTES

# The text of a block with its cells, tables and slices, and what is held of each record beside its text (measured with
# records of 45 bytes: 430 bytes); records that are being sorted by shard; a shard gathered, in order and on its way to
# the disk.
READ_COPIES = 6
READ_ROW_BYTES = 512
SORT_COPIES = 3
WRITE_COPIES = 4


@dataclass(frozen=True, slots=True)
class Estimate:
    """Expected sizes, in bytes.

    Attributes:
        num_blocks: Row groups of all shards.
        spill_bytes: Scratch files of pass 2.
        shard_bytes: The finished shards.
        worker_bytes: Peak memory of one worker with one thread.
    """

    num_blocks: int
    spill_bytes: int
    shard_bytes: int
    worker_bytes: int


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes still to be written into a folder, which messages call by ``name``."""

    name: str
    folder: Path
    num_bytes: int


def estimate(plan: Plan, survey: Survey, settings: ShardingSettings) -> Estimate:
    """What the rest of a build will take."""
    sizes = [
        shard.num_records * ROW_BYTES + int(shard.estimated_tokens * settings.bytes_per_token) for shard in plan.shards
    ]
    spilling = _reading_bytes(plan, survey) + SORT_COPIES * min(PART_BYTES, sum(sizes))
    return Estimate(
        num_blocks=sum(max(1, -(-shard.estimated_tokens // plan.block_tokens)) for shard in plan.shards),
        spill_bytes=int(SPILL_SHARE * sum(sizes)),
        shard_bytes=int(SHARD_SHARE * sum(sizes)),
        worker_bytes=WORKER_BYTES + max(spilling, WRITE_COPIES * max(sizes, default=0)),
    )


def check_space(expected: Estimate, scratch: Scratch, build: Path, *, ignore: bool) -> None:
    """The disks of scratch and corpus have room for what is still to be written.

    Raises:
        TemporaryError: one has not, with the bytes needed and free; only a notice if that is to be ignored.
    """
    spill_bytes = expected.spill_bytes - num_bytes(scratch.spill(0).parent)
    check_room(
        [Need("scratch", scratch.folder, spill_bytes), Need("corpus", build, expected.shard_bytes - num_bytes(build))],
        words="about {needed:,} bytes are needed",
        ignore=ignore,
    )


def needs_of_plan(most: Bound, scratch: Scratch) -> list[Need]:
    """What pass 1 may write, at most."""
    return [Need("scratch", scratch.folder, most.scan_bytes - sum(map(num_bytes, scratch.subfolders())))]


def needs_of_build(most: Bound, scratch: Scratch, build: Path) -> list[Need]:
    """What a whole build may write, at most."""
    return [
        Need("scratch", scratch.folder, most.scratch_bytes - sum(map(num_bytes, scratch.subfolders()))),
        Need("corpus", build, most.shard_bytes - num_bytes(build)),
    ]


def check_bound(most: Bound, needs: Sequence[Need], scratch: Scratch, *, ignore: bool) -> None:
    """As ``check_space``, before anything is read; not of a build whose plan is there, since that has better figures.

    A disk that may be too small for ``needs`` is only named.

    Raises:
        TemporaryError: the disk of scratch is certainly too small; only a notice if that is to be ignored.
    """
    if scratch.plan().exists():
        return
    copy_bytes = most.least_copy_bytes - num_bytes(scratch.utf8(0).parent)
    words = "at least {needed:,} bytes are needed for plain UTF-8 copies of the inputs"
    check_room([Need("scratch", scratch.folder, copy_bytes)], words=words, ignore=ignore)
    factor = f" (compressed ones taken for {PLAIN_PER_COMPRESSED} times as large)" if most.num_compressed else ""
    for where, needed, free in _shortages(needs):
        notice(
            f"{where}: up to {needed:,} bytes may be needed, by the inputs{factor}, {free:,} are free; it may be far "
            "less, so going on; it is asked again when all records are known"
        )


def check_room(needs: Sequence[Need], *, words: str, ignore: bool) -> None:
    """Each disk has room for all that is to be written to it; ``words`` say how much that is.

    Raises:
        TemporaryError: one has not; only a notice if that is to be ignored.
    """
    for where, needed, free in _shortages(needs):
        _refuse(f"{where}: {words.format(needed=needed)}, {free:,} are free", ignore=ignore)


def _shortages(needs: Sequence[Need]) -> Iterator[tuple[str, int, int]]:
    """What is to be written to a disk that is too small, the bytes needed, and the bytes free."""
    try:
        disks = [need.folder.stat().st_dev for need in needs]
        free = {disk: shutil.disk_usage(need.folder).free for disk, need in zip(disks, needs, strict=True)}
    except OSError as error:
        raise wrapped_write(needs[-1].folder, error) from None
    for disk in dict.fromkeys(disks):
        parts = [need for need, its_disk in zip(needs, disks, strict=True) if its_disk == disk]
        needed = sum(max(0, need.num_bytes) for need in parts)
        if needed > free[disk]:
            yield " and ".join(need.name for need in parts), needed, free[disk]


def _reading_bytes(plan: Plan, survey: Survey) -> int:
    """Of the block that takes most; records are as many in each block of a file, by its bytes."""
    file_bytes: Counter[int] = Counter()
    for block in survey.blocks:
        file_bytes[block.file] += block.num_bytes
    return max(
        (
            READ_COPIES * block.num_bytes
            + READ_ROW_BYTES * plan.num_read[block.file] * block.num_bytes // max(1, file_bytes[block.file])
            for block in survey.blocks
        ),
        default=0,
    )


def _refuse(said: str, *, ignore: bool) -> None:
    if not ignore:
        raise TemporaryError(
            f"{said}; make room or name another folder with --scratch, or add --ignore-space, then run again to resume"
        )
    notice(f"{said}; going on, since --ignore-space was given")
