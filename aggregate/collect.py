"""Everything a report may count on: all checks of a build and its run, and the records that they leave.

Nothing is returned unless every check passed, so no figure can be made of half a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from aggregate.blocks import read_sealed_partial, require_same_records
from aggregate.cover import expected_blocks, match_files, require_exact_cover
from aggregate.drift import checked_patients, count_patients, policy_of_run, verified_drift
from aggregate.records import as_records, no_records
from aggregate.runs import DOCUMENTS, Run, check_entries, check_statuses, require_build
from schemas.audit_logs import require_heads
from schemas.drift import BandDrift, DriftSums, sums_of
from schemas.errors import IntegrityError
from schemas.folders import Build
from schemas.manifests import PartialEntry
from schemas.partials import BlockKey, PartialFile, list_partials, skipped_of, tally_of
from schemas.parts import PartTally, merge_parts, part_tallies
from schemas.seals import label
from schemas.tables import STATUS_SCORED
from schemas.tally import ExactSum, Tally, pool
from schemas.totals import RunTotals, part_totals
from schemas.verification import verify_build

TOTALS = ("loss_nats", "num_tokens", "num_words", "num_bytes", "num_records", "skipped")


@dataclass(frozen=True, slots=True)
class Collected:
    """Verified records and what was checked on the way.

    Attributes:
        records: One row per record, see ``aggregate.records``.
        total: Exact tally of all scored records.
        skipped: Records that were not scored, by every known reason.
        precisions: Scored records by the precision of their computation.
        drift: Of every band whose precision was checked.
        num_checked_patients: Known patients of the records behind it, by band.
        parts: Exact tally of each part that the run splits losses into.
        checks: What was checked and how many of it; the same for any layout of the run over ranks.
        layout_checks: The same for what depends on the ranks.
    """

    records: pl.DataFrame
    total: Tally
    skipped: dict[str, int]
    precisions: dict[str, int]
    drift: list[BandDrift]
    num_checked_patients: dict[int, int]
    parts: dict[str, PartTally]
    checks: dict[str, int]
    layout_checks: dict[str, int]


@dataclass(frozen=True, slots=True)
class Block:
    """One verified block, reduced to what the figures need."""

    records: pl.DataFrame
    tally: Tally
    skipped: dict[str, int]
    precisions: dict[str, int]
    drift: dict[int, DriftSums]
    checked_patients: dict[int, frozenset[bytes]]
    parts: dict[str, PartTally]


@dataclass(frozen=True, slots=True)
class Claim:
    """A partial that is listed and present, not yet read."""

    key: BlockKey
    entry: PartialEntry
    file: PartialFile


def collect(build: Build, run: Run, *, advance: Callable[[], None] = lambda: None) -> Collected:
    """Verify a build and its run, and gather the records.

    Args:
        build: From ``schemas.folders.open_build``.
        run: From ``aggregate.runs.open_run``.
        advance: Called after each block.

    Raises:
        IntegrityError: names the file that is damaged, absent, unlisted or foreign, or the sum that does not balance.
    """
    require_build(run, build.manifest)
    checks = {f"build: {name} as sealed": count for name, count in verify_build(build, deep=False).items()}
    check_entries(run)
    num_ranks = check_statuses(run)
    num_logs = require_heads(run.folder, run.manifest.audit)
    claims = claimed_blocks(build, run)
    blocks = []
    for block in verified_blocks(build, run, claims):
        blocks.append(block)
        advance()
    total, skipped = pool(block.tally for block in blocks), add_counts(block.skipped for block in blocks)
    num_expected = require_every_record(build, claims, total.num_records + sum(skipped.values()), where=run.where)
    parts: dict[str, PartTally] = {}
    for block in blocks:
        parts = merge_parts(parts, block.parts)
    require_equal_totals(run.manifest.totals, total, skipped, where=run.where)
    require_equal_parts(run.manifest.totals, parts, where=run.where)
    checks["run: documents with their seal"] = len(DOCUMENTS)
    checks["run: partials with their seal, each block once"] = len(claims)
    checks["run: records equal to the shards', in order"] = num_expected
    checks["run: online totals equal to the offline pool, bit for bit"] = len(TOTALS)
    drift = verified_drift(run, policy_of_run(run), (block.drift for block in blocks))
    if drift:
        checks["run: drift of reduced precisions equal to that of the partials, by band"] = len(drift)
    if run.header.parts:
        checks["run: parts of the losses that add up to the whole, bit for bit"] = len(run.header.parts)
    checks["ledger: records scored or skipped with a reason"] = num_expected
    nothing = no_records(build.manifest.features, run.header.parts)
    return Collected(
        records=pl.concat([nothing, *(block.records for block in blocks)]),
        total=total,
        skipped=skipped,
        drift=drift,
        num_checked_patients=count_patients(block.checked_patients for block in blocks),
        precisions=add_counts(block.precisions for block in blocks),
        parts={part: parts.get(part, PartTally()) for part in run.header.parts},
        checks=checks,
        layout_checks={"run: rank status files": num_ranks, "run: audit logs with their signed heads": num_logs},
    )


def claimed_blocks(build: Build, run: Run) -> list[Claim]:
    """The blocks of the run with their files, in order; together they cover the build exactly.

    Raises:
        IntegrityError: a listed partial is absent, an unlisted one is present, or the cover is not exact.
    """
    entries = run.manifest.partials
    files = match_files(entries, list_partials(run.folder), where=run.where)
    claims = [Claim(BlockKey(entry.shard_id, entry.block), entry, files[entry.path]) for entry in entries]
    wanted = expected_blocks(build.manifest, run.header.limited_to)
    require_exact_cover(wanted, (claim.key for claim in claims), where=run.where)
    return sorted(claims, key=lambda claim: claim.key)


def verified_blocks(build: Build, run: Run, claims: Iterable[Claim]) -> Iterator[Block]:
    """Read each claimed block, check it and reduce it.

    Raises:
        IntegrityError: names the partial or shard and what is wrong with it.
    """
    shards = {shard.shard_id: shard for shard in build.manifest.shards}
    policy = policy_of_run(run)
    for claim in claims:
        shard = shards[claim.key.shard_id]
        table = read_sealed_partial(claim.file, claim.entry, run=run, build=build)
        require_same_records(table, shard.blocks[claim.key.block], where=label(claim.file.path))
        yield Block(
            records=as_records(table, shard.department),
            tally=tally_of(table),
            skipped=skipped_of(table),
            precisions=precisions_of(table),
            drift=sums_of(table, policy, label(claim.file.path)),
            checked_patients=checked_patients(table, policy),
            parts=part_tallies(table),
        )


def require_every_record(build: Build, claims: Iterable[Claim], num_accounted: int, *, where: str) -> int:
    """Scored and skipped records together are the records of the claimed blocks; returns how many those are.

    Raises:
        IntegrityError: the ledger does not balance.
    """
    shards = {shard.shard_id: shard for shard in build.manifest.shards}
    num_expected = sum(shards[claim.key.shard_id].blocks[claim.key.block].num_records for claim in claims)
    if num_accounted != num_expected:
        raise IntegrityError(
            f"{where}: {num_accounted} records scored or skipped, the build has {num_expected}; run scoring again"
        )
    return num_expected


def require_equal_totals(online: RunTotals, total: Tally, skipped: dict[str, int], *, where: str) -> None:
    """What the ranks agreed on is what the partials give, bit for bit.

    Raises:
        IntegrityError: names the totals that differ.
    """
    offline = {**total_json(total), "skipped": {reason: count for reason, count in skipped.items() if count}}
    claimed = online.model_dump(mode="json")
    claimed["skipped"] = {reason: count for reason, count in online.skipped.items() if count}
    if differing := [name for name in TOTALS if claimed[name] != offline[name]]:
        raise IntegrityError(f"{where}: {', '.join(differing)} differ from the sum of the partials; run scoring again")


def require_equal_parts(online: RunTotals, parts: Mapping[str, PartTally], *, where: str) -> None:
    """The parts of the losses that the ranks agreed on are those of the partials, bit for bit.

    Raises:
        IntegrityError: they are not.
    """
    if part_totals(parts) != online.parts:
        raise IntegrityError(f"{where}: parts of the losses differ from the partials; run scoring again")


def total_json(total: Tally) -> dict[str, object]:
    """A tally as ``RunTotals`` states it: the loss in its only exact form."""
    counts = {name: getattr(total, name) for name in ("num_tokens", "num_words", "num_bytes", "num_records")}
    return {"loss_nats": dict(ExactSum.to_json(total.loss_nats)), **counts}


def precisions_of(partial: pa.Table) -> dict[str, int]:
    """How many scored rows of a partial were computed in each precision."""
    scored = partial.filter(pc.equal(partial.column("status"), STATUS_SCORED))
    return dict(Counter(scored.column("precision").to_pylist()))


def add_counts(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    """Add counts by reason."""
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(total)
