"""The command line of the race."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import click

from benchmarks.throughput.processes import Place, install_harness
from benchmarks.throughput.race import Field, Results, build, pair, race
from benchmarks.throughput.table import as_json, table_lines
from benchmarks.throughput.values import BATCH_SIZES, PRECISIONS, Precision, Task
from schemas.console import NamedPath, emit, notice
from schemas.errors import UsageError
from scoring.config import TILE_TOKENS

CONTENDERS = ("ours", "harness", "plain", "limit")
PARTS = ("race", "dedup", "ranks")
MADE_COLUMNS = ("note_id", "text", "department")
MADE_TIMES = 4
REMADE = ("logs", "model", "outcomes", "runs", "tasks")
EXISTING = NamedPath(exists=True, path_type=Path)


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--model", type=EXISTING, required=True, metavar="DIR_OR_GGUF", help="Model that all score with.")
@click.option("--work", type=NamedPath(path_type=Path), required=True, help="Folder for all files; holds note text.")
@click.option("--notes", type=EXISTING, metavar="PARQUET", help="One note a row. Without: synthetic notes.")
@click.option("--id", "id_column", default="note_id", help="Column of --notes with an id.")
@click.option("--text", "text_column", default="text", help="Column of --notes with the text.")
@click.option("--department", "department_column", default="department", help="Column of --notes with the department.")
@click.option("--records", type=click.IntRange(1), default=400, help="Distinct notes of the race.")
@click.option("--precision", "precisions", type=click.Choice(get_args(Precision)), multiple=True, default=PRECISIONS)
@click.option("--contender", "contenders", type=click.Choice(CONTENDERS), multiple=True, default=CONTENDERS)
@click.option("--batch-size", "batch_sizes", type=click.IntRange(1), multiple=True, default=BATCH_SIZES)
@click.option("--part", "parts", type=click.Choice(PARTS), multiple=True, default=PARTS, help="What is measured.")
@click.option("--pair-precision", type=click.Choice(get_args(Precision)), default="bf16", help="Of dedup and ranks.")
@click.option("--threads", type=click.IntRange(1), default=2, help="Compute threads of the race and of dedup.")
@click.option("--repeats", type=click.IntRange(1), default=3, help="Turns; dedup, on all notes, takes one.")
@click.option("--max-length", type=click.IntRange(2), help="Positions of a window.  [default: the model's, ≤ 2048]")
@click.option("--tile-tokens", type=click.IntRange(16), default=TILE_TOKENS, help="Tokens of our tiles.")
@click.option("--json", "as_object", is_flag=True, help="Print one JSON object on stdout.")
def cli(*, work: Path, precisions: Sequence[Precision], as_object: bool, **options: Any) -> None:
    """Race ours against the harness and a plain loop, and measure dedup, ranks, start-up and overhead."""
    if "ours" not in options["contenders"]:
        raise UsageError("--contender: ours is what the others are compared with; name it too")
    place = Place(work.resolve())
    where, whole = _field(place, options)
    results = Results()
    if "race" in options["parts"]:
        if "harness" in where.contenders:
            notice("harness: being installed, unless it is there")
            install_harness(place)
        for precision in precisions:
            race(where, precision, results)
    if "ranks" in options["parts"]:
        pair(where, "ranks", options["pair_precision"], results)
    if "dedup" in options["parts"]:
        pair(whole, "dedup", options["pair_precision"], results)
    setup = _setup(where, options) | {"harness_batches": results.batches}
    found = as_json(results.findings, results.differences, setup)
    lines = table_lines(results.findings, results.differences)
    (place.work / "results.json").write_text(json.dumps(found, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    (place.work / "results.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    emit(found, lines, as_json=as_object)


def _field(place: Place, options: dict[str, Any]) -> tuple[Field, Field]:
    """The race over distinct notes, and that over all of them, which takes one turn."""
    place.work.mkdir(parents=True, exist_ok=True)
    for name in REMADE:
        shutil.rmtree(place.work / name, ignore_errors=True)
    notes, columns = _notes(place, options)
    wanted = {
        "model": str(options["model"].resolve()),
        "work": str(place.work),
        "notes": str(notes),
        **dict(zip(("id", "text", "department"), columns, strict=True)),
        "records": options["records"],
        "max_length": options["max_length"],
    }
    place.required([sys.executable, "-m", "benchmarks.throughput.prepare", json.dumps(wanted)], "prepare")
    prepared = json.loads((place.work / "prepared.json").read_text(encoding="utf-8"))
    notice(f"{prepared['num_notes']:,} distinct notes, {prepared['num_tokens']:,} tokens")
    task = Task(
        model=wanted["model"],
        notes=str(place.work / "notes.json"),
        precision="fp32",
        threads=options["threads"],
        max_length=prepared["max_length"],
        prefix_id=prepared["prefix_id"],
        outcome="",
        launched_at=0.0,
        tile_tokens=options["tile_tokens"],
        build=str(build(place, place.work / "notes.parquet", "race", columns=MADE_COLUMNS)),
    )
    contenders = [name for name in CONTENDERS if name in options["contenders"]]
    sizes, repeats = sorted(set(options["batch_sizes"])), options["repeats"]
    where = Field(place, task, prepared["folder"], contenders, sizes, repeats, notice)
    if "dedup" not in options["parts"]:
        return where, where
    all_notes = Task(**{**_fields_of(task), "build": str(build(place, notes, "whole", columns=columns))})
    return where, Field(place, all_notes, prepared["folder"], contenders, sizes, 1, notice)


def _fields_of(task: Task) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(task)


def _notes(place: Place, options: dict[str, Any]) -> tuple[Path, Sequence[str]]:
    """The notes that were given, or synthetic ones, enough for the race."""
    if options["notes"] is not None:
        return options["notes"].resolve(), tuple(options[f"{name}_column"] for name in ("id", "text", "department"))
    path = place.work / "sample.parquet"
    path.unlink(missing_ok=True)
    sample = ["sharding", "sample", str(path), "--records", str(MADE_TIMES * options["records"])]
    place.required([sys.executable, "-m", *sample], "sample")
    return path, MADE_COLUMNS


def _setup(where: Field, options: dict[str, Any]) -> dict[str, Any]:
    """What a reader of the results has to know of the race; no path is in it."""
    return {
        "batch_sizes": list(where.batch_sizes),
        "contenders": list(where.contenders),
        "max_length": where.task.max_length,
        "model": options["model"].name,
        "pair_precision": options["pair_precision"],
        "records": options["records"],
        "repeats": where.repeats,
        "threads": where.task.threads,
        "tile_tokens": where.task.tile_tokens,
    }
