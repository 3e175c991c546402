"""Real launches of ``scoring run``: torchrun or a plain process, watched, and ended with all their ranks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.documents import read_document
from schemas.manifests import RunManifest
from schemas.partials import list_partials
from scoring.assignment import RankIdentity
from scoring.config import ScoringSettings
from scoring.run import run_rank
from tests.made_runs import MadeRecord
from tests.models import SENTENCES

ROOT = Path(__file__).parents[1]
TORCHRUN = ("-m", "torch.distributed.run", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0")
SECONDS_TO_WAIT = 120.0


@dataclass(frozen=True)
class Ended:
    """How a launch ended."""

    code: int
    out: str
    err: str


def score_here(corpus: Path, run: Path, model: Path, **settings: Any) -> RunManifest:
    """Score a build in this process, as rank 0 of 1."""
    return run_rank(corpus, run, settings_of(model, **settings), identity=RankIdentity())


def settings_of(model: Path, **settings: Any) -> ScoringSettings:
    """Settings of tests: one thread on the CPU, whatever the world size."""
    return ScoringSettings(model=model, **{"device": "cpu", "threads_per_rank": 1, "timeout": 60, **settings})


def arguments_of(corpus: Path, run: Path, model: Path, **settings: Any) -> list[str]:
    """The command line of the same run."""
    given = {"device": "cpu", "threads_per_rank": 1, "timeout": 60, **settings}
    flags = [part for name, value in given.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    return ["run", str(corpus), "--out", str(run), "--model", str(model), *flags]


@contextmanager
def started(
    arguments: Sequence[str], *, num_ranks: int | None = None, max_restarts: int = 0
) -> Iterator[subprocess.Popen[str]]:
    """A launch of ``python -m scoring``, by torchrun when there is a number of ranks; nothing of it is left running."""
    torchrun = [*TORCHRUN, "--max-restarts", str(max_restarts), "--nproc-per-node", str(num_ranks)]
    launcher = [] if num_ranks is None else torchrun
    process = subprocess.Popen(
        [sys.executable, *launcher, "-m", "scoring", *arguments],
        cwd=ROOT,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        _end(process)


def launch(arguments: Sequence[str], *, num_ranks: int | None = None) -> Ended:
    """A launch to its end."""
    with started(arguments, num_ranks=num_ranks) as process:
        return ended(process)


def ended(process: subprocess.Popen[str]) -> Ended:
    """Wait for a launch."""
    out, err = process.communicate(timeout=SECONDS_TO_WAIT)
    return Ended(process.returncode, out, err)


def children_of(process: subprocess.Popen[str]) -> list[int]:
    """Process ids of a launcher's ranks, by number."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = [tuple(map(int, line.split())) for line in listed.splitlines()]
    return sorted(pid for pid, parent in pairs if parent == process.pid)


def wait_until(holds: Callable[[], object], process: subprocess.Popen[str]) -> None:
    """Look every 10 ms until something holds; the launch must not end before."""
    stop = time.monotonic() + SECONDS_TO_WAIT
    while not holds():
        assert process.poll() is None, f"the launch ended with {process.returncode}"
        assert time.monotonic() < stop, "waited in vain"
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    """A process of this id is alive."""
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def has_partials(run: Path, number: int = 1) -> bool:
    """At least so many partials are published."""
    return len(list((run / "partials").glob("rank-*/d-*.parquet"))) >= number


def partial_names(run: Path) -> list[str]:
    """Names of all partials, which hold block and digest, each once for each file."""
    return [partial.path.name for partial in list_partials(run)]


def complete(run: Path) -> RunManifest:
    """The sealed end of a run."""
    return read_document(run / "COMPLETE", RunManifest)


def notes(number: int, length: int) -> list[MadeRecord]:
    """Synthetic notes of different texts, some of no text at all."""
    texts = [(SENTENCES[index % 6] * length)[: length * 40 + index] for index in range(number)]
    texts[1] = ""
    return [MadeRecord(f"n{index}", text=text, department="ab"[index % 2]) for index, text in enumerate(texts)]


def assert_same(run: Path, alone: Path) -> None:
    """Two runs have the same partials, bit by bit, the same header and the same totals."""
    assert partial_names(run) == partial_names(alone)
    assert complete(run).totals == complete(alone).totals
    assert complete(run).run_id == complete(alone).run_id
    assert (run / "run.json").read_bytes() == (alone / "run.json").read_bytes()
    digests = [[entry.content_digest for entry in complete(folder).partials] for folder in (run, alone)]
    assert digests[0] == digests[1]


def _end(process: subprocess.Popen[str]) -> None:
    ranks = children_of(process) if process.poll() is None else []
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=30)
    for pid in ranks:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.kill()
    process.communicate()
