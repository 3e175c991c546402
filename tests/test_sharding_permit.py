"""A task whose build was cleared or taken over meanwhile writes nothing more, and leaves nothing behind."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from schemas.errors import PipelineError, TemporaryError, UsageError
from sharding.blocks import block_jobs
from sharding.build import build_corpus
from sharding.jobs import SpillJob
from sharding.permit import PERMIT_FILE, check_permit, withdraw
from sharding.preparation import Prepared
from sharding.purge import purge
from sharding.scan import scan_block
from sharding.scratch import Scratch
from sharding.scratch_documents import Plan, Survey
from sharding.scratch_folders import clear, make_folder, start_over
from sharding.shards import write_shard
from sharding.spill import spill_blocks
from tests.builds import KEY, request, some_rows, write_rows
from tests.stops import shard_job, stopped_build

ENDS: dict[str, Callable[[Scratch], None]] = {
    "cleared": clear,
    "cleared by another client": lambda scratch: clear(Scratch(scratch.folder)),
    "taken over": lambda scratch: make_folder(Scratch(scratch.folder)),
    "begun anew by another": lambda scratch: start_over(Scratch(scratch.folder)),
    "withdrawn": lambda scratch: withdraw(scratch.folder),
}


@pytest.fixture
def scratch(tmp_path: Path) -> Scratch:
    """An empty one."""
    made = Scratch(tmp_path / "corpus" / "scratch" / "b-0000000000000000")
    make_folder(made)
    return made


def _files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and path.name != "permit")


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("num_written", [0, 1])
def test_a_write_that_is_overtaken_leaves_nothing(scratch: Scratch, end: str, num_written: int) -> None:
    """In the middle of the text, or before its first byte; whatever ended the build's tasks."""

    def write(file: BinaryIO) -> None:
        file.write(b"note " * num_written)
        ENDS[end](scratch)
        file.write(b"more of the note")

    with pytest.raises(TemporaryError, match="was cleared, or another build took it over") as caught:
        scratch.publish(scratch.spill(0), write)

    assert caught.value.exit_code == 75
    assert _files(scratch.folder.parent) == []
    assert scratch.folder.exists() == (not end.startswith("cleared"))


def test_who_may_write_may_write(scratch: Scratch) -> None:
    """The permit is that of the last client, for each of its files."""
    other = Scratch(scratch.folder)
    make_folder(other)

    seals = [other.publish(other.keys(number), lambda file: file.write(b"keys")) for number in range(2)]

    assert [seal.num_bytes for seal in seals] == [4, 4]
    with pytest.raises(TemporaryError):
        scratch.publish(scratch.keys(0), lambda file: file.write(b"older"))
    assert other.keys(0).read_bytes() == b"keys"


def _hold_permits(monkeypatch: pytest.MonkeyPatch, reason: int) -> None:
    """A disk that lets go of no permit."""
    unlink = os.unlink

    def unlinked(path: Any, **place: Any) -> None:
        if Path(path).name == PERMIT_FILE:
            raise OSError(reason, "synthetic")
        unlink(path, **place)

    monkeypatch.setattr(os, "unlink", unlinked)


