"""Workers may fail in any way; what they held never gets out, and nobody waits for ever."""

from __future__ import annotations

import logging
import os
import socket
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from schemas.errors import DataError, PipelineError, TemporaryError
from sharding import cluster as module
from sharding.cluster import ClusterOptions, connected


@dataclass(frozen=True)
class Piece:
    """A job for these tests."""

    number: int
    num_bytes: int = 1


def double(piece: Piece) -> int:
    """A task that works."""
    return 2 * piece.number


def fail_with_text(piece: Piece) -> int:
    """A bug whose message quotes a record."""
    raise ValueError("zebra words of a record")


def fail_safely(piece: Piece) -> int:
    """An expected failure."""
    raise DataError(f"piece {piece.number}: wrong; mend it")


def die(piece: Piece) -> int:
    """A task that takes its worker with it."""
    os._exit(9)


def test_results_come_in_the_order_of_the_jobs(tmp_path: Path, scheduler: str) -> None:
    """More jobs than fit in flight at once all come back, each in its place."""
    with connected(ClusterOptions(scheduler=scheduler), tmp_path) as workers:
        results = workers.run(double, [Piece(number) for number in range(100)], title="test", unit="bytes")

    assert results == [2 * number for number in range(100)]


def test_a_foreign_error_is_told_by_its_place_only(tmp_path: Path, scheduler: str) -> None:
    """A message that a library made may quote a record, so it stays on the worker."""
    with connected(ClusterOptions(scheduler=scheduler), tmp_path) as workers, pytest.raises(PipelineError) as caught:
        workers.run(fail_with_text, [Piece(1)], title="test", unit="bytes")

    assert "ValueError at" in str(caught.value)
    assert "zebra" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_our_own_error_keeps_its_kind_and_message(tmp_path: Path, scheduler: str) -> None:
    """Exit code and words survive the way from the worker."""
    with connected(ClusterOptions(scheduler=scheduler), tmp_path) as workers, pytest.raises(DataError, match="piece 7"):
        workers.run(fail_safely, [Piece(7)], title="test", unit="bytes")


def test_a_task_that_kills_every_worker_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After some deaths under one task the build stops as temporary, instead of killing workers for ever."""
    monkeypatch.setattr(module, "ALLOWED_FAILURES", 1)

    with connected(ClusterOptions(workers=1), tmp_path) as workers, pytest.raises(TemporaryError, match="more memory"):
        workers.run(die, [Piece(1)], title="test", unit="bytes")


def test_a_scheduler_without_workers_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If no worker is there for some time, the command ends as temporary and can be run again."""
    from distributed import LocalCluster

    monkeypatch.setattr(module, "SECONDS_BETWEEN_LOOKS", 0.05)
    monkeypatch.setattr(module, "SECONDS_WITHOUT_WORKERS", 0.3)

    with LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0", silence_logs=logging.CRITICAL) as empty:
        options = ClusterOptions(scheduler=empty.scheduler_address)
        with connected(options, tmp_path) as workers, pytest.raises(TemporaryError, match="start some"):
            workers.run(double, [Piece(1)], title="test", unit="bytes")


def test_a_scheduler_that_does_not_answer_is_temporary(tmp_path: Path) -> None:
    """The message names the flags."""
    import dask

    options = ClusterOptions(scheduler="tcp://127.0.0.1:9")

    with (
        dask.config.set({"distributed.comm.timeouts.connect": "1s"}),
        pytest.raises(TemporaryError, match="--scheduler"),
        connected(options, tmp_path),
    ):
        pass


def test_another_kind_of_server_is_no_scheduler(tmp_path: Path) -> None:
    """What a web server answers reads as a huge frame; that is no bug of ours but a wrong address."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        options = ClusterOptions(scheduler=f"127.0.0.1:{server.getsockname()[1]}")
        answering = threading.Thread(target=_answer_as_the_web, args=[server])
        answering.start()

        with pytest.raises(TemporaryError, match="--scheduler"), connected(options, tmp_path):
            pass
        answering.join()


def _answer_as_the_web(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
