"""The scoring race: what is concluded from outcomes, that the work is equal, and that the clocks see a real run."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.throughput import limit, ours, plain, prepare
from benchmarks.throughput.findings import (
    Finding,
    best_batch,
    compared,
    pair_findings,
    race_findings,
    require_equal_work,
    require_one_version,
)
from benchmarks.throughput.table import as_json, shown, table_lines
from benchmarks.throughput.values import (
    PRECISIONS,
    Outcome,
    Precision,
    Task,
    read_outcome,
    read_task,
    write_outcome,
    write_task,
)
from schemas.errors import DataError, IntegrityError
from scoring.assignment import RankIdentity
from scoring.checkpoints import locate
from scoring.models import load_encoder
from tests.gguf_files import write_pair
from tests.made_runs import MadeRecord, make_build
from tests.models import SENTENCES
from tests.pipelines import ROOT, environment

NOTES = sorted((f"{sentence} Visit {number}." for number, sentence in enumerate(SENTENCES[:4])), key=len, reverse=True)
VERSIONS = {"torch": "2.13.0+cpu", "transformers": "5.24.0"}
seconds = st.floats(0.1, 1e4)


def outcome(num_seconds: float, *, losses: Sequence[float] = (), **figures: float) -> Outcome:
    """An outcome of 1,000 tokens."""
    tokens = [10] * len(losses)
    return Outcome(num_seconds, 1000, losses_nats=list(losses), tokens=tokens, versions=VERSIONS, figures=figures)


def of_ours(num_seconds: float) -> Outcome:
    """An outcome of ours."""
    return outcome(num_seconds, first_tile_seconds=4.0, other_share=0.1, tile_fill=0.9)


def value_of(findings: Sequence[Finding], name: str) -> Finding:
    """The finding of a name."""
    [found] = [one for one in findings if one.name == name]
    return found


def task_of(folder: Path, model: Path, *, dedup: bool = False) -> Task:
    """A task over ``NOTES`` with its build."""
    records = [MadeRecord(str(number), "Cardiology", text=text) for number, text in enumerate(NOTES)]
    corpus = make_build(folder / "corpus", records).corpus
    (folder / "notes.json").write_text(json.dumps(NOTES), encoding="utf-8")
    prefix_id = load_encoder(locate(model, None), policy="auto").prefix_id
    assert prefix_id is not None
    return Task(
        model=str(model),
        notes=str(folder / "notes.json"),
        precision="fp32",
        threads=1,
        max_length=256,
        prefix_id=prefix_id,
        outcome=str(folder / "outcome.json"),
        launched_at=0.0,
        build=str(corpus),
        run=str(folder / "run"),
        dedup=dedup,
    )


@given(st.lists(seconds, min_size=1, max_size=5), st.lists(seconds, min_size=1, max_size=5))
def test_the_ratio_is_that_of_the_median_rates(mine: list[float], theirs: list[float]) -> None:
    """A ratio has its value whatever the order of the turns, and is the peer's inverse."""
    one, other = [of_ours(each) for each in mine], [outcome(each) for each in theirs]

    found = pair_findings("fp32", "ranks", one, other)
    swapped = pair_findings("fp32", "ranks", other, one)
    reordered = pair_findings("fp32", "ranks", one[::-1], other[::-1])

    assert found == reordered
    assert math.isclose(found[-1].value * swapped[-1].value, 1.0)


def test_utilisation_is_model_flops_over_the_highest_peak_seen() -> None:
    """100 tokens/s of 2 FLOP each on a machine that once showed 400 FLOP/s are 50 %, and miss the goal of 70 %."""
    limits = [outcome(1, flops_per_token=2.0, peak_flops=peak) for peak in (400.0, 100.0, 200.0)]

    found = race_findings("fp32", {"ours": [of_ours(10)], "limit": limits, "plain": [outcome(20)]})

    assert value_of(found, "model-FLOPs utilisation").value == 0.5
    assert value_of(found, "model-FLOPs utilisation").is_met is False
    assert value_of(found, "ours to plain").value == 2.0
    assert value_of(found, "ours to plain").is_met is True
    assert value_of(found, "all but the model").is_met is False
    assert value_of(found, "start to first tile").is_met is True


