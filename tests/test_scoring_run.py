"""Whole runs: the same partials from any launch, and an end that is true whatever happened on the way."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from schemas.documents import read_document
from schemas.errors import UsageError
from schemas.manifests import RankStatus, RunHeader
from schemas.partials import list_partials, read_partial
from scoring.assignment import RankIdentity
from scoring.cli import cli
from scoring.run import run_rank
from scoring.status import read_statuses
from tests.commands import run_command
from tests.launches import (
    arguments_of,
    assert_same,
    complete,
    launch,
    notes,
    partial_names,
    score_here,
    settings_of,
)
from tests.made_runs import MadeBuild, MadeRecord, make_build
from tests.sessions import poisoned

ModelOf = Callable[[str], Path]
SETTINGS = {"max_length": 64, "tile_tokens": 256}


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> MadeBuild:
    """A build of 27 short notes in two departments; read only."""
    return make_build(tmp_path_factory.mktemp("corpus"), notes(27, 3))


@pytest.fixture(scope="module")
def alone(build: MadeBuild, tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of one process; read only."""
    run = tmp_path_factory.mktemp("alone") / "run"
    score_here(build.corpus, run, tiny_llama, **SETTINGS)
    return run


@pytest.fixture
def copy(alone: Path, tmp_path: Path) -> Path:
    """The same, to be changed."""
    return shutil.copytree(alone, tmp_path / "run")


def unfinished(run: Path) -> Path:
    """A run before it was sealed."""
    (run / "COMPLETE").unlink()
    return run


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file with its time and content."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


@pytest.mark.parametrize(
    "num_ranks", [2, pytest.param(3, marks=pytest.mark.slow), pytest.param(5, marks=pytest.mark.slow)]
)
def test_torchrun_of_any_size_gives_the_same_run(
    num_ranks: int, build: MadeBuild, tiny_llama: Path, alone: Path, tmp_path: Path
) -> None:
    """Partials (which carry their digest in the name), header and totals equal those of a single process."""
    run = tmp_path / "run"

    outcome = launch([*arguments_of(build.corpus, run, tiny_llama, **SETTINGS), "--json"], num_ranks=num_ranks)

    assert outcome.code == 0
    assert_same(run, alone)
    assert complete(run).num_ranks == num_ranks
    assert [(status.state, status.exit_code) for status in read_statuses(run)] == [("done", 0)] * num_ranks
    figures = json.loads(outcome.out)  # one object: rank 0 alone speaks
    assert figures["num_records"] == 26
    assert figures["skipped"] == {"no_scored_tokens": 0, "no_tokens": 1, "non_finite_loss": 0}


def test_every_record_is_in_one_partial(build: MadeBuild, alone: Path) -> None:
    """Scored or skipped, each record of the build stands in the partials once."""
    run_id, found = complete(alone).run_id, []

    for partial in list_partials(alone):
        table, _ = read_partial(partial, run_id=run_id, features=[])
        found += table.column("record_id").to_pylist()

    assert sorted(found) == sorted(build.records)


def test_no_output_holds_text(alone: Path, build: MadeBuild) -> None:
    """Neither a word of a note nor a raw id is in any file of a run."""
    words = {word.encode() for record in build.records.values() for word in record.note.split() if len(word) > 7}

    contents = b"".join(content for _, content in tree(alone).values())

    assert b"hypertension" not in contents
    assert not [word for word in words if word in contents]


def test_a_finished_run_is_a_no_op(
    copy: Path, build: MadeBuild, tiny_llama: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run again, a finished run says the same and touches no file."""
    before = tree(copy)

    outcome = run_command(cli, arguments_of(build.corpus, copy, tiny_llama, **SETTINGS), capsys)

    assert outcome.code == 0
    assert f"run {complete(copy).run_id} is complete: 26 records" in outcome.out
    assert tree(copy) == before


@pytest.mark.parametrize("is_finished", [True, False])
@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"stride": 32}, "stride"),
        ({"max_length": 63}, "max_length"),
        ({"precision": "bf16"}, "precision"),
        ({"prefix": "none"}, "prefix"),
        ({"tile_tokens": 128}, "tile_tokens"),
        ({"threads_per_rank": 2}, "threads_per_rank"),
        ({"limit_blocks": 2}, "build"),
    ],
)
def test_other_settings_are_refused(
    change: dict[str, object],
    part: str,
    is_finished: bool,
    copy: Path,
    build: MadeBuild,
    tiny_llama: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A folder keeps the settings of its run: exit 2, what differs is named, and no partial is touched."""
    run = copy if is_finished else unfinished(copy)
    before = partial_names(run)

    outcome = run_command(cli, arguments_of(build.corpus, run, tiny_llama, **{**SETTINGS, **change}), capsys)

    assert outcome.code == 2
    assert part in outcome.err
    assert "use another --out" in outcome.err
    assert partial_names(run) == before
    assert (run / "COMPLETE").exists() == is_finished


@pytest.mark.parametrize("is_finished", [True, False])
def test_another_model_is_refused(
    is_finished: bool, copy: Path, build: MadeBuild, model_of: ModelOf, capsys: pytest.CaptureFixture[str]
) -> None:
    """Partials of one model never stand for another."""
    run = copy if is_finished else unfinished(copy)

    outcome = run_command(cli, arguments_of(build.corpus, run, model_of("gpt2"), **SETTINGS), capsys)

    assert outcome.code == 2
    assert "model" in outcome.err


def test_another_build_is_refused(copy: Path, tiny_llama: Path, tmp_path: Path) -> None:
    """Nor do those of one build."""
    other = make_build(tmp_path / "other", notes(9, 2))

    with pytest.raises(UsageError, match="differs in build; use another --out"):
        score_here(other.corpus, copy, tiny_llama, **SETTINGS)


def test_a_folder_of_other_files_is_refused(build: MadeBuild, tiny_llama: Path, tmp_path: Path) -> None:
    """A folder that holds something else is not written into."""
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "a.txt").write_bytes(b"dear")

    with pytest.raises(UsageError, match="holds files that are no run's"):
        score_here(build.corpus, tmp_path / "letters", tiny_llama, **SETTINGS)

    assert [path.name for path in (tmp_path / "letters").iterdir()] == ["a.txt"]


