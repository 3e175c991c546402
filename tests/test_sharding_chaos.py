"""Whatever is killed at whatever moment, running the command again ends with the calm build, and nothing besides.

Each run has a seed, which says whom SIGKILL hits and when: at a number of finished files of one phase, so that every
phase is hit on any machine.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from schemas.verification import verify_build
from tests.builds import opened
from tests.calm import BLOCK_BYTES, ROOT, SECONDS, Calm, check_calm, finish, running
from tests.daskprocesses import DaskProcesses

VICTIMS = ("worker", "client", "scheduler")
# What each phase leaves in the corpus, file by file.
FILES = {
    "pass 1": "scratch/*/keys/*.json",
    "planning": "scratch/*/assignments/*.bin",
    "spill": "scratch/*/spills/*.json",
    "shards": "scratch/*/shards/*.json",
    "commit": "scratch/*/shards/*.json",
}
PHASES = list(FILES)
NUM_RUNS = 30
NUM_FAST_RUNS = 3
ATTEMPTS = 5


@dataclass(frozen=True)
class Aim:
    """The progress at which a build is hit: a share of the files of one phase."""

    corpus: Path
    phase: str
    share: float
    calm: Calm

    def is_reached(self) -> bool:
        """As many of the phase's files are there as were drawn, or a later phase has begun."""
        now = self.phase_now()
        if PHASES.index(now) > PHASES.index(self.phase):
            return True
        return now == self.phase and self._count(FILES[now]) >= 1 + int(self.share * self._most())

    def phase_now(self) -> str:
        """The phase that left the latest files; the commit begins when all shards are there."""
        if self._count(FILES["shards"]) == self._num_shards() or self._count("builds/*/COMMITTED"):
            return "commit"
        begun = [phase for phase in PHASES[:-1] if self._count(FILES[phase])]
        return begun[-1] if begun else PHASES[0]

    def _count(self, pattern: str) -> int:
        return len(list(self.corpus.glob(pattern)))

    def _num_shards(self) -> int:
        return len(self.calm.build.manifest.shards)

    def _most(self) -> int:
        """How many of the phase's files can be waited for, beyond the first."""
        if self.phase == "pass 1":
            return self.calm.inputs.notes.stat().st_size // BLOCK_BYTES - 1
        return self._num_shards() - 2 if self.phase == "shards" else 1


def test_the_runs_kill_everybody_in_every_phase() -> None:
    """Over all seeds each victim is hit in each phase in which it lives."""
    drawn = {_drawn(seed) for seed in range(NUM_RUNS)}

    assert drawn == {("client", phase) for phase in PHASES} | {
        (victim, phase) for victim in ("worker", "scheduler") for phase in PHASES[:-1]
    }


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
    """With code 143, or with what a process that was through ends with; then it is resumed."""
    corpus = tmp_path / "corpus"
    command = calm.inputs.command(corpus, "--workers", "2")
    with running(command) as process:
        time.sleep(calm.seconds * share)
        process.send_signal(signal.SIGTERM)
        started = time.monotonic()
        code = process.wait(timeout=SECONDS)
        took = time.monotonic() - started
    was_through = bool(list(corpus.glob("builds/*/COMMITTED")))

    finish(command)

    # A signal that comes while the interpreter ends, after the build, meets nobody who could answer it.
    assert code == 143 or (was_through and code in (0, -signal.SIGTERM))
    assert took < 10
    check_calm(corpus, calm)


@pytest.mark.slow
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
        finish(calm.inputs.command(corpus, *flags))
        check_calm(corpus, calm)

    for done in (checked, full):
        assert done.returncode == 75, done.stderr
        assert len([line for line in done.stderr.splitlines() if line.startswith("error: ")]) == 1
        assert "Traceback" not in done.stderr
    assert "needed, " in checked.stderr.splitlines()[-1]


@pytest.mark.slow
def test_builders_of_the_same_inputs_do_not_meet(calm: Calm, tmp_path: Path) -> None:
    """Of three at once each makes the build, finds it made, or says 75 and finds it when it is run again."""
    corpus = tmp_path / "corpus"
    command = calm.inputs.command(corpus, "--workers", "1")

    codes = _codes_of([command] * 3)
    again = [finish(command) for code in codes if code == 75]

    assert set(codes) <= {0, 75}
    assert 0 in codes
    assert all("already built" in said for said in again)
    check_calm(corpus, calm)


