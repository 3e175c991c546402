"""Stopped at any moment, in any way, a build goes on where it was and ends with the same files."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from schemas.errors import IntegrityError
from schemas.folders import Build, open_build
from schemas.verification import verify_build
from sharding import build as build_module
from sharding.build import build_corpus, survey_blocks
from sharding.cluster import connected
from sharding.commit import commit_build
from sharding.layout import Layout
from sharding.preparation import Request, prepare
from sharding.sample_files import write_sample
from sharding.shards import write_shard
from tests.builds import KEY, build, opened, request, some_rows, write_rows
from tests.stops import shard_job, stop_before_commit, stopped_build

ROOT = Path(__file__).parents[1]
SETTINGS = {"target_tokens": 2_000, "block_tokens": 500, "block_bytes": 3_000}
MAPPING = ["--id", "note_id", "--text", "text", "--department", "department"]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small CSV file."""
    return write_rows(tmp_path_factory.mktemp("source") / "in.csv", some_rows(120))


@pytest.fixture(scope="module")
def reference(source: Path, tmp_path_factory: pytest.TempPathFactory, scheduler: str) -> Build:
    """Its build, made without any trouble."""
    return build([source], tmp_path_factory.mktemp("reference") / "corpus", scheduler, **SETTINGS)


def _stopped_before_commit(wanted: Request, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Run everything but the commit; returns the folders of the build and of its scratch files."""
    stop_before_commit(wanted, monkeypatch)
    (folder,) = (wanted.corpus / "builds").iterdir()
    return folder, wanted.corpus / "scratch" / folder.name


@pytest.mark.parametrize("damage", ["truncate", "empty", "flip", "delete"])
def test_resume_does_not_trust_existence(
    source: Path, reference: Build, tmp_path: Path, scheduler: str, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """A shard that is cut, empty, flipped or gone is written again; intact ones are kept as they are."""
    wanted = request([source], tmp_path / "corpus", scheduler, **SETTINGS)
    folder, _ = _stopped_before_commit(wanted, monkeypatch)
    bad, *good = sorted((folder / "shards").rglob("*.parquet"))
    content = bad.read_bytes()
    bad.unlink()
    if damage != "delete":
        flipped = content[:-9] + bytes([content[-9] ^ 4]) + content[-8:]
        bad.write_bytes({"truncate": content[:-1], "empty": b"", "flip": flipped}[damage])
    before = [path.stat().st_ino for path in good]

    made, is_new = build_corpus(wanted)

    assert is_new
    assert made.manifest == reference.manifest
    assert [path.stat().st_ino for path in good] == before
    assert verify_build(made, deep=True)


@pytest.mark.parametrize(
    "names",
    [
        ("keys",),
        ("spills",),
        ("assignments", "spills"),
        ("shards",),
        ("survey.json",),
        ("plan.json", "keys"),
        ("utf8",),
    ],
)
def test_damaged_scratch_files_are_made_again(
    source: Path,
    reference: Build,
    tmp_path: Path,
    scheduler: str,
    monkeypatch: pytest.MonkeyPatch,
    names: tuple[str, ...],
) -> None:
    """Whatever an interrupted build left half written is found by its seal and made again."""
    encoding = "ascii" if "utf8" in names else "utf-8"  # another encoding makes a UTF-8 copy
    wanted = request([source], tmp_path / "corpus", scheduler, encoding=encoding, **SETTINGS)
    folder, scratch = _stopped_before_commit(wanted, monkeypatch)
    shutil.rmtree(folder)
    for place in (scratch / name for name in names):
        for path in [place] if place.is_file() else sorted(place.iterdir())[:3]:
            path.write_bytes(path.read_bytes()[:-2])

    made, _ = build_corpus(wanted)

    assert made.manifest.shards == reference.manifest.shards


@pytest.mark.parametrize(
    ("step", "name", "where"),
    [
        ("make_plan", "keys", 0.3),
        ("make_plan", "keys", 0.5),
        ("make_plan", "keys", 0.7),
        ("shard_parts", "spills", 0.7),
    ],
)
def test_a_byte_that_flips_between_two_passes_is_found(
    source: Path, tmp_path: Path, scheduler: str, monkeypatch: pytest.MonkeyPatch, step: str, name: str, where: float
) -> None:
    """A finished scratch file that is not what was sealed ends the build with exit code 65, and is named."""
    settings = {**SETTINGS, "group": "patient"}
    wanted = request([source], tmp_path / "corpus", scheduler, **settings)
    whole = getattr(build_module, step)

    def flip(*arguments: Any, **named: Any) -> Any:
        path = sorted(tmp_path.glob(f"corpus/scratch/*/{name}/*.arrow"))[1]
        content = bytearray(path.read_bytes())
        content[int(len(content) * where)] ^= 4
        path.write_bytes(content)
        return whole(*arguments, **named)

    monkeypatch.setattr(build_module, step, flip)
    with pytest.raises(IntegrityError, match=f"{name}/000001.arrow"):
        build_corpus(wanted)

    assert not list(tmp_path.glob("corpus/builds/*/COMMITTED"))


def test_two_records_of_a_shard_never_have_one_place(
    source: Path, tmp_path: Path, scheduler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Places are in no digest, so a shard is written only if they are 0, 1, 2 and so on."""
    monkeypatch.setattr(Layout, "positions", lambda self: np.zeros_like(self.placement.shards))

    with pytest.raises(IntegrityError, match="places of records are not 0 to"):
        build([source], tmp_path / "corpus", scheduler, group="patient", **SETTINGS)


def test_another_block_size_does_not_spoil_a_resume(
    source: Path, reference: Build, tmp_path: Path, scheduler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resumed build keeps the cut of the inputs that it began with."""
    wanted = request([source], tmp_path / "corpus", scheduler, **SETTINGS)
    folder, _ = _stopped_before_commit(wanted, monkeypatch)
    shutil.rmtree(folder)

    made = build([source], tmp_path / "corpus", scheduler, **{**SETTINGS, "block_bytes": 777})

    assert made.manifest == reference.manifest


def test_leftovers_of_killed_workers_are_swept_before_the_commit(
    source: Path, reference: Build, tmp_path: Path, scheduler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A half-written file beside a shard is removed; a foreign file stops the commit and is named."""
    wanted = request([source], tmp_path / "corpus", scheduler, **SETTINGS)
    folder, _ = _stopped_before_commit(wanted, monkeypatch)
    shard = next((folder / "shards").rglob("*.parquet"))
    shard.with_name(".writing-1-abcd").write_bytes(b"half")
    foreign = shard.with_name("foreign.parquet")
    foreign.write_bytes(b"x")

    with pytest.raises(IntegrityError, match=r"foreign\.parquet"):
        build_corpus(wanted)
    foreign.unlink()
    made, _ = build_corpus(wanted)

    assert made.manifest == reference.manifest
    assert verify_build(made, deep=False)["files"] == sum(path.is_file() for path in made.folder.rglob("*"))


def test_a_task_run_twice_leaves_one_result(source: Path, tmp_path: Path, scheduler: str) -> None:
    """Work that is done again after its result was written gives the same receipt and the same file."""
    from sharding.blocks import block_jobs
    from sharding.scan import scan_block

    wanted = request([source], tmp_path / "corpus", scheduler, **SETTINGS)
    prepared = prepare(wanted)
    with connected(wanted.cluster, prepared.scratch.workers()) as cluster:
        survey = survey_blocks(wanted, prepared, cluster)
    job = block_jobs(prepared, survey)[0]

    scan_block(job)
    receipt = prepared.scratch.keys(0).with_suffix(".json")
    first = (prepared.scratch.keys(0).read_bytes(), receipt.read_bytes())
    receipt.unlink()
    scan_block(job)

    assert (prepared.scratch.keys(0).read_bytes(), receipt.read_bytes()) == first


def test_a_shard_holds_records_of_its_own_department_only(
    source: Path, tmp_path: Path, scheduler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan that puts another department's records behind a code is found out before they are written."""
    stopped = stopped_build(request([source], tmp_path / "corpus", scheduler, **SETTINGS), monkeypatch)
    job = shard_job(stopped)
    code = "d-000000000000"
    swapped = job.shard.model_copy(update={"department": code, "shard_id": f"{code}-00000"})

    with pytest.raises(IntegrityError, match=rf"{code}-00000: records of 1 other departments") as caught:
        write_shard(replace(job, shard=swapped))

    assert not {"Cardiology", "Oncology"} & set(str(caught.value).split())
    assert not (job.build / "shards" / code).exists()


def _command(notes: Path, corpus: Path, key: Path, *more: str) -> list[str]:
    program = [sys.executable, "-m", "sharding", "build", str(notes), "--out", str(corpus), "--record-key", str(key)]
    return [*program, *MAPPING, "--workers", "2", "--read-block-bytes", "200000", "--target-tokens", "50000", *more]


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """Synthetic notes, a key, and the content digest of their build."""
    folder = tmp_path_factory.mktemp("notes")
    write_sample(folder / "notes.jsonl", num_records=3_000, num_departments=3, seed=1)
    (folder / "test.key").write_text(KEY)
    command = _command(folder / "notes.jsonl", folder / "corpus", folder / "test.key")
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
    return folder / "notes.jsonl", folder / "test.key", open_build(folder / "corpus").manifest.content_digest


def test_workers_killed_at_any_moment_lose_nothing(notes: tuple[Path, Path, str], tmp_path: Path) -> None:
    """SIGKILL to one worker after another, once they work: the build ends with the same content."""
    path, key, digest = notes
    process = subprocess.Popen(
        _command(path, tmp_path / "corpus", key), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    num_killed = 0
    while process.poll() is None and num_killed < 6:
        time.sleep(0.3)
        if not list((tmp_path / "corpus").glob("scratch/*/survey.json")):
            continue
        num_killed += _kill_one_worker(process.pid)
    _, errors = process.communicate(timeout=300)

    assert process.returncode == 0, errors
    assert num_killed >= 2
    made = opened(tmp_path / "corpus")
    assert made.manifest.content_digest == digest
    assert verify_build(made, deep=True)["records"] == made.manifest.ledger.num_kept


@pytest.mark.parametrize("stop_at", ["survey.json", "plan.json", "shards"])
def test_sigterm_stops_with_143_and_a_rerun_resumes(
    notes: tuple[Path, Path, str], tmp_path: Path, stop_at: str
) -> None:
    """Stopped in any pass, the command says how to go on, and doing so gives the same content."""
    path, key, digest = notes
    command = _command(path, tmp_path / "corpus", key)
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while process.poll() is None and not list((tmp_path / "corpus").glob(f"scratch/*/{stop_at}")):
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=300)

    again = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=300, check=False)

    assert process.returncode == 143
    assert errors.decode().splitlines()[-1] == "error: stopped by SIGTERM; run the same command again to resume"
    assert again.returncode == 0, again.stderr
    assert open_build(tmp_path / "corpus").manifest.content_digest == digest
    assert not (tmp_path / "corpus" / "scratch").exists()


def _kill_one_worker(parent: int) -> int:
    """Kill the newest worker process of a build; 0 if there is none now."""
    workers = []
    for child in psutil.Process(parent).children():
        try:
            if any("spawn_main" in part for part in child.cmdline()):
                workers.append(child)
        except psutil.Error:
            continue
    if not workers:
        return 0
    os.kill(max(workers, key=lambda worker: worker.create_time()).pid, signal.SIGKILL)
    return 1


def test_a_commit_is_the_last_thing_written(reference: Build) -> None:
    """Committing the same manifest again changes nothing, so a crash between any two writes can be repeated."""
    from sharding.scratch_documents import Plan

    views = {entry.code: reference.view(entry.code) for entry in reference.manifest.departments}
    plan = Plan(
        block_tokens=1,
        ledger=reference.manifest.ledger,
        unresolved=reference.manifest.unresolved,
        balance=reference.manifest.balance,
        departments={code: view.ledger for code, view in views.items()},
        names={code: view.name for code, view in views.items()},
        num_read=[],
        multiset_digest=reference.manifest.multiset_digest,
        shards=[],
        assignments=[],
    )
    (reference.folder / "COMMITTED").unlink()

    commit_build(reference.folder, reference.manifest, plan)

    assert open_build(reference.folder).commit == reference.commit
