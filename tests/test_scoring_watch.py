"""A run is watched from another process until it ends, and the watcher ends with the run's true code."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from schemas.documents import write_document
from scoring.cli import cli
from scoring.status import StatusFile, read_statuses, status_path
from scoring.vitals import Vitals, vitals_of
from scoring.watch import table, watch
from tests.commands import run_command
from tests.launches import notes, score_here
from tests.made_runs import MadeRecord, make_build, make_run


def age(run: Path, seconds: float) -> None:
    """Let the statuses of a run be older."""
    for status in read_statuses(run):
        older = status.model_copy(update={"updated_at": status.updated_at - seconds})
        write_document(status_path(run, status.rank), older, replace=True)


def test_a_run_is_watched_to_its_end(tmp_path: Path) -> None:
    """Each look shows what the ranks wrote by then, and the last one that the run is complete."""
    build = make_build(tmp_path / "corpus", [MadeRecord("a")])
    run, seen = tmp_path / "run", list[str]()
    status = StatusFile(run, 0, 1)
    status.begin(num_blocks=1, num_estimated=10)

    def looked(ranks: Sequence[Vitals]) -> None:
        seen.append(ranks[0].status.state)
        if len(seen) == 2:
            status.say("waiting")
        if len(seen) == 3:
            status_path(run, 0).unlink()
            make_run(run, build, num_ranks=1)

    ranks = watch(run, looked, seconds_between_looks=0.0)

    assert seen == ["scoring", "scoring", "waiting", "done"]
    assert [rank.status.state for rank in ranks] == ["done"]


def test_watching_ends_with_the_true_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a run that failed on every rank, and is not started again, the lines tell the rate and the code."""
    run = tmp_path / "run"
    for rank, code in enumerate([143, 65]):
        StatusFile(run, rank, 2).say("failed", message="found; cure", exit_code=code)
    age(run, 30)

    outcome = run_command(cli, ["status", run, "--watch"], capsys)

    lines = outcome.out.splitlines()
    assert outcome.code == 65
    assert lines[-1] == "run: exit code 65"
    assert lines[:2] == lines[2:4]  # once while watched, once as the result
    assert lines[1].startswith("rank 1: failed, 0 of 0 blocks, no tokens computed, last heartbeat 3")
    assert lines[1].endswith(" s ago, exit code 65: found; cure")


def test_a_watched_run_is_one_object_with_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --json nothing is printed before the end."""
    run = tmp_path / "run"
    StatusFile(run, 0, 1).say("scoring")
    age(run, 100)

    outcome = run_command(cli, ["status", run, "--watch", "--json"], capsys)

    assert outcome.code == 75
    assert outcome.out.count("\n") == 1
    assert '"is_silent": true' in outcome.out


def test_the_table_names_a_silent_rank(tmp_path: Path) -> None:
    """A terminal shows every rank with its state, pace and last heartbeat, and who is silent."""
    for rank in range(2):
        StatusFile(tmp_path, rank, 2).say("scoring")
    now = read_statuses(tmp_path)[0].updated_at
    ranks = [vitals_of(status, now=now + 90 * status.rank) for status in read_statuses(tmp_path)]
    console = Console(file=io.StringIO(), width=150)

    console.print(table(ranks))

    assert isinstance(console.file, io.StringIO)
    head, first, second = console.file.getvalue().splitlines()
    assert head.split() == ["rank", "state", "blocks", "tokens", "left", "last", "heartbeat", "code", "message"]
    assert "SILENT" not in first
    assert "90 s ago, SILENT" in second


def test_a_scoring_rank_tells_what_is_planned_and_done(tiny_llama: Path, tmp_path: Path) -> None:
    """After a run the status has the build's estimate of all tokens as planned and done, and the time it took."""
    build = make_build(tmp_path / "corpus", notes(8, 3))

    score_here(build.corpus, tmp_path / "run", tiny_llama)

    [status] = read_statuses(tmp_path / "run")
    estimated = sum(shard.estimated_tokens for shard in build.manifest.shards)
    assert (status.num_estimated_done, status.num_estimated_planned) == (estimated, estimated)
    assert status.num_recent_tokens == status.num_tokens > 0
    assert 0 < status.recent_seconds <= status.scoring_seconds
