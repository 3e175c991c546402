"""From blocks of text to blocks of losses: encode, cut into rows, pool rows over blocks, compute tiles, gather.

Rows of any block may share a tile, so tiles stay full; a block is handed out as soon as its last row is done. When too
many blocks are open, the pools are drained into tiles with dummy rows, which bounds memory and the work that a kill can
cost. Nothing here depends on which rank scores a block, or beside which others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from schemas.partials import BlockKey
from schemas.tables import STATUS_NO_SCORED_TOKENS, STATUS_NO_TOKENS, STATUS_NON_FINITE, STATUS_SCORED
from scoring.tiles import Row, RowPools, TileFunction, TileMenu
from scoring.tokens import Encoded, Encoder
from scoring.windows import windows

MAX_OPEN_BLOCKS = 32
ENCODE_BATCH = 64


@dataclass(frozen=True, slots=True)
class Windowing:
    """Length and step of windows, in positions."""

    max_length: int
    stride: int


@dataclass(frozen=True, slots=True)
class RecordResult:
    """One row of a partial: ``status`` is a reason of ``schemas.tables``, and all else is 0 unless it is scored."""

    status: str
    loss_nats: float | None
    num_tokens: int
    num_words: int
    num_bytes: int
    num_windows: int


@dataclass(slots=True)
class RecordState:
    """A record whose rows are being computed."""

    index: int
    block: OpenBlock
    encoded: Encoded
    losses: list[NDArray[np.float64]] = field(default_factory=list)
    num_windows: int = 0
    num_pending: int = 0
    is_cut: bool = False


@dataclass(slots=True)
class OpenBlock:
    """A block some of whose records are not done."""

    key: BlockKey
    results: list[RecordResult | None]
    num_open: int


@dataclass(frozen=True, slots=True)
class PendingRow:
    """One window of one record, waiting for its tile."""

    record: RecordState
    row: Row

    @property
    def num_inputs(self) -> int:
        """Input tokens of the row."""
        return len(self.row.inputs)


def score_blocks(
    blocks: Iterable[tuple[BlockKey, Sequence[str]]],
    *,
    encoder: Encoder,
    windowing: Windowing,
    menu: TileMenu,
    compute: TileFunction,
) -> Iterator[tuple[BlockKey, list[RecordResult]]]:
    """Score blocks of texts.

    Args:
        blocks: Read lazily, one at a time.
        encoder: Text to ids.
        windowing: How long records are cut.
        menu: Tile shapes.
        compute: Runs one tile.

    Yields:
        Each block once, in the order in which they are done, with its records in the order of the texts.
    """
    pools: RowPools[PendingRow] = RowPools(menu)
    open_blocks: dict[BlockKey, OpenBlock] = {}
    for key, texts in blocks:
        block = open_blocks[key] = OpenBlock(key, [None] * len(texts), len(texts))
        for row in _rows_of_block(block, texts, encoder, windowing):
            tile = pools.push(row)
            if tile:
                _run_tile(tile, compute)
                yield from _take_finished(open_blocks)
        if len(open_blocks) > MAX_OPEN_BLOCKS:
            yield from _drain(pools, open_blocks, compute)
        yield from _take_finished(open_blocks)
    yield from _drain(pools, open_blocks, compute)


def _drain(
    pools: RowPools[PendingRow], open_blocks: dict[BlockKey, OpenBlock], compute: TileFunction
) -> Iterator[tuple[BlockKey, list[RecordResult]]]:
    for tile in pools.drain():
        _run_tile(tile, compute)
        yield from _take_finished(open_blocks)


def _take_finished(open_blocks: dict[BlockKey, OpenBlock]) -> Iterator[tuple[BlockKey, list[RecordResult]]]:
    for key in [key for key, block in open_blocks.items() if not block.num_open]:
        results = open_blocks.pop(key).results
        yield key, [result for result in results if result is not None]


def _rows_of_block(
    block: OpenBlock, texts: Sequence[str], encoder: Encoder, windowing: Windowing
) -> Iterator[PendingRow]:
    for start in range(0, len(texts), ENCODE_BATCH):
        encoded = encoder.encode(texts[start : start + ENCODE_BATCH])
        for index, item in enumerate(encoded, start):
            yield from _rows_of_record(RecordState(index, block, item), windowing)


def _rows_of_record(record: RecordState, windowing: Windowing) -> Iterator[PendingRow]:
    positions = record.encoded.positions
    for window in windows(len(positions), max_length=windowing.max_length, stride=windowing.stride):
        stop = window.start + window.num_inputs
        record.num_windows += 1
        record.num_pending += 1
        row = Row(
            inputs=positions[window.start : stop],
            targets=positions[window.start + window.num_context + 1 : stop + 1],
            num_context=window.num_context,
        )
        yield PendingRow(record, row)
    record.is_cut = True
    _close_if_done(record)


def _run_tile(tile: tuple[int, list[PendingRow]], compute: TileFunction) -> None:
    length, pending = tile
    for item, losses in zip(pending, compute(length, [item.row for item in pending]), strict=True):
        item.record.losses.append(losses)
        item.record.num_pending -= 1
        _close_if_done(item.record)


def _close_if_done(record: RecordState) -> None:
    if record.is_cut and not record.num_pending:
        record.block.results[record.index] = _result(record)
        record.block.num_open -= 1


def _result(record: RecordState) -> RecordResult:
    encoded = record.encoded
    losses = np.concatenate(record.losses) if record.losses else np.empty(0)
    if not encoded.num_tokens:
        status = STATUS_NO_TOKENS
    elif not len(losses):
        status = STATUS_NO_SCORED_TOKENS
    elif not np.isfinite(losses).all():
        status = STATUS_NON_FINITE
    else:
        # fsum rounds the exact sum once, so neither the windows' order nor their number can move a bit.
        total = math.fsum(losses.tolist())
        return RecordResult(STATUS_SCORED, total, len(losses), encoded.num_words, encoded.num_bytes, record.num_windows)
    return RecordResult(status, None, 0, 0, 0, record.num_windows)
