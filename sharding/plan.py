"""Between pass 1 and pass 2: duplicates are judged, every record gets a shard, and all of it is frozen on disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from schemas.errors import DataError, IntegrityError
from schemas.ledgers import BuildLedger
from schemas.multiset import digest_sum, multiset_hex
from schemas.seals import Seal, check_seal, publish
from sharding.balance import measure_balance
from sharding.config import ShardingSettings
from sharding.inputs import check_seen
from sharding.keys import Scanned, load_scan
from sharding.layout import Layout, lay_out
from sharding.limits import OVER_LIMIT_REASON, Counted, check_limits
from sharding.phi_ledger import sum_by_department, sum_of_phi
from sharding.placement import (
    IDENTICAL,
    KEPT,
    OTHER_COLUMNS,
    OTHER_TEXT,
    OVER_LIMIT,
    Keys,
    Placement,
    judge_duplicates,
    placement_hashes,
    placement_order,
    shard_sums,
)
from sharding.records import code_name
from sharding.scratch import Scratch
from sharding.scratch_documents import Plan, PlannedShard, ScanReceipt, Survey
from sharding.side_rows import SideRows, whole_of

DUPLICATE_REASONS = {IDENTICAL: "identical", OTHER_COLUMNS: "other_columns", OTHER_TEXT: "other_text"}
DROPPED = -1
# SHARD_ID has five digits.
MAX_SHARDS_PER_DEPARTMENT = 100_000


def make_plan(survey: Survey, settings: ShardingSettings, scratch: Scratch, *, sides: Sequence[SideRows] = ()) -> Plan:
    """Plan a build from pass 1, or take the plan of an interrupted one, and freeze it; ``sides`` are all side files.

    Raises:
        UsageError: a mapped column never occurred.
        DataError: a limit was passed or no record is left (the ledger is written all the same), or there are too many
            shards.
        IntegrityError: a key table is damaged.
    """
    frozen = _frozen(scratch)
    if frozen:
        return frozen
    scanned = load_scan(len(survey.blocks), scratch, settings)
    check_seen(frozenset(role for receipt in scanned.receipts for role in receipt.roles_seen), settings.columns)
    verdicts = judge_duplicates(scanned.keys)
    hashes = placement_hashes(scanned.keys.record_ids, settings.seed)
    _apply_limit(verdicts, scanned.keys, hashes, limit=settings.limit)
    ledgers = make_ledgers(scanned, verdicts)
    whole = merge_ledgers(ledgers.values())
    unresolved = sum((Counter(receipt.unresolved) for receipt in scanned.receipts), Counter[str]())
    found = sum_by_department(receipt.phi for receipt in scanned.receipts)
    phi = {code: counts for code, counts in found.items() if ledgers[code].num_kept}
    num_conflicts = int((verdicts == OTHER_TEXT).sum())
    counted = Counted(whole, sides, unresolved, num_conflicts=num_conflicts, phi=sum_of_phi(phi.values()))
    check_limits(counted, settings, scratch)
    rows = np.flatnonzero(verdicts == KEPT)
    receipts, kept = scanned.receipts, scanned.keys.take(rows)
    del scanned  # at 10 million records the keys of all of them are 600 MB
    layout = lay_out(kept, hashes[rows], settings)
    placement = layout.placement
    assignment = _assignment(layout, rows, num_records=len(verdicts), settings=settings)
    names = {code: name for receipt in receipts for code, name in receipt.departments.items()}
    with_shards = {code_name(int(number)) for number in np.unique(placement.departments)}
    plan = Plan(
        block_tokens=layout.block_tokens,
        ledger=whole,
        side_rows=whole_of(sides),
        unresolved=dict(sorted(unresolved.items())),
        phi_scanned=settings.phi_scan,
        phi=phi,
        balance=measure_balance(kept, layout),
        departments={code: ledgers[code] for code in sorted(with_shards)},
        names={code: names[code] for code in sorted(with_shards)},
        num_read=_num_read(survey, receipts),
        multiset_digest=multiset_hex(digest_sum(kept.row_digests)),
        shards=_planned_shards(kept, placement),
        assignments=_publish_all(_by_block(assignment, receipts), scratch),
    )
    scratch.write_document(scratch.plan(), plan)
    return plan


def make_ledgers(scanned: Scanned, verdicts: NDArray[np.int8]) -> dict[str | None, BuildLedger]:
    """One ledger per department code, and one under None for records without a readable department."""
    duplicates: dict[str | None, Counter[str]] = {}
    rejected: dict[str | None, Counter[str]] = {}
    kept: Counter[str | None] = Counter()
    for receipt in scanned.receipts:
        for entry in receipt.rejects:
            rejected.setdefault(entry.department, Counter())[entry.reason] += entry.count
    departments, owner = np.unique(scanned.keys.departments, return_inverse=True)
    table = np.zeros((len(departments), OVER_LIMIT + 1), dtype=np.int64)
    np.add.at(table, (owner, verdicts), 1)
    for number, counts in zip(departments, table, strict=True):
        code = code_name(int(number))
        kept[code] = int(counts[KEPT])
        reasons = {name: int(counts[verdict]) for verdict, name in DUPLICATE_REASONS.items()}
        duplicates[code] = +Counter(reasons)
        if counts[OVER_LIMIT]:
            rejected.setdefault(code, Counter())[OVER_LIMIT_REASON] += int(counts[OVER_LIMIT])
    codes = duplicates.keys() | rejected.keys()
    empty: Counter[str] = Counter()
    return {code: _ledger(kept[code], duplicates.get(code, empty), rejected.get(code, empty)) for code in codes}


def merge_ledgers(ledgers: Iterable[BuildLedger]) -> BuildLedger:
    """The ledger of all."""
    num_kept = 0
    duplicates: Counter[str] = Counter()
    rejected: Counter[str] = Counter()
    for ledger in ledgers:
        num_kept += ledger.num_kept
        duplicates.update(ledger.duplicates)
        rejected.update(ledger.rejected)
    return _ledger(num_kept, duplicates, rejected)


def _frozen(scratch: Scratch) -> Plan | None:
    try:
        plan = scratch.read_document(scratch.plan(), Plan)
        for block, seal in enumerate(plan.assignments):
            check_seal(scratch.assignment(block), seal)
    except IntegrityError:
        return None
    return plan


def _apply_limit(verdicts: NDArray[np.int8], keys: Keys, hashes: NDArray[np.uint64], *, limit: int | None) -> None:
    if limit is None:
        return
    rows = np.flatnonzero(verdicts == KEPT)
    order = placement_order(keys.record_ids[rows], hashes[rows])
    verdicts[rows[order[limit:]]] = OVER_LIMIT


def _planned_shards(kept: Keys, placement: Placement) -> list[PlannedShard]:
    num_shards = len(placement.departments)
    if num_shards and placement.numbers.max() >= MAX_SHARDS_PER_DEPARTMENT:
        raise DataError(f"plan: more than {MAX_SHARDS_PER_DEPARTMENT} shards in a department; raise --target-tokens")
    counts = np.bincount(placement.shards, minlength=num_shards)
    tokens = np.bincount(placement.shards, weights=kept.tokens, minlength=num_shards).astype(np.int64)
    sums = shard_sums(placement.shards, kept.row_digests, num_shards)
    codes = [code_name(int(number)) for number in placement.departments]
    return [
        PlannedShard(
            shard_id=f"{code}-{number:05d}",
            department=code,
            num_records=int(counts[shard]),
            estimated_tokens=int(tokens[shard]),
            multiset_digest=multiset_hex(sums[shard]),
        )
        for shard, (code, number) in enumerate(zip(codes, placement.numbers.tolist(), strict=True))
    ]


def _assignment(
    layout: Layout, rows: NDArray[np.int64], *, num_records: int, settings: ShardingSettings
) -> NDArray[np.int32]:
    """Shard of each record, and its place there if groups stay together; [1, N] or [2, N]."""
    placed = [layout.placement.shards] if settings.group == "none" else [layout.placement.shards, layout.positions()]
    assignment = np.full((len(placed), num_records), DROPPED, dtype="<i4")
    for index, values in enumerate(placed):
        assignment[index, rows] = values
    return assignment


def _by_block(assignment: NDArray[np.int32], receipts: Sequence[ScanReceipt]) -> list[NDArray[np.int32]]:
    borders = np.cumsum([receipt.num_records for receipt in receipts])[:-1]
    return np.split(assignment, borders, axis=1) if receipts else []


def _publish_all(parts: Sequence[NDArray[np.int32]], scratch: Scratch) -> list[Seal]:
    return [publish(scratch.assignment(block), part.tobytes(), replace=True) for block, part in enumerate(parts)]


def _num_read(survey: Survey, receipts: Sequence[ScanReceipt]) -> list[int]:
    """Records read from each input."""
    num_read = [0] * len(survey.files)
    for block, receipt in zip(survey.blocks, receipts, strict=True):
        num_read[block.file] += receipt.num_records + sum(entry.count for entry in receipt.rejects)
    return num_read


def _ledger(num_kept: int, duplicates: Counter[str], rejected: Counter[str]) -> BuildLedger:
    return BuildLedger(
        num_read=num_kept + duplicates.total() + rejected.total(),
        num_kept=num_kept,
        duplicates=dict(sorted(duplicates.items())),
        rejected=dict(sorted(rejected.items())),
    )
