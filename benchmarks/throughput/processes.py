"""Starting one process a measurement, with all that it says in a log of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.throughput.values import Outcome, Task, read_outcome, write_task
from schemas.errors import ERRORS_BY_EXIT_CODE, TemporaryError, UsageError

ROOT = Path(__file__).parents[2]
HARNESS = "lm-eval==0.4.13"
KILLED = -9
ERROR_LINE = "error: "


@dataclass(frozen=True, slots=True)
class Place:
    """Where a race is held.

    Attributes:
        work: Folder of everything that it writes.
        harness_python: Interpreter of the harness's environment.
    """

    work: Path

    @property
    def harness_python(self) -> Path:
        """In the environment that ``install_harness`` makes."""
        return self.work / "harness" / "bin" / "python"

    def called(self, command: list[str], name: str, *, threads: int = 1, ours: bool = True) -> int:
        """Run a command to its end; its exit code. What it says goes to ``logs/NAME.txt``."""
        inherited = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        environment = inherited | {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
        if ours:
            environment["PYTHONPATH"] = str(ROOT)
        path = self.work / "logs" / f"{name}.txt"
        path.parent.mkdir(exist_ok=True)
        with path.open("w", encoding="utf-8") as log:
            return subprocess.run(
                command, cwd=self.work, env=environment, check=False, stdout=log, stderr=subprocess.STDOUT
            ).returncode

    def required(self, command: list[str], name: str, *, ours: bool = True) -> None:
        """Run a command that has to succeed.

        Raises:
            PipelineError: it did not; of its own kind and with its own line if it said one, else names its log.
        """
        code = self.called(command, name, ours=ours)
        if not code:
            return
        said = (self.work / "logs" / f"{name}.txt").read_text(encoding="utf-8", errors="replace").splitlines()
        if said and said[-1].startswith(ERROR_LINE):
            raise ERRORS_BY_EXIT_CODE.get(code, UsageError)(f"{name}: {said[-1].removeprefix(ERROR_LINE)}")
        raise UsageError(f"{name}: ended with code {code}; see logs/{name}.txt in --work, mend it, and start again")


def install_harness(place: Place) -> None:
    """Make the harness's environment, once, with the torch and transformers that we measure ours with.

    Raises:
        UsageError: pip could not install it.
    """
    from importlib.metadata import version

    exact = [f"{name}=={version(name).partition('+')[0]}" for name in ("torch", "transformers", "accelerate")]
    stamp, wanted = place.work / "harness" / "installed.txt", " ".join([HARNESS, *exact])
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return
    place.required([sys.executable, "-m", "venv", "--clear", str(place.work / "harness")], "venv", ours=False)
    pip = [str(place.harness_python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    place.required([*pip, *constraints, HARNESS, *exact], "pip", ours=False)
    stamp.write_text(wanted, encoding="utf-8")


def measure(place: Place, contender: str, task: Task, *, num_ranks: int = 1) -> Outcome:
    """Let one contender do a task in a process of its own, or ours in several ranks.

    Raises:
        TemporaryError: it ended with an error, or ours ran out of memory; names the log.
    """
    name = Path(task.outcome).stem
    path = place.work / "tasks" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    write_task(replace(task, launched_at=time.monotonic()), path)
    module = f"benchmarks.throughput.{contender}"
    command = [sys.executable, "-m", module, str(path)]
    if num_ranks > 1:
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(num_ranks)]
        command = [sys.executable, *launcher, "-m", module, str(path)]
    if contender == "harness":
        command = [str(place.harness_python), str(Path(__file__).with_name("harness.py")), str(path)]
    code = place.called(command, name, threads=task.threads, ours=contender != "harness")
    if code == KILLED and contender != "ours":  # by the kernel, for memory
        return Outcome(is_out_of_memory=True)
    if code:
        raise TemporaryError(f"{name}: ended with code {code}; see logs/{name}.txt in --work, mend it, and start again")
    outcome = Path(task.outcome)
    return read_outcome(outcome) if num_ranks == 1 else _joined(outcome, num_ranks)


def _joined(path: Path, num_ranks: int) -> Outcome:
    """Several ranks as one: from the first that began to the last that was done; all know the tokens of the run."""
    found = [read_outcome(Path(f"{path}.{rank}")) for rank in range(num_ranks)]
    started, stopped = min(one.started for one in found), max(one.stopped for one in found)
    return replace(found[0], seconds=stopped - started, started=started, stopped=stopped)