def test_the_harness_races_with_its_best_batch_that_fits() -> None:
    """The fastest batch size is taken, those that ran out of memory are not, and if all did that is an error."""
    none_fits = {1: Outcome(is_out_of_memory=True)}

    assert best_batch({1: outcome(30), 8: outcome(20), 16: Outcome(is_out_of_memory=True)}) == 8
    with pytest.raises(IntegrityError, match="no batch size fits"):
        best_batch(none_fits)


def test_unequal_work_is_no_race() -> None:
    """Other tokens, other losses or other libraries than ours are errors, rounding in a peer's dtype is not."""
    mine, peer = outcome(1, losses=[10.0, 20.0]), outcome(1, losses=[10.0, 20.01])
    difference = compared(mine, peer)

    assert math.isclose(difference.record, 5e-4, rel_tol=1e-9)
    assert math.isclose(difference.total, 0.01 / 30, rel_tol=1e-9)
    require_equal_work(difference, "bf16", "plain")
    with pytest.raises(IntegrityError, match="plain in fp32"):
        require_equal_work(difference, "fp32", "plain")
    with pytest.raises(IntegrityError, match="1 notes differ"):
        compared(mine, Outcome(losses_nats=[10.0, 20.0], tokens=[10, 11]))
    with pytest.raises(IntegrityError, match=r"torch 2\.12\.0 and 2\.13\.0"):
        require_one_version([mine, Outcome(versions=VERSIONS | {"torch": "2.12.0"})])


def test_a_nan_loss_is_not_equal_work() -> None:
    """A peer whose losses are NaN differs from ours, whatever the limits."""
    difference = compared(outcome(1, losses=[10.0]), outcome(1, losses=[math.nan]))

    with pytest.raises(IntegrityError, match="plain in bf16"):
        require_equal_work(difference, "bf16", "plain")


def test_tasks_and_outcomes_travel_whole(tmp_path: Path, tiny_llama: Path) -> None:
    """What a process is told and what it found are the same on the other side."""
    task, found = task_of(tmp_path, tiny_llama), of_ours(3.0)

    write_task(task, tmp_path / "task")
    write_outcome(found, tmp_path / "found")

    assert read_task(tmp_path / "task") == task
    assert read_outcome(tmp_path / "found") == found


def test_the_table_shows_each_figure_with_its_goal() -> None:
    """Every finding is a row with its verdict, and the JSON holds the same."""
    findings = [Finding("fp32", "ours to plain", 1.234, "x", 1.5), Finding("fp32", "matmul peak", 3e11, "FLOP/s")]

    lines = table_lines(findings, {"plain fp32": compared(outcome(1, losses=[2.0]), outcome(1, losses=[2.0]))})
    found = as_json(findings, {}, {"records": 4})

    assert "| fp32 | ours to plain | 1.23x | at least 1.50x | **not met** |" in lines
    assert "| fp32 | matmul peak | 300 GFLOP/s |  |  |" in lines
    assert "| plain fp32 | 0.0e+00 | 0.0e+00 |" in lines
    assert found["findings"][0] == asdict(findings[0]) | {"is_met": False}
    assert shown(0.725, "share") == "72.5 %"


@pytest.mark.parametrize("kind", ["llama", "gpt2", "qwen2"])
def test_the_limit_knows_every_projection(kind: str, model_of: Callable[[str], Path]) -> None:
    """The products of a model are all its matrices but the lookup tables; GPT-2's transposed ones too."""
    from transformers import AutoModelForCausalLM

    folder = model_of(kind)
    model = AutoModelForCausalLM.from_pretrained(folder)
    lookups = {"wte", "wpe", "embed_tokens"}
    matrices = [
        weight.numel()
        for name, weight in model.base_model.named_parameters()
        if weight.dim() == 2 and name.split(".")[-2] not in lookups
    ]

    shapes, head = limit.projections(folder)

    assert limit.flops_per_token(shapes) == 2 * sum(matrices)
    assert limit.flops_per_token([head]) == 2 * model.get_output_embeddings().weight.numel()