@pytest.mark.parametrize(("reason", "kind"), [(errno.EIO, TemporaryError), (errno.EACCES, UsageError)])
def test_a_permit_that_cannot_be_withdrawn_is_told(
    scratch: Scratch,
    reason: int,
    kind: type[PipelineError],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The tasks may still write, so a purge removes nothing, and what a clearing leaves is said."""
    scratch.spill(0).write_bytes(b"note")
    _hold_permits(monkeypatch, reason)

    with pytest.raises(kind, match=f"{scratch.folder.name}/permit: "):
        withdraw(scratch.folder)
    with pytest.raises(kind, match=f"{scratch.folder.name}/permit: "):
        purge(scratch.folder.parents[1], [scratch.folder.name], dry_run=False)
    check_permit(scratch.folder, scratch.word)
    kept = _files(scratch.folder)
    clear(scratch)

    assert kept == [scratch.spill(0).name]
    assert "could not be removed and may hold note text" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["gone", "file"])
def test_where_there_is_no_permit_none_is_withdrawn(tmp_path: Path, place: str) -> None:
    """Nobody may write there, so that is no failure."""
    (tmp_path / "file").touch()

    withdraw(tmp_path / place)

    with pytest.raises(TemporaryError):
        check_permit(tmp_path / place, "word")


def test_a_build_whose_tasks_may_still_write_is_not_committed(
    tmp_path: Path, scheduler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends as temporary, and goes on when its permit can be withdrawn."""
    source = write_rows(tmp_path / "in.csv", some_rows(12))
    wanted = request([source], tmp_path / "corpus", scheduler)

    with monkeypatch.context() as patch:
        _hold_permits(patch, errno.EIO)
        with pytest.raises(TemporaryError, match="permit"):
            build_corpus(wanted)
    is_committed = any(wanted.corpus.glob("builds/*/COMMITTED"))
    _, is_new = build_corpus(wanted)

    assert not is_committed
    assert is_new


def test_a_file_made_while_a_folder_is_listed_is_removed_too(scratch: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that got its file's name in just then is outrun by another look at the folder."""
    late = [scratch.spill(0)]
    remove = os.rmdir

    def removed(path: Any, **place: Any) -> None:
        if late and Path(path).name == "spills":
            late.pop().write_bytes(b"note")
        remove(path, **place)

    monkeypatch.setattr(os, "rmdir", removed)

    clear(scratch)

    assert late == []
    assert not scratch.folder.exists()


@pytest.fixture
def stopped(tmp_path: Path, scheduler: str, monkeypatch: pytest.MonkeyPatch) -> Prepared:
    """A build that was stopped before its commit, in the hands of a client that sees to its tasks."""
    source = write_rows(tmp_path / "in.csv", some_rows(12))
    return stopped_build(request([source], tmp_path / "corpus", scheduler), monkeypatch)


@pytest.mark.parametrize("task", ["scan", "spill"])
def test_a_task_that_reads_while_its_scratch_is_cleared_ends(stopped: Prepared, task: str, tmp_path: Path) -> None:
    """It waits for the key in the middle of its work, the scratch goes meanwhile, and it does not come back."""
    key = tmp_path / "slow.key"
    os.mkfifo(key)
    block = replace(
        block_jobs(stopped, stopped.scratch.read_document(stopped.scratch.survey(), Survey))[0], key_path=key
    )
    plan = stopped.scratch.read_document(stopped.scratch.plan(), Plan)
    for receipt in (stopped.scratch.keys(0), stopped.scratch.spill(0)):
        receipt.with_suffix(".json").unlink()

    with ThreadPoolExecutor(1) as pool:
        ended = (
            pool.submit(scan_block, block)
            if task == "scan"
            else pool.submit(spill_blocks, SpillJob(0, [(block, plan.assignments[0])]))
        )
        with key.open("wb") as pipe:  # opened as soon as the task reads
            clear(Scratch(stopped.scratch.folder))
            pipe.write(KEY.encode())

    assert isinstance(ended.exception(), TemporaryError)
    assert not stopped.scratch.folder.parent.exists() or _files(stopped.scratch.folder.parent) == []


def test_a_task_does_not_make_a_purged_build_again(stopped: Prepared) -> None:
    """Neither a folder nor a shard comes back, though the task has read all that it needs."""
    job = shard_job(stopped)
    build = job.build
    kept = {path: path.read_bytes() for path in stopped.scratch.folder.rglob("*") if path.is_file()}
    purge(build.parents[1], [build.name], dry_run=False)
    for path, content in kept.items():  # as a disk that is slow to tell of a removal would show them
        if path.parent.name == "spills":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    with pytest.raises(TemporaryError, match="was cleared"):
        write_shard(job)

    assert not build.exists()
