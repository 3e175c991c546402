"""From blocks of encoded records to blocks of losses: cut into rows, pool rows over blocks, compute tiles, gather.

Rows of any block may share a tile, so tiles stay full; a block is handed out as soon as its last row is done. When too
much is open, the tiles that the oldest block waits for are run with dummy rows, which bounds memory and the work that a
kill can cost. Nothing here depends on which rank scores a block, or beside which others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from schemas.errors import IntegrityError
from schemas.partials import BlockKey
from schemas.precision import Precision
from schemas.tables import STATUS_NO_TOKENS, STATUS_SCORED
from scoring.method import Method
from scoring.sequences import Losses, Memory, SequenceKey, SequenceScore, losses_of, sequence_key
from scoring.split import PartLoss
from scoring.tiles import Row, RowPools
from scoring.tokens import Encoded
from scoring.windows import windows

MAX_OPEN_BLOCKS = 64
MAX_OPEN_TOKENS = 1 << 18

Scored = Iterator[tuple[BlockKey, list["RecordResult"]]]


@dataclass(frozen=True, slots=True)
class RecordResult:
    """One row of a partial: ``status`` is a reason of ``schemas.tables``, and all else is 0 unless it is scored."""

    status: str
    loss_nats: float | None
    num_tokens: int
    num_words: int
    num_bytes: int
    num_windows: int
    precision: Precision = "fp32"
    check_loss_nats: float | None = None
    parts: tuple[PartLoss, ...] = ()


@dataclass(slots=True)
class OpenBlock:
    """A block some of whose records are not done."""

    key: BlockKey
    results: list[RecordResult | None]
    num_open: int
    num_positions: int
    checks: dict[int, float | None] = field(default_factory=dict)

    def close(self, index: int, encoded: Encoded, score: SequenceScore, *, precision: Precision) -> None:
        """Set the result of one record."""
        self.results[index] = _result(encoded, score, precision)
        self.num_open -= 1

    def check(self, index: int, score: SequenceScore) -> None:
        """Set the loss of one record's check."""
        self.checks[index] = score.loss_nats
        self.num_open -= 1

    def finished(self) -> list[RecordResult]:
        """All results, those that were scored with the loss of their check."""
        results = [result for result in self.results if result is not None]
        if len(results) != len(self.results):
            raise IntegrityError("block: handed out before all its records are done; report this as a bug")
        for index, loss_nats in self.checks.items():
            if results[index].status == STATUS_SCORED:
                results[index] = replace(results[index], check_loss_nats=loss_nats)
        return results