def test_a_resumed_run_keeps_its_threads(copy: Path, alone: Path, build: MadeBuild, tiny_llama: Path) -> None:
    """Without --threads-per-rank a resume computes with the threads of the run, so the bits stay."""
    list_partials(unfinished(copy))[0].path.unlink()

    score_here(build.corpus, copy, tiny_llama, **SETTINGS, threads_per_rank=None)

    assert_same(copy, alone)


def test_a_limited_run_is_marked(build: MadeBuild, tiny_llama: Path, tmp_path: Path) -> None:
    """--limit-blocks scores the first blocks only, under an id of its own, and the header says so."""
    manifest = score_here(build.corpus, tmp_path / "run", tiny_llama, **SETTINGS, limit_blocks=3)

    header = read_document(tmp_path / "run" / "run.json", RunHeader)
    first = [(shard.shard_id, block) for shard in build.manifest.shards for block in range(len(shard.blocks))][:3]
    assert [(entry.shard_id, entry.block) for entry in manifest.partials] == first
    assert header.limited_to == 3
    assert header.fingerprint["build"]["limit_blocks"] == 3


def test_a_damaged_shard_fails_its_run_by_name(
    build: MadeBuild, tiny_llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One flipped byte of a shard: torchrun says 1, the status says 65 and which shard, and nothing is sealed."""
    corpus, run = shutil.copytree(build.corpus, tmp_path / "corpus"), tmp_path / "run"
    shard = build.manifest.shards[1]
    path = corpus / "builds" / build.manifest.build_id / shard.path
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)

    outcome = launch(arguments_of(corpus, run, tiny_llama, **SETTINGS), num_ranks=1)
    told = run_command(cli, ["status", run, "--json"], capsys)

    assert outcome.code == 1
    assert told.code == 65
    ranks = [
        RankStatus.model_validate({name: rank[name] for name in RankStatus.model_fields})
        for rank in json.loads(told.out)["ranks"]
    ]
    messages = [rank.message for rank in ranks if rank.exit_code == 65]
    assert messages
    assert all(f"{shard.shard_id}.parquet: sha256 is" in message for message in messages)
    assert all("restore the file" in message for message in messages)
    assert not (run / "COMPLETE").exists()


def test_too_many_quarantined_records_fail_the_run(
    tiny_llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two NaN records of eight are 65 and no COMPLETE; tolerated, they are listed by id and the rest is summed."""
    texts = [f"note {index}" + " ~ end" * (index in (2, 5)) for index in range(8)]
    made = make_build(tmp_path / "corpus", [MadeRecord(f"n{index}", text=text) for index, text in enumerate(texts)])
    model, run = poisoned(tiny_llama, tmp_path / "model", "~"), tmp_path / "run"

    refused = run_command(cli, arguments_of(made.corpus, run, model), capsys)
    statuses, is_sealed = read_statuses(run), (run / "COMPLETE").exists()
    tolerated = run_command(cli, arguments_of(made.corpus, run, model, max_quarantined=0.25), capsys)

    assert (refused.code, is_sealed) == (65, False)
    assert "2 of 8 records have a NaN or infinite loss, at most 0.001 of them may" in refused.err
    assert [(status.state, status.exit_code) for status in statuses] == [("failed", 65)]
    again = run_command(cli, arguments_of(made.corpus, run, model), capsys)

    assert (tolerated.code, again.code) == (0, 65)
    assert complete(run).totals.num_records == 6
    assert complete(run).totals.skipped["non_finite_loss"] == 2
    bad = {record_id for record_id, record in made.records.items() if "~" in record.note}
    assert quarantined(run) == bad


def quarantined(run: Path) -> set[bytes]:
    """Ids of the records with a loss that is not finite."""
    ids: set[bytes] = set()
    for partial in list_partials(run):
        table, _ = read_partial(partial, run_id=complete(run).run_id, features=[])
        rows = table.select(["record_id", "status"]).to_pylist()
        ids |= {row["record_id"] for row in rows if row["status"] == "non_finite_loss"}
    return ids


def test_a_refused_second_job_leaves_no_trace(build: MadeBuild, tiny_llama: Path, alone: Path, tmp_path: Path) -> None:
    """Statuses of a second job's ranks are gone when the first one seals, so the run can be reported."""
    run = shutil.copytree(alone, tmp_path / "run")
    list_partials(unfinished(run))[0].path.unlink()
    for name in ("rank-00001.json", "rank-00002.json"):
        shutil.copy(run / "status" / "rank-00000.json", run / "status" / name)

    run_rank(build.corpus, run, settings_of(tiny_llama, **SETTINGS), identity=RankIdentity())

    assert [path.name for path in (run / "status").iterdir()] == ["rank-00000.json"]
    assert_same(run, alone)
