"""A rank's share of the work: its blocks read and encoded ahead, scored, and published behind.

Reading, decrypting and encoding run in one thread, checking and writing of partials in another, both a bounded number
of blocks away from the compute, which waits for neither unless it is the faster one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from schemas.console import Progress
from schemas.errors import UsageError
from schemas.folders import Build
from schemas.manifests import NOT_INVARIANT
from schemas.partials import BlockKey
from schemas.precision import is_sampled
from scoring.ahead import ahead
from scoring.blocks import read_blocks
from scoring.cache import ScoreCache, method_id_of, require_cache_folder
from scoring.config import ScoringSettings
from scoring.engine import score_blocks
from scoring.publish import Publisher
from scoring.rank import Rank
from scoring.recall import Recall
from scoring.session import Session
from scoring.tiles import Row, TileFunction
from scoring.tokens import Encoded


def recall_of(settings: ScoringSettings, build: Build, session: Session, rank: Rank) -> Recall | None:
    """What the settings allow a rank to recall.

    Raises:
        UsageError: the cache cannot be where it is wanted, or losses here are no function of the record alone.
    """
    if session.method.is_per_block:
        if settings.cache is not None:
            raise UsageError(f"cache: {NOT_INVARIANT}; leave out --cache, or set --tile-rows 1")
        return None  # an equal note of another block has other bits
    if settings.cache is None:
        return Recall() if settings.dedup else None
    require_cache_folder(settings.cache, build, rank.folder)
    method_id, parts = method_id_of(session.fingerprint), tuple(session.parts)
    return Recall(cache=ScoreCache(settings.cache, build, method_id, rank.access, parts))


def score_share(publisher: Publisher, work: Mapping[BlockKey, int], recall: Recall | None) -> None:
    """Score blocks, publishing each as soon as it is done.

    Args:
        publisher: Of the rank, with its build and session.
        work: The rank's blocks with their estimated tokens.
        recall: What need not be computed again.
    """
    rank, session = publisher.rank, publisher.session
    rank.status.begin(num_blocks=len(work), num_estimated=sum(work.values()))
    title = f"scoring, rank {rank.identity.rank} of {rank.identity.num_ranks}"
    with Progress(title, sum(work.values()), "estimated tokens", shown=rank.leads) as progress, publisher.open():
        watched = [
            replace(lane, compute=_observed(lane.compute, rank, progress, recall)) for lane in session.method.all_lanes
        ]
        num_lanes = len(session.lanes)
        check = watched[num_lanes] if session.method.check else None
        method = replace(session.method, lanes=tuple(watched[:num_lanes]), check=check)
        try:
            # In the order of the shards, so that each is opened and verified once.
            for key, results in score_blocks(ahead(_encoded(publisher, sorted(work))), method, memory=recall):
                publisher.publish(key, results)
                rank.status.num_estimated_done += work[key]
                rank.show_life()
        finally:
            if recall is not None:
                rank.status.num_repeated, rank.status.num_cached = recall.num_repeated, recall.num_cached
                recall.flush()


def _encoded(publisher: Publisher, keys: Sequence[BlockKey]) -> Iterator[tuple[BlockKey, list[Encoded]]]:
    session, rank, context = publisher.session, publisher.rank, publisher.session.context
    is_enough = context.is_enough if context else None
    for block in read_blocks(
        publisher.build, keys, broken=rank.broken_shards, audited=rank.audited, is_enough=is_enough
    ):
        publisher.carried[block.key] = block.carried
        records = context.encode(block) if context else session.encoder.encode(block.texts)
        share = session.policy.check
        if share:
            ids = block.carried.column("record_id").to_pylist()
            records = [
                replace(record, is_sampled=is_sampled(record_id, share))
                for record, record_id in zip(records, ids, strict=True)
            ]
        yield block.key, records


def _observed(compute: TileFunction, rank: Rank, progress: Progress, recall: Recall | None) -> TileFunction:
    """The tile function, with a sign of life to the other ranks and to people after each tile."""

    def observed(length: int, rows: Sequence[Row]) -> list[NDArray[np.float64]]:
        losses = compute(length, rows)
        num_tokens = sum(map(len, losses))
        rank.status.num_tokens += num_tokens
        if recall is not None:
            rank.status.num_repeated, rank.status.num_cached = recall.num_repeated, recall.num_cached
        rank.show_life()
        progress.advance(num_tokens)
        return losses

    return observed