def test_only_distinct_notes_of_one_window_race(tiny_llama: Path) -> None:
    """Repeats, blanks and notes that are too long are passed over, and the rest come longest first."""
    encoder = load_encoder(locate(tiny_llama, None), policy="auto")
    rows = [("short", "A"), ("a longer note", "B"), ("short", "B"), (" ", "A"), ("too long " * 50, "A"), ("last", "A")]

    found = prepare.chosen(iter(rows), encoder, max_length=40, num_records=2)

    assert [(text, department) for text, department, _ in found] == [("a longer note", "B"), ("short", "A")]
    with pytest.raises(DataError, match="none of 1 to 39 tokens"):
        prepare.chosen(iter(rows[3:5]), encoder, max_length=40, num_records=2)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_ours_and_the_plain_loop_do_equal_work(precision: Precision, tmp_path: Path, tiny_llama: Path) -> None:
    """A real run under the clocks and the plain loop find the same losses of each note, and the clocks come off."""
    from scoring import run

    task, score_share = replace(task_of(tmp_path, tiny_llama), precision=precision), vars(run)["score_share"]

    mine = ours.measured(task, RankIdentity())
    peer = plain.measured(task)

    require_equal_work(compared(mine, peer), precision, "plain")
    assert mine.num_tokens == peer.num_tokens == sum(mine.tokens)
    assert 0 < mine.figures["other_share"] < 1
    assert 0 < mine.figures["tile_fill"] <= 1
    assert mine.started <= mine.figures["first_tile_seconds"] + task.launched_at <= mine.stopped
    assert vars(run)["score_share"] is score_share
    with pytest.raises(IntegrityError, match="no tile was computed"):
        ours.measured(task, RankIdentity())


def test_a_gguf_file_becomes_a_folder_that_peers_load(tmp_path: Path) -> None:
    """The exported folder has the weights and the tokenizer of the file, bit for bit and id for id."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    write_pair(tmp_path / "model.gguf", tmp_path / "pair")
    checkpoint = locate(tmp_path / "model.gguf", None)
    encoder = load_encoder(checkpoint, policy="auto")

    folder = prepare.export(checkpoint, encoder, tmp_path / "model")

    wanted = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="model.gguf", dtype=torch.float32).state_dict()
    found = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()
    assert wanted.keys() == found.keys()
    assert all(torch.equal(weight, found[name]) for name, weight in wanted.items())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for text in (*NOTES, "1. 2024-11-05 12 mg"):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert [encoder.prefix_id, *ids] == encoder.encode([text])[0].positions.tolist()


def command(*options: object) -> subprocess.CompletedProcess[str]:
    """The benchmark as it is typed."""
    program = [sys.executable, str(ROOT / "benchmarks" / "scoring_throughput.py")]
    return subprocess.run(
        [*program, *map(str, options)], check=False, capture_output=True, text=True, timeout=600, env=environment()
    )


@pytest.mark.slow
def test_the_benchmark_runs_as_typed(tmp_path: Path, tiny_llama: Path) -> None:
    """One command writes the table and the JSON; what cannot be done is told in one line."""
    notes = {"note_id": [str(each) for each in range(8)], "text": [*NOTES, *NOTES], "department": ["A"] * 8}
    pq.write_table(pa.table(notes), tmp_path / "notes.parquet")
    common = ["--model", tiny_llama, "--work", tmp_path / "work", "--notes", tmp_path / "notes.parquet"]
    contenders = [word for name in ("ours", "plain", "limit") for word in ("--contender", name)]

    done = command(*common, *contenders, "--precision", "fp32", "--pair-precision", "fp32", "--repeats", 1, "--json")
    wrong = command(*common, "--text", "absent")

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    names = {one["name"] for one in found["findings"]}
    assert {"ours to plain", "model-FLOPs utilisation", "dedup on to dedup off"} <= names
    assert found == json.loads((tmp_path / "work" / "results.json").read_text())
    assert (tmp_path / "work" / "results.md").read_text().startswith("| precision |")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
    assert wrong.stderr.startswith("error: prepare: notes: no column absent")
