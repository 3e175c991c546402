"""Runs that end in the middle, by a signal or a kill, and go on with any number of ranks to the same bits."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from schemas.errors import TemporaryError
from schemas.partials import list_partials
from scoring.cli import cli
from scoring.status import read_statuses, true_exit_code
from tests.commands import run_command
from tests.launches import (
    arguments_of,
    assert_same,
    children_of,
    complete,
    ended,
    has_partials,
    is_running,
    launch,
    notes,
    partial_names,
    score_here,
    started,
    wait_until,
)
from tests.made_runs import MadeBuild, make_build

# One window to a tile of one row: enough work to be stopped in the middle, in small blocks.
SLOW = {"max_length": 16, "tile_tokens": 16}
NUM_BLOCKS = 30


@pytest.fixture(scope="module")
def long_build(tmp_path_factory: pytest.TempPathFactory) -> MadeBuild:
    """A build that takes a while: 60 long notes in 30 blocks; read only."""
    return make_build(tmp_path_factory.mktemp("long"), notes(60, 15))


@pytest.fixture(scope="module")
def whole(long_build: MadeBuild, tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nobody stopped; read only."""
    run = tmp_path_factory.mktemp("whole") / "run"
    score_here(long_build.corpus, run, tiny_llama, **SLOW)
    return run


def times(run: Path) -> dict[Path, int]:
    """When each partial was written."""
    return {partial.path: partial.path.stat().st_mtime_ns for partial in list_partials(run)}


@pytest.mark.slow
def test_resume_needs_the_same_world_size(long_build: MadeBuild, tiny_llama: Path, whole: Path, tmp_path: Path) -> None:
    """A rank of three killed half way fails the launch; two ranks resume it: each block once, equal bits and totals."""
    run = tmp_path / "run"
    arguments = arguments_of(long_build.corpus, run, tiny_llama, **SLOW)

    with started(arguments, num_ranks=3) as process:
        wait_until(lambda: has_partials(run, 2), process)
        ranks = children_of(process)
        os.kill(ranks[-1], signal.SIGKILL)
        killed = ended(process)
    left, statuses, kept = [pid for pid in ranks if is_running(pid)], read_statuses(run), times(run)
    code, was_sealed = true_exit_code(run, statuses), (run / "COMPLETE").exists()
    resumed = launch(arguments, num_ranks=2)

    assert len(ranks) == 3
    assert killed.code != 0
    assert left == []
    assert (code, was_sealed) == (75, False)
    assert sorted((status.exit_code or 0) for status in statuses) == [0, 143, 143]
    assert 2 <= len(kept) < NUM_BLOCKS
    assert resumed.code == 0
    assert {path: time for path, time in times(run).items() if path in kept} == kept
    assert_same(run, whole)
    assert complete(run).num_ranks == 2
    assert [status.exit_code for status in read_statuses(run)] == [0, 0]


def test_a_stopped_run_resumes_to_the_same_bits(
    long_build: MadeBuild, tiny_llama: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """SIGTERM is 143 in code and status; a second job meanwhile gets 75; the resume keeps what was done."""
    run = tmp_path / "run"
    arguments = arguments_of(long_build.corpus, run, tiny_llama, **SLOW)

    with started(arguments) as process:
        wait_until(lambda: has_partials(run, 2), process)
        process.send_signal(signal.SIGSTOP)  # so that it cannot finish before the second job has tried
        with pytest.raises(TemporaryError, match="another scoring job is at work; wait for it"):
            score_here(long_build.corpus, run, tiny_llama, **SLOW)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        stopped = ended(process)
    kept = times(run)
    [status] = read_statuses(run)
    told = run_command(cli, ["status", run], capsys)
    score_here(long_build.corpus, run, tiny_llama, **SLOW)

    assert stopped.code == 143
    assert stopped.err.splitlines()[-1] == "error: stopped by SIGTERM; run the same command again to resume"
    assert (status.state, status.exit_code, told.code) == ("stopped", 143, 143)
    assert 2 <= len(kept) < NUM_BLOCKS
    assert {path: time for path, time in times(run).items() if path in kept} == kept
    assert_same(run, whole)


@pytest.mark.slow
def test_a_stopped_torchrun_resumes(long_build: MadeBuild, tiny_llama: Path, whole: Path, tmp_path: Path) -> None:
    """SIGTERM to torchrun stops all ranks with 143 in their status, and another world size finishes the run."""
    run = tmp_path / "run"
    arguments = arguments_of(long_build.corpus, run, tiny_llama, **SLOW)

    with started(arguments, num_ranks=2) as process:
        wait_until(lambda: has_partials(run), process)
        process.send_signal(signal.SIGTERM)
        stopped = ended(process)
    statuses = read_statuses(run)
    code = true_exit_code(run, statuses)
    manifest = score_here(long_build.corpus, run, tiny_llama, **SLOW)

    assert stopped.code != 0
    assert {(status.state, status.exit_code) for status in statuses} == {("stopped", 143)}
    assert code == 143
    assert len(manifest.partials) == len(partial_names(run)) == NUM_BLOCKS
    assert_same(run, whole)
