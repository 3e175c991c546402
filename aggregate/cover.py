"""Exact cover: every block of the build was scored once, every record is scored or listed with a reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from schemas.errors import IntegrityError
from schemas.manifests import BuildManifest, PartialEntry
from schemas.partials import BlockKey, PartialFile

MAX_NAMED = 3


def expected_blocks(manifest: BuildManifest, limited_to: int | None) -> list[BlockKey]:
    """The blocks a run must have scored, ordered; a limited run takes the first ``limited_to`` of them."""
    blocks = [BlockKey(shard.shard_id, block) for shard in manifest.shards for block in range(len(shard.blocks))]
    return sorted(blocks)[:limited_to]


def require_exact_cover(expected: Iterable[BlockKey], scored: Iterable[BlockKey], *, where: str) -> None:
    """Every block of the manifest was scored exactly once, and nothing else was.

    Raises:
        IntegrityError: counts the missing, unknown and repeated blocks and names some.
    """
    wanted, found = set(expected), Counter(scored)
    missing, unknown = wanted - found.keys(), found.keys() - wanted
    repeated = {key for key, times in found.items() if times > 1}
    if missing or unknown or repeated:
        named = ", ".join(map(str, sorted(missing | unknown | repeated)[:MAX_NAMED]))
        raise IntegrityError(
            f"{where}: partials do not cover the build: {len(missing)} missing, {len(unknown)} unknown, "
            f"{len(repeated)} repeated ({named}); run scoring again to fill the gaps, or name one run only"
        )


def match_files(entries: Iterable[PartialEntry], files: Iterable[PartialFile], *, where: str) -> dict[str, PartialFile]:
    """The partials on the disk by their path in the run, exactly those that are listed.

    Raises:
        IntegrityError: names a partial that is listed and absent, or present and not listed.
    """
    present = {"/".join(file.path.parts[-3:]): file for file in files}
    listed = {entry.path for entry in entries}
    if absent := sorted(listed - present.keys()):
        raise IntegrityError(
            f"{absent[0]}: no such file, {where} lists it ({len(absent)} absent); restore it or score again"
        )
    if unlisted := sorted(present.keys() - listed):
        raise IntegrityError(f"{unlisted[0]}: not listed in {where} ({len(unlisted)} such files); remove it")
    return present
