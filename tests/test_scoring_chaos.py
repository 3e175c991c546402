"""Whatever is killed, frozen or filled at whatever moment, the same command ends with the bits of a calm run."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from schemas.errors import TemporaryError
from schemas.partials import list_partials
from scoring.status import read_statuses, true_exit_code
from tests.launches import (
    arguments_of,
    assert_same,
    children_of,
    complete,
    ended,
    has_partials,
    launch,
    notes,
    score_here,
    started,
    wait_until,
)
from tests.made_runs import MadeBuild, make_build

# One window to a tile of one row: enough work to be killed in the middle, in small blocks.
SLOW = {"max_length": 16, "tile_tokens": 16}
NUM_KILLS = 20
SECONDS_OF_A_LAUNCH = (1.0, 16.0)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> MadeBuild:
    """A build of 60 long notes in 30 blocks; read only."""
    return make_build(tmp_path_factory.mktemp("long"), notes(60, 15))


@pytest.fixture(scope="module")
def calm(build: MadeBuild, tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nobody disturbed; read only."""
    run = tmp_path_factory.mktemp("calm") / "run"
    score_here(build.corpus, run, tiny_llama, **SLOW)
    return run


def unsealed(run: Path, draws: random.Random) -> None:
    """Take the seal and some partials from a run that came to its end, so that there is work again."""
    if (run / "COMPLETE").exists():
        (run / "COMPLETE").unlink()
        for partial in draws.sample(list_partials(run), 20):
            partial.path.unlink()


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """A file system in memory of its own; needs the right to mount one."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True, capture_output=True)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_kills_at_random_moments_change_no_bit(build: MadeBuild, tiny_llama: Path, calm: Path, tmp_path: Path) -> None:
    """Twenty SIGKILLs to one rank at any moment, each time of another world size, and the run ends as the calm one."""
    run, draws, num_kills = tmp_path / "run", random.Random(20), 0
    arguments = arguments_of(build.corpus, run, tiny_llama, **SLOW)

    while num_kills < NUM_KILLS:
        unsealed(run, draws)
        num_ranks = draws.choice([None, 2, 3])
        with started(arguments, num_ranks=num_ranks) as process:
            time.sleep(draws.uniform(*SECONDS_OF_A_LAUNCH))
            victims = [process.pid] if num_ranks is None else children_of(process)
            if process.poll() is None and victims:
                with suppress(ProcessLookupError):
                    os.kill(draws.choice(victims), signal.SIGKILL)
                    num_kills += 1
            outcome = ended(process)
        assert outcome.code in {0, 1, -signal.SIGKILL}, outcome.err[-500:]
    unsealed(run, draws)
    last = launch(arguments, num_ranks=2)

    assert last.code == 0
    assert_same(run, calm)


@pytest.mark.slow
def test_torchrun_starts_killed_ranks_again(build: MadeBuild, tiny_llama: Path, calm: Path, tmp_path: Path) -> None:
    """With --max-restarts a rank that is killed once costs its launch nothing but time."""
    run = tmp_path / "run"

    with started(arguments_of(build.corpus, run, tiny_llama, **SLOW), num_ranks=2, max_restarts=3) as process:
        wait_until(lambda: has_partials(run, 2), process)
        os.kill(children_of(process)[-1], signal.SIGKILL)
        outcome = ended(process)

    assert outcome.code == 0, outcome.err[-500:]
    assert [status.exit_code for status in read_statuses(run)] == [0, 0]
    assert_same(run, calm)


@pytest.mark.slow
def test_a_frozen_rank_is_named(build: MadeBuild, tiny_llama: Path, tmp_path: Path) -> None:
    """A rank that hangs ends the launch with 75 after the timeout, and another one's status says which it was."""
    run = tmp_path / "run"

    with started(arguments_of(build.corpus, run, tiny_llama, **{**SLOW, "timeout": 8}), num_ranks=2) as process:
        wait_until(lambda: has_partials(run, 2), process)
        os.kill(children_of(process)[-1], signal.SIGSTOP)
        outcome = ended(process)
    statuses = read_statuses(run)

    frozen = [status.rank for status in statuses if status.exit_code is None]
    assert outcome.code != 0
    assert true_exit_code(run, statuses) == 75
    assert len(frozen) == 1
    assert f"rank {frozen[0]} gave no sign of life for 8 s" in statuses[1 - frozen[0]].message


@pytest.mark.slow
def test_a_full_disk_ends_the_run_for_a_while(build: MadeBuild, tiny_llama: Path, calm: Path, tmp_path: Path) -> None:
    """With no room for a partial the run ends with 75 and one line; with room, the same command goes on."""
    run = tmp_path / "run"

    with small_disk(run, "96k"):
        with pytest.raises(TemporaryError, match="No space left on device") as caught:
            score_here(build.corpus, run, tiny_llama, **SLOW)
        kept = len(list_partials(run))
        subprocess.run(["mount", "-o", "remount,size=8m", str(run)], check=True, capture_output=True)
        score_here(build.corpus, run, tiny_llama, **SLOW)

        assert "\n" not in str(caught.value)
        assert 0 < kept < len(complete(run).partials)
        assert_same(run, calm)
