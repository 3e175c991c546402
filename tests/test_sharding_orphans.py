"""Workers that live on after their client was killed: whoever builds next on the same scheduler is not disturbed."""

from __future__ import annotations

import time
from pathlib import Path

from tests.calm import Calm, check_calm, finish, running
from tests.daskprocesses import dask_processes


def test_a_second_client_of_the_same_scheduler_makes_the_calm_build(calm: Calm, tmp_path: Path) -> None:
    """SIGKILL for the first one in the first pass and in the last: equal digests, and its workers leave no file."""
    with dask_processes(tmp_path / "dask", workers=["one", "two"]) as cluster:
        for name in ("keys", "shards"):
            corpus = tmp_path / name
            command = calm.inputs.command(corpus, *cluster.client_flags)
            with running(command) as process:
                while process.poll() is None and not list(corpus.glob(f"scratch/*/{name}/*.json")):
                    time.sleep(0.002)
                process.kill()
                process.wait(timeout=30)
            is_unfinished = not (corpus / "CURRENT").exists()

            finish(command)

            assert is_unfinished, name
            assert cluster.processes["one"].poll() is None
            assert cluster.processes["two"].poll() is None
            check_calm(corpus, calm)
        time.sleep(1.0)  # for tasks that may still come to an end
        for name in ("keys", "shards"):
            check_calm(tmp_path / name, calm)
