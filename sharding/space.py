"""What a planned build will take on disk and in memory, and whether the disks have it; said before text is written.

Estimates from the plan, not bounds: text that does not compress takes more. A disk that fills up all the same ends the
build as temporary, and it goes on when there is room.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from schemas.console import notice
from schemas.errors import TemporaryError
from schemas.seals import wrapped_write
from sharding.config import ShardingSettings
from sharding.scratch import Plan, Scratch, Survey

# Ids, lengths, department and a handful of case features.
ROW_BYTES = 192
# English clinical notes take 0.6 of their size in LZ4 and 0.4 in zstd; the rest is room for other text.
SPILL_SHARE = 0.8
SHARD_SHARE = 0.6
# Python with Dask, Arrow and NumPy; the text of a block with its cells, tables and slices; a shard gathered, in order
# and on its way to the disk.
WORKER_BYTES = 250 << 20
READ_COPIES = 6
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


def estimate(plan: Plan, survey: Survey, settings: ShardingSettings) -> Estimate:
    """What the rest of a build will take."""
    sizes = [
        shard.num_records * ROW_BYTES + int(shard.estimated_tokens * settings.bytes_per_token) for shard in plan.shards
    ]
    largest_part = max((block.num_bytes for block in survey.blocks), default=0)
    return Estimate(
        num_blocks=sum(max(1, -(-shard.estimated_tokens // plan.block_tokens)) for shard in plan.shards),
        spill_bytes=int(SPILL_SHARE * sum(sizes)),
        shard_bytes=int(SHARD_SHARE * sum(sizes)),
        worker_bytes=WORKER_BYTES + max(READ_COPIES * largest_part, WRITE_COPIES * max(sizes, default=0)),
    )


def check_space(expected: Estimate, scratch: Scratch, build: Path, *, ignore: bool) -> None:
    """The disks of scratch and corpus have room for what is still to be written.

    Raises:
        TemporaryError: one has not, with the bytes needed and free; only a notice if that is to be ignored.
    """
    still = [
        (scratch.folder, max(0, expected.spill_bytes - _num_bytes(scratch.spill(0).parent)), "scratch"),
        (build, max(0, expected.shard_bytes - _num_bytes(build)), "corpus"),
    ]
    try:
        disks = [folder.stat().st_dev for folder, _, _ in still]
        free = {disk: shutil.disk_usage(folder).free for disk, (folder, _, _) in zip(disks, still, strict=True)}
    except OSError as error:
        raise wrapped_write(build, error) from None
    for disk in dict.fromkeys(disks):
        parts = [part for part, its_disk in zip(still, disks, strict=True) if its_disk == disk]
        needed = sum(num_bytes for _, num_bytes, _ in parts)
        if needed > free[disk]:
            _refuse(" and ".join(name for _, _, name in parts), needed, free[disk], ignore=ignore)


def _refuse(where: str, needed: int, free: int, *, ignore: bool) -> None:
    said = f"{where}: about {needed:,} bytes are needed, {free:,} are free"
    if not ignore:
        raise TemporaryError(
            f"{said}; make room or name another folder with --scratch, or add --ignore-space, then run again to resume"
        )
    notice(f"{said}; going on, since --ignore-space was given")


def _num_bytes(folder: Path) -> int:
    """What a resumed build has there already."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else 0
