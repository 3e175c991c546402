"""Whole groups, such as all notes of a patient, go to one shard and stay together there, in the order of time.

A group is what one department has of one patient or encounter: departments never share a shard. Its stratum is that of
its first record in time; without times, of the record with the smallest placement hash.

Groups are dealt in rounds, stratum by stratum: each round gives every shard of the department one group, the heaviest
to the shard with the least tokens so far. So in each stratum no shard has more than one group more than another, and
two shards' tokens never differ by more than the heaviest group: giving weights a >= b to loads x <= y changes their
difference to (a - b) - (y - x), which lies between that of before and the heaviest less the lightest of the round.
Groups dealt in the order of their hash, as single records are, differ by the spread of many random sizes instead.

Shapes: N records, G groups, S shards.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

import numpy as np

from sharding.placement import Hashes, Keys, Numbers, Placement, halves, placement_hashes, turns_of, without_empty


@dataclass(frozen=True, slots=True)
class Groups:
    """Records by group.

    Attributes:
        order: Rows, department by department, by (group hash, group id), within a group by time; int64 [N].
        starts: Where each group begins in ``order``, int64 [G].
    """

    order: Numbers
    starts: Numbers


def group_records(keys: Keys, hashes: Hashes, *, seed: int) -> Groups:
    """Bring the records of each group together.

    Args:
        keys: With group ids and times.
        hashes: Of the record ids; they order the records of one time and those without one, which come last.
        seed: Of the group hashes.
    """
    upper, lower = halves(keys.groups)
    id_upper, id_lower = halves(keys.record_ids)
    group_hashes = placement_hashes(keys.groups, seed)
    order = np.lexsort((id_lower, id_upper, hashes, keys.times, lower, upper, group_hashes, keys.departments))
    names = np.stack([keys.departments[order], upper[order], lower[order]])
    differs = (names[:, 1:] != names[:, :-1]).any(axis=0)
    starts = np.flatnonzero(np.append(np.ones(min(1, len(order)), dtype=np.bool_), differs))
    return Groups(order=order.astype(np.int64), starts=starts.astype(np.int64))


def deal_groups(keys: Keys, groups: Groups, *, seed: int, target_tokens: int) -> Placement:
    """Place every record where its group goes.

    Args:
        keys: Without duplicates.
        groups: Of these keys.
        seed: Also turns the shard that comes first among equally full ones, stratum by stratum.
        target_tokens: Estimated tokens per shard.
    """
    firsts = groups.order[groups.starts]
    tokens = np.add.reduceat(keys.tokens[groups.order], groups.starts)
    departments, owners = np.unique(keys.departments[firsts], return_inverse=True)
    totals = np.bincount(owners, weights=tokens, minlength=len(departments)).astype(np.int64)
    # No more shards than groups: an empty shard is never written.
    num_shards = np.clip(-(-totals // target_tokens), 1, np.bincount(owners, minlength=len(departments)))
    offsets = np.cumsum(num_shards) - num_shards
    dealt = np.empty(len(firsts), dtype=np.int64)
    for department in range(len(departments)):
        own = np.flatnonzero(owners == department)
        strata = keys.strata[firsts[own]]
        dealt[own] = offsets[department] + _dealt(
            tokens[own], strata, num_shards=int(num_shards[department]), seed=seed
        )
    sizes = np.diff(np.append(groups.starts, len(groups.order)))
    shards = np.empty(len(groups.order), dtype=np.int64)
    shards[groups.order] = np.repeat(dealt, sizes)
    return without_empty(shards, departments, num_shards)


def is_first_of_group(groups: Groups) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """For each place in ``order`` whether a group begins there, bool [N]."""
    is_first = np.zeros(len(groups.order), dtype=np.bool_)
    is_first[groups.starts] = True
    return is_first


def _dealt(tokens: Numbers, strata: Hashes, *, num_shards: int, seed: int) -> Numbers:
    """Shard of each group of one department; strata with the most tokens first, so that small ones fill the gaps."""
    names, index = np.unique(strata, return_inverse=True)
    totals = np.bincount(index, weights=tokens).astype(np.int64)
    # The groups come by hash, and lexsort is stable: so equally heavy ones stay in the order of their hashes.
    order = np.lexsort((-tokens, names[index], -totals[index]))
    turns = turns_of(names, seed)
    loads = [0] * num_shards
    shards: list[int] = []
    for stratum, run in groupby(order.tolist(), key=index.tolist().__getitem__):
        weights = tokens[list(run)].tolist()
        shards += _rounds(weights, loads, turn=int(turns[stratum]) % num_shards)
    dealt = np.empty(len(order), dtype=np.int64)
    dealt[order] = shards
    return dealt


def _rounds(weights: list[int], loads: list[int], *, turn: int) -> list[int]:
    """Shard of each weight, heaviest first; ``loads`` grow by them."""
    circle = [*range(turn, len(loads)), *range(turn)]
    shards = []
    for start in range(0, len(weights), len(loads)):
        lightest = sorted(circle, key=loads.__getitem__)
        for weight, shard in zip(weights[start : start + len(loads)], lightest, strict=False):
            loads[shard] += weight
            shards.append(shard)
    return shards
