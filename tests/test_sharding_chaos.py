"""Whatever is killed at whatever moment, running the command again ends with the calm build, and nothing besides.

Each run has a seed, which says whom SIGKILL hits and when; the moment is a share of the time that a calm build takes.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from schemas.folders import Build, open_build
from schemas.verification import verify_build
from sharding.sample_files import write_sample
from tests.builds import KEY
from tests.daskprocesses import DaskProcesses

ROOT = Path(__file__).parents[1]
MAPPING = ["--id", "note_id", "--text", "text", "--department", "department"]
VICTIMS = ("worker", "client", "scheduler")
NUM_RUNS = 30
NUM_FAST_RUNS = 3
SECONDS = 120


@dataclass(frozen=True)
class Inputs:
    """What every build here is made of."""

    notes: Path
    key: Path

    def command(self, corpus: Path, *more: str) -> list[str]:
        """The same build elsewhere."""
        program = [sys.executable, "-m", "sharding", "build", str(self.notes), "--out", str(corpus)]
        cuts = ["--read-block-bytes", "60000", "--target-tokens", "20000", "--block-tokens", "5000"]
        return [*program, *MAPPING, "--record-key", str(self.key), *cuts, *more]


@dataclass(frozen=True)
class Calm:
    """A build without trouble: its inputs, what came of it, and how long it took."""

    inputs: Inputs
    build: Build
    seconds: float


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Calm:
    """600 synthetic notes in 3 departments, some of them duplicates and some rejects."""
    folder = tmp_path_factory.mktemp("calm")
    write_sample(folder / "notes.jsonl", num_records=600, num_departments=3, seed=5)
    (folder / "test.key").write_text(KEY)
    inputs = Inputs(folder / "notes.jsonl", folder / "test.key")
    started = time.monotonic()
    _finish(inputs.command(folder / "corpus", "--workers", "2"))
    return Calm(inputs, open_build(folder / "corpus"), time.monotonic() - started)


@pytest.mark.parametrize("seed", range(NUM_FAST_RUNS))
def test_a_kill_at_any_moment_loses_nothing(calm: Calm, tmp_path: Path, seed: int) -> None:
    """One seed for each of the three victims."""
    _kill_and_resume(calm, tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(NUM_FAST_RUNS, NUM_RUNS))
def test_many_kills_at_any_moment_lose_nothing(calm: Calm, tmp_path: Path, seed: int) -> None:
    """The other seeds; thirty in all."""
    _kill_and_resume(calm, tmp_path, seed)


@pytest.mark.parametrize("share", [0.3, 0.6, pytest.param(0.9, marks=pytest.mark.slow)])
def test_sigterm_ends_a_build_within_ten_seconds(calm: Calm, tmp_path: Path, share: float) -> None:
    """With code 143, or 0 where the build was through; then it is resumed."""
    corpus = tmp_path / "corpus"
    command = calm.inputs.command(corpus, "--workers", "2")
    with _running(command) as process:
        time.sleep(calm.seconds * share)
        process.send_signal(signal.SIGTERM)
        started = time.monotonic()
        code = process.wait(timeout=SECONDS)
        took = time.monotonic() - started

    _finish(command)

    assert code in (0, 143)
    assert took < 10
    _check_calm(corpus, calm)


@pytest.mark.parametrize("what", ["scratch", "corpus"])
def test_a_full_disk_is_temporary_and_resumable(calm: Calm, tmp_path: Path, what: str) -> None:
    """On a disk that is too small the build ends with code 75 and one line; with more room it goes on."""
    with _small_disk(tmp_path / "disk", "400k") as disk:
        corpus = disk / "corpus" if what == "corpus" else tmp_path / "corpus"
        flags = ["--workers", "1", "--scratch", str(disk if what == "scratch" else tmp_path / "roomy")]
        checked = subprocess.run(
            calm.inputs.command(corpus, *flags), cwd=ROOT, capture_output=True, text=True, check=False
        )
        flags += ["--ignore-space"]
        full = subprocess.run(
            calm.inputs.command(corpus, *flags), cwd=ROOT, capture_output=True, text=True, check=False
        )
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True, capture_output=True)
        _finish(calm.inputs.command(corpus, *flags))
        _check_calm(corpus, calm)

    for done in (checked, full):
        assert done.returncode == 75, done.stderr
        assert len([line for line in done.stderr.splitlines() if line.startswith("error: ")]) == 1
        assert "Traceback" not in done.stderr
    assert "may be needed" in checked.stderr.splitlines()[-1] or "No space left" in checked.stderr.splitlines()[-1]


def test_builders_of_the_same_inputs_do_not_meet(calm: Calm, tmp_path: Path) -> None:
    """Of three at once each makes the build, finds it made, or says 75 and finds it when it is run again."""
    corpus = tmp_path / "corpus"
    command = calm.inputs.command(corpus, "--workers", "1")

    codes = _codes_of([command] * 3)
    again = [_finish(command) for code in codes if code == 75]

    assert set(codes) <= {0, 75}
    assert 0 in codes
    assert all("already built" in said for said in again)
    _check_calm(corpus, calm)


def test_builders_of_other_inputs_do_not_disturb_each_other(calm: Calm, tmp_path: Path) -> None:
    """Two builds with other settings in one corpus, at once: both are whole, and one of them is current."""
    corpus = tmp_path / "corpus"
    commands = [calm.inputs.command(corpus, "--workers", "1", "--seed", seed) for seed in ("0", "1")]

    codes = _codes_of(commands)
    for command, code in zip(commands, codes, strict=True):
        if code == 75:
            _finish(command)

    assert set(codes) <= {0, 75}
    builds = sorted((corpus / "builds").iterdir())
    assert len(builds) == 2
    multisets = [open_build(folder).manifest.multiset_digest for folder in builds]
    assert all(verify_build(open_build(folder), deep=True) for folder in builds)
    assert multisets == [calm.build.manifest.multiset_digest] * 2
    assert (corpus / "CURRENT").read_text().strip() in {folder.name for folder in builds}
    assert not (corpus / "scratch").exists()


def _kill_and_resume(calm: Calm, tmp_path: Path, seed: int) -> None:
    """One run of chaos."""
    draws = random.Random(seed)
    victim, share = VICTIMS[seed % len(VICTIMS)], draws.random()
    corpus = tmp_path / "corpus"
    if victim == "scheduler":
        _kill_scheduler(calm, tmp_path, share)
    else:
        with _running(calm.inputs.command(corpus, "--workers", "2")) as process:
            time.sleep(calm.seconds * (0.2 + 0.8 * share))
            if victim == "client":
                process.kill()
            else:
                _kill_a_worker(process.pid, draws)
            code = process.wait(timeout=SECONDS)
        assert code in ((0,) if victim == "worker" else (0, -signal.SIGKILL))

    _finish(calm.inputs.command(corpus, "--workers", "1"))

    _check_calm(corpus, calm)


def _kill_scheduler(calm: Calm, tmp_path: Path, share: float) -> None:
    """The client loses its scheduler at some moment after the survey; it ends by itself, as temporary."""
    corpus = tmp_path / "corpus"
    cluster = DaskProcesses(tmp_path / "dask")
    try:
        cluster.start_scheduler()
        cluster.start_worker("one")
        with _running(calm.inputs.command(corpus, *cluster.client_flags)) as process:
            _wait_for(lambda: process.poll() is not None or any(corpus.glob("scratch/*/survey.json")))
            time.sleep(0.5 * calm.seconds * share)
            cluster.kill("scheduler")
            code = process.wait(timeout=SECONDS)
    finally:
        cluster.close()
    assert code in (0, 75)


def _kill_a_worker(parent: int, draws: random.Random) -> None:
    """SIGKILL to one worker process, if there is any at this moment."""
    try:
        children = psutil.Process(parent).children()
        workers = [child.pid for child in children if "spawn_main" in " ".join(child.cmdline())]
        if workers:
            os.kill(draws.choice(workers), signal.SIGKILL)
    except (psutil.Error, ProcessLookupError):
        return  # it ended meanwhile


def _check_calm(corpus: Path, calm: Calm) -> None:
    """The corpus holds the calm build, byte for byte in what matters, and not one file more."""
    made = open_build(corpus)
    assert made.manifest.content_digest == calm.build.manifest.content_digest
    assert made.manifest.multiset_digest == calm.build.manifest.multiset_digest
    assert made.manifest.ledger == calm.build.manifest.ledger
    assert made.manifest.ledger.balances
    assert verify_build(made, deep=True)["records"] == made.manifest.ledger.num_kept
    assert sorted(path.name for path in corpus.iterdir()) == ["CURRENT", "builds"]
    assert [path.name for path in (corpus / "builds").iterdir()] == [made.manifest.build_id]


@contextmanager
def _running(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(timeout=SECONDS)


def _finish(command: list[str]) -> str:
    """Run to the end, again while something passes (a killed builder's workers may take a moment to go)."""
    for _ in range(3):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
        if done.returncode != 75:
            break
    assert done.returncode == 0, done.stderr
    return done.stderr


def _codes_of(commands: list[list[str]]) -> list[int]:
    processes = [
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for command in commands
    ]
    return [process.wait(timeout=SECONDS) for process in processes]


def _wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


@contextmanager
def _small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system in memory of its own; needs the right to mount one."""
    folder.mkdir()
    if shutil.which("mount") is None:
        pytest.skip("no mount command here")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True, capture_output=True)
