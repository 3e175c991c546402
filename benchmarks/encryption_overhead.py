"""What encryption, signatures and audit logs cost: CPU of the default against ``--plaintext``, in turns, in one run.

CPU time is user and system time of the command and all its processes. The build is of the notes given, or of synthetic
ones; the runs score the two builds with the model given, one thread.

    python benchmarks/encryption_overhead.py --records 100000
    python benchmarks/encryption_overhead.py --records 60 --model DIR_OR_GGUF
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

MAPPING = ["--id", "note_id", "--text", "text", "--department", "department", "--patient", "patient_id"]
KINDS: dict[str, list[str]] = {"encrypted": [], "plaintext": ["--plaintext"]}
GOALS = {"build": 1.10, "score": 1.02}


def main() -> None:
    """Measure and print; one line a command, then the ratio of the medians."""
    options = _options()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        notes = options.notes or _sample(folder, options.records)
        stages = ["build", "score"] if options.model else ["build"]
        seconds: dict[tuple[str, str], list[float]] = {}
        for turn in range(options.repeats):
            for kind in sorted(KINDS, reverse=bool(turn % 2)):
                for stage in stages:
                    used = _measured(_command(stage, kind, folder, notes, options))
                    seconds.setdefault((stage, kind), []).append(used)
                    print(f"{stage:6s}{kind:10s}{used:10.2f} s of CPU", flush=True)
    for stage in stages:
        ours, plain = (statistics.median(seconds[stage, kind]) for kind in KINDS)
        print(f"{stage:6s}{ours / plain:.3f}x the CPU of --plaintext (goal {GOALS[stage]:.2f}x)")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000, help="synthetic notes")
    parser.add_argument("--notes", type=Path, help="a file of notes instead, with the columns of synthetic ones")
    parser.add_argument("--model", type=Path, help="score the builds too")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="for all files; a temporary one by default")
    return parser.parse_args()


def _sample(folder: Path, records: int) -> Path:
    path = folder / "notes.parquet"
    _run([sys.executable, "-m", "sharding", "sample", str(path), "--records", str(records)])
    return path


def _command(stage: str, kind: str, folder: Path, notes: Path, options: argparse.Namespace) -> list[str]:
    """The stage from its beginning: what an earlier turn left is removed."""
    corpus, run = folder / f"corpus-{kind}", folder / f"run-{kind}"
    program = [sys.executable, "-m"]
    if stage == "build":
        shutil.rmtree(corpus, ignore_errors=True)
        flags = [*MAPPING, "--out", str(corpus), "--workers", str(options.workers)]
        return [*program, "sharding", "build", str(notes), *flags, *KINDS[kind]]
    shutil.rmtree(run, ignore_errors=True)
    flags = ["--model", str(options.model), "--out", str(run), "--threads-per-rank", "1"]
    return [*program, "scoring", "run", str(corpus), *flags, *KINDS[kind]]


def _measured(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    _run(command)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
