"""The three stages as their users start them: real commands in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
REPORT_FILES = ("report.json", "report.html", "report.md", "strata.parquet")
SECONDS = 1800


@dataclass(frozen=True)
class Notes:
    """Input files with the options that read them."""

    inputs: tuple[Path, ...]
    options: tuple[str, ...]


def environment() -> dict[str, str]:
    """The caller's environment with the checkout importable, one thread, and no network."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def stage(*arguments: object, code: int | None = 0) -> str:
    """Run ``python -m ARGUMENTS``, which must exit with ``code``, if one is named; its output on both streams."""
    done = subprocess.run(
        [sys.executable, "-m", *map(str, arguments)],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        env=environment(),
    )
    assert code is None or done.returncode == code, done.stdout[-2000:]
    return done.stdout


def build(notes: Notes, corpus: Path, *, workers: int = 1) -> Path:
    """Shard notes in the clear with a fixed record key, so that corpora can be compared byte for byte."""
    corpus.mkdir(parents=True, exist_ok=True)
    key = corpus.parent / "record-id.key"
    key.write_text("5a" * 32)
    options = [*notes.options, "--out", corpus, "--record-key", key, "--workers", workers, "--plaintext"]
    stage("sharding", "build", *notes.inputs, *options)
    return corpus


def torchrun(num_ranks: int) -> list[str]:
    """The launcher's part of a command."""
    return ["torch.distributed.run", "--standalone", "--nproc-per-node", str(num_ranks), "-m"]


def score(corpus: Path, model: Path, run: Path, *options: object, ranks: int = 1) -> Path:
    """Score a corpus with one thread a rank; a plain process for one rank, torchrun for more."""
    launcher = torchrun(ranks) if ranks > 1 else []
    stage(*launcher, "scoring", "run", corpus, "--model", model, "--out", run, "--threads-per-rank", 1, *options)
    return run


def score_until_killed(corpus: Path, model: Path, run: Path, *options: object, ranks: int, after: int) -> int:
    """Start scoring and kill every process of the job once ``after`` partials are there; how many there were."""
    arguments = ["scoring", "run", corpus, "--model", model, "--out", run, "--threads-per-rank", 1, *options]
    command = [sys.executable, "-m", *torchrun(ranks), *map(str, arguments)]
    with subprocess.Popen(
        command, env=environment(), start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as job:
        deadline = time.monotonic() + SECONDS
        while len(list(run.glob("partials/*/*.parquet"))) < after:
            assert job.poll() is None, "the job ended before it could be killed"
            assert time.monotonic() < deadline, "no partial appeared"
            time.sleep(0.005)
        os.killpg(job.pid, signal.SIGKILL)
        for rank in _ranks_of(run):
            _kill(rank)
        job.wait()
    return len(list(run.glob("partials/*/*.parquet")))


def report(corpus: Path, run: Path, folder: Path, *by: str) -> dict[str, bytes]:
    """The report's files by name, of records too few for the default threshold."""
    crossings = [argument for crossing in by for argument in ("--by", crossing)]
    stage("aggregate", "report", corpus, run, "--out", folder, "--min-cell", "0", *crossings)
    return {name: (folder / name).read_bytes() for name in REPORT_FILES}


def _ranks_of(run: Path) -> list[int]:
    """Processes that score into a run folder; torchrun starts each rank in a session of its own."""
    found = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(run).encode() in command.read_bytes().split(b"\0"):
                found.append(int(command.parent.name))
        except OSError:
            continue
    return found


def _kill(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return
