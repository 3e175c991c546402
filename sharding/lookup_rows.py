"""Rows of one lookup table on their way to it: on the disk in the order of their keys' hashes, in any number of runs.

A hash falls anywhere with equal chance, so a share of the hashes is that share of the keys: all rows of some keys can
be fetched from all runs at once, without the rest. Memory holds one run or one share, however many rows there are. Runs
belong to one try of one task, which removes them.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from schemas.errors import IntegrityError
from schemas.seals import Seal, check_seal, label
from sharding.scratch import LOOKUP_FOLDER, Scratch
from sharding.sources.keyed import HASH, keyed

NUM_HASHES = 1 << 64
SUFFIX = ".run"


@dataclass(frozen=True, slots=True)
class RunSizes:
    """How much is in memory at once, and how much is read at least; none of it shows in a lookup table.

    Attributes:
        run_bytes: Of a run, while it is sorted: that takes several times as much.
        share_bytes: Of rows that are finished together: that takes about ten times as much.
        batch_rows: Of a record batch of a run.
    """

    run_bytes: int = 16 << 20
    share_bytes: int = 16 << 20
    batch_rows: int = 4096


@dataclass(frozen=True, slots=True)
class Run:
    """A file of rows in the order of their hashes, and the first hash of each of its record batches, uint64."""

    path: Path
    seal: Seal
    starts: NDArray[np.uint64]


def remove_stale_runs(scratch: Scratch) -> None:
    """Remove runs of tasks that a client before sent, which have lost the right to write and were perhaps killed."""
    for path in (scratch.folder / LOOKUP_FOLDER).glob(f"*{SUFFIX}"):
        if f".{_mark(scratch)}-" not in path.name:
            path.unlink(missing_ok=True)


class RowRuns:
    """All rows of one lookup table; a context manager, after which there are none.

    Args:
        scratch: Where the runs lie.
        name: Of the lookup table.
        empty: Its rows before there are any.
        sizes: How much is in memory at once.
    """

    def __init__(self, scratch: Scratch, name: str, *, empty: pl.DataFrame, sizes: RunSizes) -> None:
        self._scratch, self._empty, self._sizes = scratch, empty, sizes
        self._stem = f"{name}.{_mark(scratch)}-{secrets.token_hex(4)}"
        self._pending: list[pa.Table] = []
        self._runs: list[Run] = []
        self._num_bytes = self._pending_bytes = 0

    def __enter__(self) -> RowRuns:
        return self

    def __exit__(self, *_: object) -> None:
        for run in self._runs:
            with suppress(OSError):
                run.path.unlink(missing_ok=True)

    def add(self, rows: pl.DataFrame) -> None:
        """Some more rows, of which the same one may come again; their ``key`` is not null."""
        if rows.is_empty():
            return
        table = rows.unique().to_arrow(compat_level=pl.CompatLevel.oldest())
        self._pending.append(table)
        self._pending_bytes += table.nbytes
        if self._pending_bytes >= self._sizes.run_bytes:
            self._write()

    def shares(self) -> Iterator[pl.DataFrame]:
        """All rows in shares of about ``share_bytes``, at least one, by ascending hashes; a key has one share.

        Raises:
            IntegrityError: a run is no longer what was written.
        """
        if self._pending:
            self._write()
        for run in self._runs:
            check_seal(run.path, run.seal)
        num_shares = max(1, -(-self._num_bytes // self._sizes.share_bytes))
        borders = [NUM_HASHES * number // num_shares for number in range(num_shares + 1)]
        for first, stop in pairwise(borders):
            parts = [_rows_between(run, first, stop - 1) for run in self._runs]
            yield pl.concat([self._empty, *(pl.DataFrame(part.drop_columns([HASH])) for part in parts)])

    def _write(self) -> None:
        rows = pl.DataFrame(pa.concat_tables(self._pending)).unique()
        self._pending, self._pending_bytes = [], 0
        table = keyed(rows.to_arrow(compat_level=pl.CompatLevel.oldest()))
        path = self._scratch.folder / LOOKUP_FOLDER / f"{self._stem}.{len(self._runs):06d}{SUFFIX}"
        seal = self._scratch.publish(path, lambda file: _write_run(file, table, self._sizes.batch_rows))
        starts = table.column(HASH).to_numpy()[:: self._sizes.batch_rows].copy()
        self._runs.append(Run(path, seal, starts))
        self._num_bytes += table.nbytes


def _mark(scratch: Scratch) -> str:
    """By which the tasks of one client are told from those of others."""
    return scratch.word[:8]


def _write_run(file: BinaryIO, table: pa.Table, batch_rows: int) -> None:
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    with pa.ipc.new_file(file, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=batch_rows)


def _rows_between(run: Run, first: int, last: int) -> pa.Table:
    """The rows whose hash is neither below ``first`` nor above ``last``."""
    low, high = np.uint64(first), np.uint64(last)
    start = max(0, int(np.searchsorted(run.starts, low, side="left")) - 1)
    stop = int(np.searchsorted(run.starts, high, side="right"))
    try:
        with pa.OSFile(str(run.path)) as file:
            reader = pa.ipc.open_file(file)
            table = pa.Table.from_batches([reader.get_batch(at) for at in range(start, stop)], reader.schema)
    except (pa.ArrowException, OSError):
        raise IntegrityError(f"{label(run.path)}: no readable rows of a lookup table; run again") from None
    hashes = table.column(HASH).to_numpy()
    begin = int(np.searchsorted(hashes, low, side="left"))
    return table.slice(begin, int(np.searchsorted(hashes, high, side="right")) - begin)
