"""Partials are checked and written by a thread of their own, a bounded number of blocks behind the compute."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from schemas.folders import Build
from schemas.partials import BlockKey, rank_folder, write_partial
from scoring.engine import RecordResult
from scoring.partials import partial_table
from scoring.rank import Rank
from scoring.resume import RankLedger
from scoring.session import Session

MAX_UNPUBLISHED = 4


@dataclass(slots=True)
class Publisher:
    """Writes partials, and counts each from what lies on disk.

    Attributes:
        rank: Whose they are.
        build: What is scored.
        session: By what.
        ledger: What the rank answers for.
        carried: Columns of blocks in flight that go into their partials as they are.
    """

    rank: Rank
    build: Build
    session: Session
    ledger: RankLedger
    carried: dict[BlockKey, pa.Table] = field(default_factory=dict)
    _executor: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "publish"))
    _pending: deque[Future[None]] = field(default_factory=deque)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Publish in the background; whatever ends the block, all that was handed over is published."""
        with self._executor:
            yield
            self._wait_for(0)

    def publish(self, key: BlockKey, results: Sequence[RecordResult]) -> None:
        """Hand a block over; waits while too many wait, and raises what an earlier one raised."""
        self._pending.append(self._executor.submit(self._write, key, results))
        self._wait_for(MAX_UNPUBLISHED)

    def _wait_for(self, most: int) -> None:
        while len(self._pending) > most:
            self._pending.popleft().result()

    def _write(self, key: BlockKey, results: Sequence[RecordResult]) -> None:
        rank, run_id = self.rank, self.session.run_id
        table = partial_table(self.carried.pop(key), results, self.session.parts)
        partial = write_partial(
            rank_folder(rank.folder, rank.identity.rank),
            table,
            run_id=run_id,
            key=key,
            results_key=self.build.results_key(key.department),
        )
        self.ledger.include(rank.folder, partial, run_id=run_id, build=self.build, parts=self.session.parts)
        rank.status.num_blocks_done += 1
