"""What an earlier launch has left: sound partials are verified and kept, broken ones removed and scored again."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from schemas.drift import DriftSums, add_sums, sums_of
from schemas.errors import IntegrityError
from schemas.folders import Build
from schemas.manifests import PARTIALS_FOLDER, STATUS_FOLDER, PartialEntry
from schemas.partials import BlockKey, PartialFile, list_partials, read_partial, skipped_of, tally_of
from schemas.parts import PartTally, merge_parts, part_tallies
from schemas.precision import PrecisionPolicy
from schemas.seals import TEMPORARY_PREFIX, label
from schemas.tables import SKIPPED_STATUSES, content_digest
from schemas.tally import Tally
from scoring.status import status_path

logger = logging.getLogger("scoring.resume")


@dataclass(slots=True)
class RankLedger:
    """What one rank answers for: partials that it wrote, and those of earlier launches that it verified.

    ``drift`` holds the sums of the precision check of ``policy``, by band.
    """

    policy: PrecisionPolicy
    entries: list[PartialEntry] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    drift: dict[int, DriftSums] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SKIPPED_STATUSES, 0))
    parts: dict[str, PartTally] = field(default_factory=dict)

    def include(self, run: Path, partial: PartialFile, *, run_id: str, build: Build, parts: Sequence[str] = ()) -> None:
        """Verify a partial on disk and count it.

        Args:
            run: Run folder.
            partial: The file.
            run_id: Of the run.
            build: What is scored.
            parts: What the run splits losses into.

        Raises:
            IntegrityError: it is not a sound partial of this run.
        """
        table, seal = read_partial(
            partial,
            run_id=run_id,
            features=build.manifest.features,
            parts=parts,
            results_key=build.results_key(partial.key.department),
        )
        drift = sums_of(table, self.policy, label(partial.path))
        entry = PartialEntry(
            shard_id=partial.key.shard_id,
            block=partial.key.block,
            path=partial.path.relative_to(run).as_posix(),
            seal=seal,
            content_digest=content_digest(table),
        )
        self.entries.append(entry)
        self.tally = self.tally.merge(tally_of(table))
        self.drift = add_sums([self.drift, drift])
        self.parts = merge_parts(self.parts, part_tallies(table))
        for status, count in skipped_of(table).items():
            self.skipped[status] += count


def clean_up(run: Path, num_ranks: int) -> None:
    """Remove half-written files, and the status files of other launches; for rank 0 alone."""
    for folder in (run, run / STATUS_FOLDER, *(run / PARTIALS_FOLDER).glob("rank-*")):
        for path in folder.glob(f"{TEMPORARY_PREFIX}*"):
            path.unlink(missing_ok=True)
    for path in (run / STATUS_FOLDER).glob("rank-*.json"):
        if path.name not in {status_path(run, rank).name for rank in range(num_ranks)}:
            path.unlink(missing_ok=True)


def finished_partials(run: Path, expected: Mapping[BlockKey, int]) -> list[PartialFile]:
    """The partials that earlier launches left, one for each block; for rank 0 alone.

    An equal second partial of a block, which two launches at once can leave, is removed.

    Raises:
        IntegrityError: a partial is of no expected block, or two of one block differ.
    """
    found: dict[BlockKey, PartialFile] = {}
    for partial in list_partials(run):
        if partial.key not in expected:
            raise IntegrityError(f"{label(partial.path)}: its block is not part of this run; remove the file")
        first = found.setdefault(partial.key, partial)
        if first is partial:
            continue
        if first.digest != partial.digest:
            raise IntegrityError(
                f"{label(partial.path)}: differs from {label(first.path)}, of the same block; remove both, score again"
            )
        logger.warning("removed a second partial of a block: %s", partial.path)
        partial.path.unlink()
    return list(found.values())


def take_over(
    run: Path,
    partials: Iterable[PartialFile],
    *,
    run_id: str,
    build: Build,
    policy: PrecisionPolicy,
    parts: Sequence[str] = (),
) -> tuple[RankLedger, list[BlockKey]]:
    """Verify a share of the finished partials.

    Returns:
        The ledger of the sound ones, and their blocks. Broken files are removed, so that they are scored again.
    """
    ledger, sound = RankLedger(policy), []
    for partial in partials:
        try:
            ledger.include(run, partial, run_id=run_id, build=build, parts=parts)
        except IntegrityError as error:
            logger.warning("a broken partial will be scored again: %s", partial.path)
            logger.debug("reason: %s", type(error).__name__)
            partial.path.unlink(missing_ok=True)
        else:
            sound.append(partial.key)
    return ledger, sound
