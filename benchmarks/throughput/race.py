"""The turns: every contender once a turn, one after the other, so that a machine whose speed moves moves for all."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.throughput.findings import (
    Difference,
    Finding,
    best_batch,
    compared,
    pair_findings,
    race_findings,
    require_equal_work,
    require_one_version,
)
from benchmarks.throughput.processes import Place, measure
from benchmarks.throughput.values import Outcome, Precision, Task

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Field:
    """Who races over what.

    Attributes:
        place: Where.
        task: Of ours, in full; the peers' are made from it.
        peer_folder: Model folder of the peers.
        contenders: Names of modules of this package.
        batch_sizes: That the harness tries in the first turn; later turns are with the best.
        repeats: Turns.
        say: Tells people what goes on.
    """

    place: Place
    task: Task
    peer_folder: str
    contenders: Sequence[str]
    batch_sizes: Sequence[int]
    repeats: int
    say: Say


@dataclass(slots=True)
class Results:
    """All that was found so far."""

    findings: list[Finding] = field(default_factory=list)
    differences: dict[str, Difference] = field(default_factory=dict)
    batches: dict[str, dict[int, float | None]] = field(default_factory=dict)


def race(where: Field, precision: Precision, results: Results) -> None:
    """All turns of one precision.

    Raises:
        IntegrityError: the contenders did not do the same work.
        TemporaryError: one of them failed.
    """
    turns: dict[str, list[Outcome]] = {name: [] for name in where.contenders}
    for turn in range(where.repeats):
        for name, outcomes in turns.items():
            outcomes.append(_turn(where, name, precision, turn=turn, results=results))
    require_one_version([outcome for outcomes in turns.values() for outcome in outcomes])
    for peer in sorted(turns.keys() & {"harness", "plain"}):
        difference = compared(turns["ours"][0], turns[peer][0])
        require_equal_work(difference, precision, peer)
        results.differences[f"{peer} {precision}"] = difference
    results.findings += race_findings(precision, turns)


def pair(where: Field, name: str, precision: Precision, results: Results) -> None:
    """Two ways to run ours in turns: ``dedup`` on and off, or ``ranks``: two of one thread, and one of two."""
    one: list[Outcome] = []
    other: list[Outcome] = []
    for turn in range(where.repeats):
        task = replace(where.task, precision=precision, compared=False)
        if name == "dedup":
            one.append(_ours(where, replace(task, dedup=True), f"dedup-on-{precision}-{turn}"))
            other.append(_ours(where, task, f"dedup-off-{precision}-{turn}"))
        else:
            one.append(_ours(where, replace(task, threads=1), f"ranks-two-{precision}-{turn}", num_ranks=2))
            other.append(_ours(where, replace(task, threads=2), f"ranks-one-{precision}-{turn}"))
    results.findings += pair_findings(precision, name, one, other)


def _turn(where: Field, name: str, precision: Precision, *, turn: int, results: Results) -> Outcome:
    task = replace(where.task, precision=precision)
    if name == "ours":
        return _ours(where, task, f"ours-{precision}-{turn}")
    task = replace(task, model=where.peer_folder)
    if name != "harness":
        return _measured(where, name, task, f"{name}-{precision}-{turn}")
    tried = results.batches.get(precision)
    sizes = [best_size(tried)] if tried else list(where.batch_sizes)
    found = {
        size: _measured(where, name, replace(task, batch_size=size), f"harness-{precision}-{turn}-batch-{size}")
        for size in sizes
    }
    results.batches.setdefault(
        precision, {size: None if one.is_out_of_memory else one.rate for size, one in found.items()}
    )
    return found[best_batch(found)]


def best_size(rates: dict[int, float | None]) -> int:
    """The batch size that was fastest in the first turn."""
    return max(rates, key=lambda size: rates[size] or 0.0)


def _ours(where: Field, task: Task, name: str, *, num_ranks: int = 1) -> Outcome:
    run = where.place.work / "runs" / name
    shutil.rmtree(run, ignore_errors=True)
    run.parent.mkdir(exist_ok=True)
    return _measured(where, "ours", replace(task, run=str(run)), name, num_ranks=num_ranks)


def _measured(where: Field, contender: str, task: Task, name: str, *, num_ranks: int = 1) -> Outcome:
    folder = where.place.work / "outcomes"
    folder.mkdir(exist_ok=True)
    where.say(f"{name}: started")
    found = measure(where.place, contender, replace(task, outcome=str(folder / f"{name}.json")), num_ranks=num_ranks)
    rate = "out of memory" if found.is_out_of_memory else f"{found.rate:,.0f} tokens/s in {found.seconds:.1f} s"
    where.say(
        f"{name}: {rate}" if contender != "limit" else f"{name}: {found.figures['peak_flops'] / 1e9:,.0f} GFLOP/s"
    )
    return found


def build(place: Place, notes: Path, name: str, *, columns: Sequence[str]) -> Path:
    """A sealed, encrypted corpus of notes; ``columns`` are those of id, text and department."""
    import sys

    corpus = place.work / f"corpus-{name}"
    shutil.rmtree(corpus, ignore_errors=True)
    mapping = [word for pair in zip(("--id", "--text", "--department"), columns, strict=True) for word in pair]
    command = ["sharding", "build", str(notes), "--out", str(corpus), "--workers", "1", *mapping]
    place.required([sys.executable, "-m", *command], f"build-{name}")
    return corpus
