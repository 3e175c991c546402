"""A build without trouble, and what every build of the same inputs must come to, whatever happened on the way."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from schemas.folders import Build
from schemas.verification import verify_build
from sharding.sample_files import write_sample
from tests.builds import KEY, opened

ROOT = Path(__file__).parents[1]
MAPPING = ["--id", "note_id", "--text", "text", "--department", "department"]
SECONDS = 120
CORPUS = ["CURRENT", "audit", "builds", "policy.json.dsse", "secret"]
BLOCK_BYTES = 60_000


@dataclass(frozen=True)
class Inputs:
    """What every build here is made of."""

    notes: Path
    key: Path

    def command(self, corpus: Path, *more: str) -> list[str]:
        """The same build elsewhere."""
        program = [sys.executable, "-m", "sharding", "build", str(self.notes), "--out", str(corpus)]
        cuts = ["--read-block-bytes", str(BLOCK_BYTES), "--target-tokens", "20000", "--block-tokens", "5000"]
        return [*program, *MAPPING, "--record-key", str(self.key), *cuts, *more]


@dataclass(frozen=True)
class Calm:
    """A build without trouble: its inputs, what came of it, and how long it took."""

    inputs: Inputs
    build: Build
    seconds: float


def make_calm(folder: Path) -> Calm:
    """600 synthetic notes in 3 departments, some of them duplicates and some rejects, built."""
    write_sample(folder / "notes.jsonl", num_records=600, num_departments=3, seed=5)
    (folder / "test.key").write_text(KEY)
    inputs = Inputs(folder / "notes.jsonl", folder / "test.key")
    started = time.monotonic()
    finish(inputs.command(folder / "corpus", "--workers", "2"))
    return Calm(inputs, opened(folder / "corpus"), time.monotonic() - started)


def check_calm(corpus: Path, calm: Calm) -> None:
    """The corpus holds the calm build, byte for byte in what matters, and not one file more."""
    made = opened(corpus)
    assert made.manifest.content_digest == calm.build.manifest.content_digest
    assert made.manifest.multiset_digest == calm.build.manifest.multiset_digest
    assert made.manifest.ledger == calm.build.manifest.ledger
    assert made.manifest.ledger.balances
    assert verify_build(made, deep=True)["records"] == made.manifest.ledger.num_kept
    assert sorted(path.name for path in corpus.iterdir()) == CORPUS
    assert [path.name for path in (corpus / "builds").iterdir()] == [made.manifest.build_id]


@contextmanager
def running(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A command at work, which is killed at the end if it still runs."""
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(timeout=SECONDS)


def finish(command: list[str]) -> str:
    """Run to the end, again while something passes (a killed builder's workers may take a moment to go)."""
    for _ in range(3):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
        if done.returncode != 75:
            break
    assert done.returncode == 0, done.stderr
    return done.stderr