@dataclass(slots=True)
class OpenSequence:
    """A sequence whose rows are being computed, and the records that wait for it."""

    key: SequenceKey
    lane: int
    losses: Losses
    waiting: list[tuple[OpenBlock, int, Encoded]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PendingRow:
    """One window of one sequence, waiting for its tile; ``first_target`` is the number of its first scored target."""

    sequence: OpenSequence
    row: Row
    first_target: int

    @property
    def num_inputs(self) -> int:
        """Input tokens of the row."""
        return len(self.row.inputs)


def score_blocks(
    blocks: Iterable[tuple[BlockKey, Sequence[Encoded]]], method: Method, *, memory: Memory | None = None
) -> Scored:
    """Score blocks of records.

    Args:
        blocks: Read lazily, one at a time.
        method: How.
        memory: Finished sequences, so that equal ones of a department are computed once; None computes each record.

    Yields:
        Each block once, in the order in which they are done, with its records in the order in which they came.
    """
    engine = _Engine(method, memory)
    for key, records in blocks:
        yield from engine.add(key, records)
    yield from engine.finish()


class _Engine:
    """Blocks, sequences and rows that are open."""

    def __init__(self, method: Method, memory: Memory | None) -> None:
        self._method, self._memory = method, memory
        self._pools: list[RowPools[PendingRow]] = [RowPools(lane.menu) for lane in method.all_lanes]
        self._blocks: dict[BlockKey, OpenBlock] = {}
        self._sequences: dict[SequenceKey, OpenSequence] = {}

    def add(self, key: BlockKey, records: Sequence[Encoded]) -> Scored:
        """Take a block, and hand out those that are done."""
        num_positions = sum(len(record.positions) for record in records)
        num_open = len(records) + sum(map(self._method.is_checked, records))
        block = self._blocks[key] = OpenBlock(key, [None] * len(records), num_open, num_positions)
        for index, record in enumerate(records):
            for row in self._rows(block, index, record):
                lane = row.sequence.lane
                tile = self._pools[lane].push(row)
                if tile:
                    self._run(lane, tile)
                    yield from self._take_finished()
        if self._method.is_per_block:
            yield from self.finish()
        yield from self._take_finished()
        while self._has_too_much_open():
            self._run_oldest()
            yield from self._take_finished()

    def finish(self) -> Scored:
        """Run what waits, and hand out the rest."""
        for lane, pools in enumerate(self._pools):
            for tile in pools.drain():
                self._run(lane, tile)
                yield from self._take_finished()

    def _rows(self, block: OpenBlock, index: int, record: Encoded) -> Iterator[PendingRow]:
        lane = self._method.lane_of(record.num_own)
        if record.num_own < 2:
            self._settle(block, index, record, losses_of(0).score(), lane=lane)
            return
        yield from self._rows_of_lane(block, index, record, lane)
        if self._method.is_checked(record):
            yield from self._rows_of_lane(block, index, record, len(self._method.lanes))

    def _rows_of_lane(self, block: OpenBlock, index: int, record: Encoded, lane: int) -> Iterator[PendingRow]:
        key = sequence_key(block.key.department, record, is_check=lane == len(self._method.lanes))
        known = self._memory.find(key) if self._memory else None
        if known is not None:
            self._settle(block, index, record, known, lane=lane)
            return
        sequence = self._sequences.get(key) if self._memory else None
        if sequence is None:
            sequence = OpenSequence(key, lane, losses_of(record.num_own - 1))
            sequence.waiting.append((block, index, record))
            if self._memory:
                self._sequences[key] = sequence
            yield from self._windows(sequence, record)
        elif self._memory:
            self._memory.join()
            sequence.waiting.append((block, index, record))

    def _windows(self, sequence: OpenSequence, record: Encoded) -> Iterator[PendingRow]:
        positions, cut, num_context = record.positions, self._method.windowing, record.num_context
        for window in windows(len(positions), max_length=cut.max_length, stride=cut.stride, num_context=num_context):
            stop, first_target = window.start + window.num_inputs, window.start + window.num_context
            sequence.losses.num_windows += 1
            row = Row(
                inputs=positions[window.start : stop],
                targets=positions[first_target + 1 : stop + 1],
                num_context=window.num_context,
            )
            yield PendingRow(sequence, row, first_target - num_context)

    def _run(self, lane: int, tile: tuple[int, list[PendingRow]]) -> None:
        length, pending = tile
        computed = self._method.all_lanes[lane].compute(length, [item.row for item in pending])
        for item, losses in zip(pending, computed, strict=True):
            item.sequence.losses.put(item.first_target, losses)
            if not item.sequence.losses.num_missing:
                self._close(item.sequence)

    def _close(self, sequence: OpenSequence) -> None:
        score = self._score(sequence)
        for block, index, record in sequence.waiting:
            self._settle(block, index, record, score, lane=sequence.lane)
        if self._memory:
            self._memory.keep(sequence.key, score)
            self._sequences.pop(sequence.key, None)

    def _settle(self, block: OpenBlock, index: int, record: Encoded, score: SequenceScore, *, lane: int) -> None:
        if lane == len(self._method.lanes):
            block.check(index, score)
        else:
            block.close(index, record, score, precision=self._method.lanes[lane].precision)

    def _score(self, sequence: OpenSequence) -> SequenceScore:
        split, labels_N = self._method.split, sequence.waiting[0][2].labels  # all that wait have the same
        if split is None or labels_N is None:
            return sequence.losses.score()
        return sequence.losses.score(partial(split.losses, labels_N=labels_N))

    def _take_finished(self) -> Scored:
        for key in [key for key, block in self._blocks.items() if not block.num_open]:
            yield key, self._blocks.pop(key).finished()

    def _has_too_much_open(self) -> bool:
        num_positions = sum(block.num_positions for block in self._blocks.values())
        return len(self._blocks) > MAX_OPEN_BLOCKS or num_positions > MAX_OPEN_TOKENS

    def _run_oldest(self) -> None:
        """Run every tile that the oldest block waits for, full or not."""
        oldest = next(iter(self._blocks.values()))
        for lane, pools in enumerate(self._pools):
            for tile in pools.drain(lambda row: any(block is oldest for block, _, _ in row.sequence.waiting)):
                self._run(lane, tile)


def _result(encoded: Encoded, score: SequenceScore, precision: Precision) -> RecordResult:
    if not encoded.num_tokens:
        return RecordResult(STATUS_NO_TOKENS, None, 0, 0, 0, score.num_windows, precision)
    if score.status != STATUS_SCORED:
        return RecordResult(score.status, None, 0, 0, 0, score.num_windows, precision)
    counts = (score.num_tokens, encoded.num_words, encoded.num_bytes, score.num_windows)
    return RecordResult(STATUS_SCORED, score.loss_nats, *counts, precision, parts=score.parts)
