"""How even a build is, before a model has seen it: tokens and case mix between shards, and between ranks to come.

A node with an oddly low perplexity either met easier notes or computed something else; this tells the first apart. All
counts are integers, quotients are taken once, and strata are told by hash only.

Shapes: N records, B blocks, C cells: pairs of a block and a stratum that occur together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from schemas.balance import Balance, DepartmentBalance, RankBalance
from schemas.dealing import assign, imbalance
from sharding.layout import Layout
from sharding.placement import Keys, Numbers
from sharding.records import code_name

NUMS_RANKS = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class CaseMix:
    """Records by owner and stratum, for the pairs that occur, ordered by owner.

    Attributes:
        owners: A shard, block or rank; int64 [C].
        strata: Number of the stratum, int64 [C].
        counts: Records of that stratum there, int64 [C].
    """

    owners: Numbers
    strata: Numbers
    counts: Numbers

    def by(self, owner_of: Numbers) -> CaseMix:
        """The same records by larger owners; ``owner_of`` says the new one of each old one."""
        num_strata = int(self.strata.max()) + 1
        pairs = owner_of[self.owners] * num_strata + self.strata
        found, index = np.unique(pairs, return_inverse=True)
        counts = np.bincount(index, weights=self.counts).astype(np.int64)
        return CaseMix(found // num_strata, found % num_strata, counts)


def measure_balance(keys: Keys, layout: Layout) -> Balance:
    """Balance between the shards of each department, and between ranks that get the blocks by the LPT rule.

    Exact below 2**31 records.

    Args:
        keys: Of all kept records, [N].
        layout: Of the same.
    """
    blocks = _mix_of_blocks(keys, layout)
    starts = np.cumsum(layout.block_sizes) - layout.block_sizes
    tokens = np.add.reduceat(keys.tokens[layout.order], starts)
    shards = blocks.by(layout.block_shards)
    shard_tokens = np.bincount(layout.block_shards, weights=tokens).astype(np.int64)
    return Balance(
        departments=_departments(shards, shard_tokens, layout),
        ranks=[_ranks(blocks, tokens, num_ranks) for num_ranks in NUMS_RANKS],
    )


def total_variations(mix: CaseMix) -> list[float]:
    """Distance of each owner's case mix from that of all: half the sum of the differences of the strata's shares.

    Strata that an owner lacks add what the others leave, so only pairs that occur are looked at.
    """
    whole = np.bincount(mix.strata, weights=mix.counts).astype(np.int64)
    total = int(whole.sum())
    starts = np.flatnonzero(np.append(True, np.diff(mix.owners) > 0))
    sizes = np.add.reduceat(mix.counts, starts)
    own = np.repeat(sizes, np.diff(np.append(starts, len(mix.owners))))
    expected = whole[mix.strata] * own
    differences = np.abs(mix.counts * total - expected)
    lacking = total * sizes - np.add.reduceat(expected, starts)
    numerators = np.add.reduceat(differences, starts) + lacking
    return [numerator / (2 * total * size) for numerator, size in zip(numerators.tolist(), sizes.tolist(), strict=True)]


def chi_square(mix: CaseMix) -> tuple[float, int]:
    """Pearson's statistic for equal case mixes of all owners, and its degrees of freedom.

    Summed exactly over all pairs of owner and stratum; a pair that does not occur adds its expectation.
    """
    whole = np.bincount(mix.strata, weights=mix.counts).astype(np.int64)
    sizes = np.bincount(mix.owners, weights=mix.counts).astype(np.int64)
    total = int(whole.sum())
    expected = whole[mix.strata] * sizes[mix.owners]
    terms = (mix.counts * total - expected).astype(np.float64) ** 2 / (expected.astype(np.float64) * total)
    lacking = (total * total - int(expected.sum())) / total
    freedom = (int(np.count_nonzero(sizes)) - 1) * (int(np.count_nonzero(whole)) - 1)
    return math.fsum([*terms.tolist(), lacking]), freedom


def _mix_of_blocks(keys: Keys, layout: Layout) -> CaseMix:
    names = np.unique(keys.strata)
    strata = np.searchsorted(names, keys.strata)  # half the time of unique's own inverse
    num_strata = len(names)
    owners = np.repeat(np.arange(len(layout.block_sizes)), layout.block_sizes)
    pairs, counts = np.unique(owners * num_strata + strata[layout.order], return_counts=True)
    return CaseMix(pairs // num_strata, pairs % num_strata, counts.astype(np.int64))


def _departments(shards: CaseMix, tokens: Numbers, layout: Layout) -> list[DepartmentBalance]:
    """One entry per department; its shards stand together."""
    names, firsts = np.unique(layout.placement.departments, return_index=True)
    borders = np.append(firsts, len(tokens))
    found = []
    for name, start, stop in zip(names.tolist(), borders[:-1].tolist(), borders[1:].tolist(), strict=True):
        part = slice(*np.searchsorted(shards.owners, [start, stop]))
        strata, local = np.unique(shards.strata[part], return_inverse=True)
        mix = CaseMix(shards.owners[part] - start, local, shards.counts[part])
        statistic, freedom = chi_square(mix)
        loads = tokens[start:stop].tolist()
        found.append(
            DepartmentBalance(
                code=code_name(name),
                num_shards=stop - start,
                num_strata=len(strata),
                token_max_over_mean=max(loads) * len(loads) / sum(loads),
                total_variation=max(total_variations(mix)),
                chi_square=statistic,
                degrees_of_freedom=freedom,
            )
        )
    return found


def _ranks(blocks: CaseMix, tokens: Numbers, num_ranks: int) -> RankBalance:
    weights = dict(enumerate(tokens.tolist()))
    dealt = assign(weights, num_ranks)
    rank_of = np.empty(len(weights), dtype=np.int64)
    for rank, own in enumerate(dealt):
        rank_of[own] = rank
    return RankBalance(
        num_ranks=num_ranks,
        token_max_over_mean=imbalance(weights, dealt),
        total_variation=max(total_variations(blocks.by(rank_of))),
    )
