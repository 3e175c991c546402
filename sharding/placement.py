"""Which shard every record goes to: pure functions over arrays of keys.

Each stratum's records are dealt over its department's shards like cards, in the order of a seeded hash of the record
id, from a shard that depends on the stratum; so every shard has the department's mix of cases, and where a record goes
depends on the set of records only, never on their order.

Shapes: N records, S shards, D departments.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import xxhash
from numpy.typing import NDArray

from schemas.multiset import MULTISET_MODULUS

KEPT, IDENTICAL, OTHER_COLUMNS, OTHER_TEXT, OVER_LIMIT = range(5)
# After every time that a date can say.
NO_TIME = np.iinfo(np.int64).max

Bytes = NDArray[np.uint8]
Hashes = NDArray[np.uint64]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Keys:
    """What placing knows of each record; see ``records.key_schema``. Arrays of shape [N] or [N, 16].

    ``groups`` and ``times`` have no rows unless the build keeps groups together; a record without a time has NO_TIME.
    """

    record_ids: Bytes
    row_digests: Bytes
    text_hashes: Hashes
    strata: Hashes
    departments: Hashes
    tokens: Numbers
    groups: Bytes = field(default_factory=lambda: np.empty((0, 16), dtype=np.uint8))
    times: Numbers = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def take(self, rows: Numbers) -> Keys:
        """These records only; the same arrays where that is all of them, since there may be 10 million."""
        if len(rows) == len(self.tokens) and (rows == np.arange(len(rows))).all():
            return self
        return Keys(
            record_ids=self.record_ids[rows],
            row_digests=self.row_digests[rows],
            text_hashes=self.text_hashes[rows],
            strata=self.strata[rows],
            departments=self.departments[rows],
            tokens=self.tokens[rows],
            groups=self.groups[rows] if len(self.groups) else self.groups,
            times=self.times[rows] if len(self.times) else self.times,
        )


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the records go; shards are numbered department by department, and none is empty.

    Attributes:
        shards: Shard of each record, int64 [N].
        departments: Department of each shard, uint64 [S].
        numbers: Number of each shard within its department, int64 [S].
    """

    shards: Numbers
    departments: Hashes
    numbers: Numbers


def halves(ids: Bytes) -> tuple[Hashes, Hashes]:
    """Upper and lower half of 16-byte ids as numbers that sort as the bytes do."""
    words = np.ascontiguousarray(ids).view(">u8").reshape(-1, 2)
    return words[:, 0].astype(np.uint64), words[:, 1].astype(np.uint64)


def judge_duplicates(keys: Keys) -> NDArray[np.int8]:
    """KEPT for the row with the smallest digest of each record id; for the others, how they differ from it.

    Times are in no digest: of rows that are equal otherwise the first in time is kept, one without a time last.
    """
    upper, lower = halves(keys.record_ids)
    verdicts = np.full(len(upper), KEPT, dtype=np.int8)
    order = np.argsort(upper)
    alike = upper[order[1:]] == upper[order[:-1]]
    rows = order[np.append(alike, False) | np.append(False, alike)] if len(order) else order
    row_upper, row_lower = halves(keys.row_digests[rows])
    times = keys.times[rows] if len(keys.times) else np.zeros(len(rows), dtype=np.int64)
    inner = np.lexsort((times, row_lower, row_upper, lower[rows], upper[rows]))
    rows = rows[inner]
    is_first = np.ones(len(rows), dtype=np.bool_)
    is_first[1:] = (upper[rows[1:]] != upper[rows[:-1]]) | (lower[rows[1:]] != lower[rows[:-1]])
    winners = rows[np.maximum.accumulate(np.where(is_first, np.arange(len(rows)), 0))]
    same_text = keys.text_hashes[rows] == keys.text_hashes[winners]
    same_row = (keys.row_digests[rows] == keys.row_digests[winners]).all(axis=1)
    found = np.select([is_first, same_row, same_text], [KEPT, IDENTICAL, OTHER_COLUMNS], default=OTHER_TEXT)
    verdicts[rows] = found
    return verdicts


def placement_hashes(record_ids: Bytes, seed: int) -> Hashes:
    """Seeded xxh3_64 of each record id."""
    view = np.ascontiguousarray(record_ids).reshape(-1).data
    hashes = (xxhash.xxh3_64_intdigest(view[start : start + 16], seed) for start in range(0, len(view), 16))
    return np.fromiter(hashes, dtype=np.uint64, count=len(record_ids))


def placement_order(record_ids: Bytes, hashes: Hashes) -> Numbers:
    """Rows in the order of (hash, record id): the order of a shard's rows and of ``--limit``."""
    upper, lower = halves(record_ids)
    return np.lexsort((lower, upper, hashes)).astype(np.int64)


