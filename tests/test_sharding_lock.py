"""Two equal builds at once: one works, the other is told to wait, and nothing is lost."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from schemas.errors import TemporaryError
from schemas.verification import verify_build
from sharding.build import build_corpus, plan_corpus
from sharding.lock import locked, locked_if_free
from sharding.preparation import prepare
from tests.builds import build, opened, request, some_rows, write_rows

ROOT = Path(__file__).parents[1]
MAPPING = ["--id", "note_id", "--text", "note", "--department", "dept", "--target-tokens", "200"]
NUM_RECORDS = 400


def test_two_equal_builds_at_once_make_one_whole_build(tmp_path: Path, scheduler: str) -> None:
    """One process ends with 0, the other with 0 or 75, and the build passes deep verification."""
    source = write_rows(tmp_path / "in.csv", some_rows(NUM_RECORDS))
    options = ["--out", str(tmp_path / "corpus"), *MAPPING, "--scheduler", scheduler]
    command = [sys.executable, "-m", "sharding", "build", str(source), *options]

    processes = [subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    errors = [process.communicate(timeout=300)[1] for process in processes]

    codes = sorted(process.returncode for process in processes)
    assert codes in ([0, 0], [0, 75]), errors
    assert codes == [0, 0] or any("another build of the same inputs is at work" in said for said in errors)
    assert verify_build(opened(tmp_path / "corpus"), deep=True)["records"] == NUM_RECORDS
    assert not (tmp_path / "corpus" / "scratch").exists()


def test_a_build_at_work_keeps_others_out(tmp_path: Path, scheduler: str) -> None:
    """While the lock is held, build and plan of the same inputs are told to wait; other inputs are not."""
    wanted = request([write_rows(tmp_path / "in.csv", some_rows(9))], tmp_path / "corpus", scheduler)
    other = write_rows(tmp_path / "other.csv", some_rows(5))

    with locked(prepare(wanted).scratch.folder):
        for command in (build_corpus, plan_corpus):
            with pytest.raises(TemporaryError, match="wait for it"):
                command(wanted)
        made = build([other], tmp_path / "corpus", scheduler)
    again, is_new = build_corpus(wanted)

    assert verify_build(made, deep=True)["records"] == 5
    assert is_new
    assert verify_build(again, deep=True)["records"] == 9


def test_a_lock_has_one_holder_and_leaves_nothing(tmp_path: Path) -> None:
    """Many threads that take and remove the lock file are never inside together, and the file is gone at the end."""
    inside, most, times = 0, 0, 0

    def work() -> None:
        nonlocal inside, most, times
        for _ in range(200):
            with locked_if_free(tmp_path / "scratch" / "b-1") as is_mine:
                if is_mine:
                    inside += 1
                    most = max(most, inside)
                    times += 1
                    inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert most == 1
    assert times >= 200
    assert not (tmp_path / "scratch").exists()


def test_a_worker_that_outlived_its_build_leaves_the_commit_alone(tmp_path: Path, scheduler: str) -> None:
    """A task that begins after the commit of its build refuses to write, and removes nothing."""
    from schemas.errors import IntegrityError
    from sharding.shards import _check_open

    made = build([write_rows(tmp_path / "in.csv", some_rows(5))], tmp_path / "corpus", scheduler)

    with pytest.raises(IntegrityError, match="committed while"):
        _check_open(made.folder)

    assert verify_build(made, deep=True)["records"] == 5
