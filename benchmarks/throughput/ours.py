"""Ours: a whole run over a sealed, encrypted build, with clocks on the rank's share and on every tile.

The time is that of ``scoring.work.score_share``: blocks are read, decrypted, verified, encoded, computed, and their
partials published. Loading and the self-test, whose tiles warm the kernels up, come before. What is not spent in tiles
is the share of everything but the model; reading and writing go on in threads of their own meanwhile, and what they
take from the cores lengthens the tiles instead.

Under torchrun each rank leaves an outcome of its own.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.throughput.values import Outcome, Task, read_task, write_outcome
from schemas.errors import IntegrityError


@dataclass(slots=True)
class Clock:
    """Times of one run; tiles count from the start of the rank's share on, not those of the self-test."""

    started: float = 0.0
    stopped: float = 0.0
    first_tile: float = 0.0
    compute_seconds: float = 0.0
    num_tiles: int = 0
    num_inputs: int = 0
    num_positions: int = 0


def main() -> None:
    """Measure the task that is named on the command line, as the rank that the environment says."""
    from scoring.assignment import rank_identity

    task = read_task(Path(sys.argv[1]))
    identity = rank_identity()
    path = Path(task.outcome)
    write_outcome(measured(task, identity), path if identity.num_ranks == 1 else Path(f"{path}.{identity.rank}"))


def measured(task: Task, identity: Any) -> Outcome:
    """Run a rank by the clock.

    Raises:
        IntegrityError: no tile was seen, so nothing was measured.
    """
    from schemas.access_options import reader_access
    from scoring.config import ScoringSettings
    from scoring.run import run_rank

    build, run = Path(task.build), Path(task.run)
    access = reader_access(build, principal=None, keyring=None, plaintext=False)
    settings = ScoringSettings(
        model=Path(task.model),
        max_length=task.max_length,
        precision=task.precision,
        device="cpu",
        threads_per_rank=task.threads,
        dedup=task.dedup,
        tile_tokens=task.tile_tokens,
    )
    with clocked() as clock:
        manifest = run_rank(build, run, settings, identity=identity, access=access)
    if not clock.num_tiles and identity.num_ranks == 1:  # one of several ranks may have no block
        raise IntegrityError("ours: no tile was computed, so nothing was measured; use a fresh run folder")
    losses, tokens = _by_note(task, manifest.run_id, access) if task.compared else ([], [])
    return Outcome(
        seconds=clock.stopped - clock.started,
        num_tokens=manifest.totals.num_tokens,
        started=clock.started,
        stopped=clock.stopped,
        losses_nats=losses,
        tokens=tokens,
        versions={name: version(name) for name in ("torch", "transformers")},
        figures={
            "other_share": 1 - clock.compute_seconds / (clock.stopped - clock.started),
            "first_tile_seconds": clock.first_tile - task.launched_at,
            "num_tiles": clock.num_tiles,
            "tile_fill": clock.num_inputs / max(clock.num_positions, 1),
        },
    )


@contextmanager
def clocked() -> Iterator[Clock]:
    """Put clocks on the share and the tiles of runs within the block, and take them off again."""
    run: Any = import_module("scoring.run")
    session: Any = import_module("scoring.session")
    clock = Clock()
    make_tile_function, score_share = session.make_tile_function, run.score_share

    def timed_share(*arguments: Any) -> None:
        clock.started = time.monotonic()
        score_share(*arguments)
        clock.stopped = time.monotonic()

    def timed_tiles(model: Any, menu: Any) -> Callable[[int, Sequence[Any]], Any]:
        return _timed(make_tile_function(model, menu), menu, clock)

    session.make_tile_function, run.score_share = timed_tiles, timed_share
    try:
        yield clock
    finally:
        session.make_tile_function, run.score_share = make_tile_function, score_share


def _timed(compute: Callable[[int, Sequence[Any]], Any], menu: Any, clock: Clock) -> Callable[..., Any]:
    def timed(length: int, rows: Sequence[Any]) -> Any:
        started = time.monotonic()
        losses = compute(length, rows)
        if clock.started:
            clock.first_tile = clock.first_tile or started
            clock.compute_seconds += time.monotonic() - started
            clock.num_tiles += 1
            clock.num_inputs += sum(len(row.inputs) for row in rows)
            clock.num_positions += menu.rows_of(length) * length
        return losses

    return timed


def _by_note(task: Task, run_id: str, access: Any) -> tuple[list[float], list[int]]:
    """Losses and tokens in the order of the notes, which are distinct, so that a text names its note."""
    from schemas.folders import open_build
    from schemas.partials import list_partials, read_partial
    from scoring.blocks import read_blocks

    build = open_build(Path(task.build), access)
    partials = {partial.key: partial for partial in list_partials(Path(task.run))}
    found: dict[str, tuple[float, int]] = {}
    for block in read_blocks(build, sorted(partials), broken={}):  # what is broken lacks below
        features, key = list(build.manifest.features), build.results_key(block.key.department)
        table, _ = read_partial(partials[block.key], run_id=run_id, features=features, results_key=key)
        scores = zip(table["loss_nats"].to_pylist(), table["num_tokens"].to_pylist(), strict=True)
        found.update(zip(block.texts, scores, strict=True))
    texts: list[str] = json.loads(Path(task.notes).read_text(encoding="utf-8"))
    if found.keys() != set(texts):
        raise IntegrityError(f"ours: {len(found)} notes have losses, {len(texts)} were raced; use a fresh --work")
    return [found[text][0] for text in texts], [found[text][1] for text in texts]


if __name__ == "__main__":
    main()