def deal(keys: Keys, hashes: Hashes, *, seed: int, target_tokens: int) -> Placement:
    """Place every record.

    Args:
        keys: Without duplicates.
        hashes: From ``placement_hashes``.
        seed: Also turns the shard at which a stratum begins.
        target_tokens: Estimated tokens per shard.
    """
    departments = np.unique(keys.departments)
    department_of = np.searchsorted(departments, keys.departments).astype(np.int32)
    tokens = np.bincount(department_of, weights=keys.tokens, minlength=len(departments)).astype(np.int64)
    counts = np.bincount(department_of, minlength=len(departments))
    # No more shards than records: an empty shard is never written.
    num_shards = np.clip(-(-tokens // target_tokens), 1, np.maximum(counts, 1))
    order = _ordered(keys.record_ids, hashes, keys.strata)
    strata, starts, sizes = np.unique(keys.strata[order], return_index=True, return_counts=True)
    ranks = np.arange(len(order)) - np.repeat(starts, sizes)
    turns = np.repeat(turns_of(strata, seed), sizes)
    owners = department_of[order]
    dealt = np.empty(len(order), dtype=np.int64)
    dealt[order] = (np.cumsum(num_shards) - num_shards)[owners] + (ranks + turns) % num_shards[owners]
    return without_empty(dealt, departments, num_shards)


def shard_sums(shards: Numbers, digests: Bytes, num_shards: int) -> list[int]:
    """Sum of the 128-bit row digests of each shard, modulo 2**128.

    Sums are taken over 16-bit limbs in FP64, which is exact below 2**37 rows.
    """
    limbs = np.ascontiguousarray(digests).view("<u2").reshape(-1, 8)
    totals = [0] * num_shards
    for index in range(8):
        sums = np.bincount(shards, weights=limbs[:, index], minlength=num_shards)
        totals = [total + (int(part) << (16 * index)) for total, part in zip(totals, sums, strict=True)]
    return [total % MULTISET_MODULUS for total in totals]


def order_within_shards(keys: Keys, hashes: Hashes, shards: Numbers) -> Numbers:
    """Rows shard by shard, in the order of the shard; the ids decide only where two hashes are equal."""
    return _ordered(keys.record_ids, hashes, shards.view(np.uint64))


def cut_blocks(tokens: Numbers, block_tokens: int) -> Numbers:
    """Rows of each block of a shard, in order: nearly equal estimated tokens, and no record is split.

    A record belongs to the block in which its middle token falls.
    """
    total = int(tokens.sum())
    num_blocks = max(1, -(-total // block_tokens))
    # Twice the middle, so that everything stays an integer.
    middles = 2 * np.cumsum(tokens) - tokens
    blocks = np.minimum(middles // max(1, -(-2 * total // num_blocks)), num_blocks - 1)
    return np.unique(blocks, return_counts=True)[1].astype(np.int64)


def cut_grouped_blocks(tokens: Numbers, is_first: NDArray[np.bool_], block_tokens: int) -> Numbers:
    """As ``cut_blocks``, and no group is split unless it alone has more tokens than a block.

    Args:
        tokens: Of each record of a shard, in order.
        is_first: Whether a group begins with the record.
        block_tokens: Estimated tokens per block.
    """
    starts = np.flatnonzero(is_first)
    stops = np.append(starts[1:], len(tokens))
    parts = [starts]
    for group in np.flatnonzero(np.add.reduceat(tokens, starts) > block_tokens).tolist():
        start = starts[group]
        parts.append(start + np.cumsum(cut_blocks(tokens[start : stops[group]], block_tokens))[:-1])
    units = np.sort(np.concatenate(parts))
    counts = cut_blocks(np.add.reduceat(tokens, units), block_tokens)
    sizes = np.diff(np.append(units, len(tokens)))
    return np.add.reduceat(sizes, np.cumsum(counts) - counts).astype(np.int64)


def turns_of(strata: Hashes, seed: int) -> Numbers:
    """The shard at which each stratum begins, before it is taken modulo the number of shards; int64."""
    hashes = (xxhash.xxh3_64_intdigest(int(stratum).to_bytes(8, "little"), seed) for stratum in strata)
    return (np.fromiter(hashes, dtype=np.uint64, count=len(strata)) >> np.uint64(1)).astype(np.int64)


def without_empty(dealt: Numbers, departments: Hashes, num_shards: Numbers) -> Placement:
    """Shards that got a record, numbered anew.

    Args:
        dealt: Shard of each record, [N].
        departments: Of which there are shards, [D].
        num_shards: Shards meant for each of them, [D].
    """
    used, shards = np.unique(dealt, return_inverse=True)
    owners = np.repeat(np.arange(len(departments)), num_shards)[used]
    firsts = np.searchsorted(owners, owners)
    return Placement(
        shards=shards.astype(np.int64),
        departments=departments[owners],
        numbers=np.arange(len(used), dtype=np.int64) - firsts,
    )


def _ordered(record_ids: Bytes, hashes: Hashes, first: Hashes) -> Numbers:
    """Rows by (first, hash, record id); the ids, which take most of the time, only where two hashes are equal."""
    order = np.lexsort((hashes, first))
    ties = (hashes[order[1:]] == hashes[order[:-1]]) & (first[order[1:]] == first[order[:-1]])
    if ties.any():
        upper, lower = halves(record_ids)
        order = np.lexsort((lower, upper, hashes, first))
    return order