@pytest.mark.slow
def test_builders_of_other_inputs_do_not_disturb_each_other(calm: Calm, tmp_path: Path) -> None:
    """Two builds with other settings in one corpus, at once: both are whole, and one of them is current."""
    corpus = tmp_path / "corpus"
    commands = [calm.inputs.command(corpus, "--workers", "1", "--seed", seed) for seed in ("0", "1")]

    codes = _codes_of(commands)
    for command, code in zip(commands, codes, strict=True):
        if code == 75:
            finish(command)

    assert set(codes) <= {0, 75}
    builds = sorted((corpus / "builds").iterdir())
    assert len(builds) == 2
    multisets = [opened(folder).manifest.multiset_digest for folder in builds]
    assert all(verify_build(opened(folder), deep=True) for folder in builds)
    assert multisets == [calm.build.manifest.multiset_digest] * 2
    assert (corpus / "CURRENT").read_text().strip() in {folder.name for folder in builds}
    assert not (corpus / "scratch").exists()


def _drawn(seed: int) -> tuple[str, str]:
    """Whom a run kills, and in which phase; workers and scheduler are sent home before the commit."""
    victim = VICTIMS[seed % len(VICTIMS)]
    phases = PHASES if victim == "client" else PHASES[:-1]
    return victim, phases[(seed % len(VICTIMS) + seed // len(VICTIMS)) % len(phases)]


def _kill_and_resume(calm: Calm, tmp_path: Path, seed: int) -> None:
    """One run of chaos; a phase can be over before the signal is there, and then the run is made once more."""
    draws = random.Random(seed)
    victim, phase = _drawn(seed)
    kill = _kill_scheduler if victim == "scheduler" else _kill_process
    hit: list[str] = []
    while phase not in hit and len(hit) < ATTEMPTS:
        folder = tmp_path / str(len(hit))
        aim = Aim(folder / "corpus", phase, draws.random(), calm)
        hit.append(kill(aim, folder, victim, draws))

        finish(calm.inputs.command(aim.corpus, "--workers", "1"))

        check_calm(aim.corpus, calm)
    assert phase in hit, f"seed {seed}: the {victim} was to be killed in {phase}, and was in {hit}"


def _kill_process(aim: Aim, _folder: Path, victim: str, draws: random.Random) -> str:
    """SIGKILL for the client, or for one of its workers, which costs it nothing; the phase that was hit."""
    with running(aim.calm.inputs.command(aim.corpus, "--workers", "2")) as process:
        _wait_for(lambda: process.poll() is not None or aim.is_reached())
        if victim == "client":
            process.kill()
        else:
            _kill_a_worker(process.pid, draws)
        hit = aim.phase_now()
        code = process.wait(timeout=SECONDS)
    assert code in ((0,) if victim == "worker" else (0, -signal.SIGKILL))
    return hit


def _kill_scheduler(aim: Aim, folder: Path, _victim: str, _draws: random.Random) -> str:
    """The client loses its scheduler, and ends by itself, as temporary; the phase that was hit."""
    cluster = DaskProcesses(folder / "dask")
    try:
        cluster.start_scheduler()
        cluster.start_worker("one")
        with running(aim.calm.inputs.command(aim.corpus, *cluster.client_flags)) as process:
            _wait_for(lambda: process.poll() is not None or aim.is_reached())
            cluster.kill("scheduler")
            hit = aim.phase_now()
            code = process.wait(timeout=SECONDS)
    finally:
        cluster.close()
    assert code in (0, 75)
    return hit


def _kill_a_worker(parent: int, draws: random.Random) -> None:
    """SIGKILL to one worker process, if there is any at this moment."""
    try:
        children = psutil.Process(parent).children()
        workers = [child.pid for child in children if "spawn_main" in " ".join(child.cmdline())]
        if workers:
            os.kill(draws.choice(workers), signal.SIGKILL)
    except (psutil.Error, ProcessLookupError):
        return  # it ended meanwhile


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
        time.sleep(0.002)


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
