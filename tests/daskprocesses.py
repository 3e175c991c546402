"""A Dask scheduler and workers as processes of their own, as a cluster's administrator starts them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.certificates import Pem

ROOT = Path(__file__).parents[1]
SECONDS_TO_START = 60.0


@dataclass
class DaskProcesses:
    """One scheduler and any number of workers; all are ended with it."""

    folder: Path
    tls: Pem | None = None
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def connection_file(self) -> Path:
        """Written by the scheduler."""
        return self.folder / "scheduler.json"

    @property
    def client_flags(self) -> list[str]:
        """Of a command that is to use this cluster."""
        named = ["--scheduler-file", str(self.connection_file)]
        if self.tls:
            named += ["--tls-ca", str(self.tls.ca), "--tls-cert", str(self.tls.cert), "--tls-key", str(self.tls.key)]
        return named

    def start_scheduler(self) -> None:
        """Start it on a free port and wait for its connection file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.connection_file.unlink(missing_ok=True)
        address = ["--host", f"{'tls' if self.tls else 'tcp'}://127.0.0.1", "--port", "0", "--no-dashboard"]
        self._start("scheduler", "distributed.cli.dask_scheduler", address)
        until = time.monotonic() + SECONDS_TO_START
        while not self.connection_file.exists():
            assert self.processes["scheduler"].poll() is None, "the scheduler ended"
            assert time.monotonic() < until, "the scheduler did not start"
            time.sleep(0.02)

    def start_worker(self, name: str) -> None:
        """Start a worker of one thread; it joins when it is ready."""
        own = ["--nthreads", "1", "--no-dashboard", "--no-nanny", "--local-directory", str(self.folder / name)]
        self._start(name, "distributed.cli.dask_worker", [*own, "--death-timeout", "60"])

    def kill(self, name: str) -> None:
        """SIGKILL."""
        process = self.processes.pop(name)
        process.kill()
        process.wait(timeout=30)

    def close(self) -> None:
        """End whatever still runs."""
        for name in list(self.processes):
            self.kill(name)

    def _start(self, name: str, module: str, arguments: Sequence[str]) -> None:
        flags = ["--scheduler-file", str(self.connection_file)]
        if self.tls:
            flags += ["--tls-ca-file", str(self.tls.ca)]
            flags += ["--tls-cert", str(self.tls.cert), "--tls-key", str(self.tls.key)]
        self.processes[name] = subprocess.Popen(
            [sys.executable, "-m", module, *arguments, *flags],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


@contextmanager
def dask_processes(folder: Path, *, tls: Pem | None = None, workers: Sequence[str] = ()) -> Iterator[DaskProcesses]:
    """A scheduler with some workers."""
    cluster = DaskProcesses(folder, tls)
    try:
        cluster.start_scheduler()
        for name in workers:
            cluster.start_worker(name)
        yield cluster
    finally:
        cluster.close()
