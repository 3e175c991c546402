"""Dask as a pool of workers that may die: independent tasks, small arguments, small results, safe errors."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar

from schemas.console import Progress
from schemas.errors import PipelineError, TemporaryError, UsageError
from schemas.logs import frames
from sharding.schedulers import Certificates, address_in, check_address
from sharding.signals import signals_held

# A task is given up when this many workers have died under it.
ALLOWED_FAILURES = 10
# Never more tasks in flight than this many per thread, so that a build of a million blocks does not swamp a scheduler.
TASKS_PER_THREAD = 16
POLL_SECONDS = 0.01
SECONDS_BETWEEN_LOOKS = 5.0
SECONDS_WITHOUT_WORKERS = 120.0
START_ATTEMPTS = 4
DASK_SETTINGS = {
    "logging": {"distributed": "critical", "distributed.worker": "critical", "distributed.nanny": "critical"},
    "distributed.worker.profile.enabled": False,  # a hundred looks a second at what each worker does, for a dashboard
    # Dask gives what is freed back to the kernel at once, and a tenth of the time goes into asking for it again.
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 1 << 29,
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 1 << 30,
}

log = logging.getLogger("sharding.cluster")


class Job(Protocol):
    """Anything with a share of the work."""

    @property
    def num_bytes(self) -> int:
        """Its share of the work."""
        ...


JobT = TypeVar("JobT", bound=Job)
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """Where tasks run; nothing here can change a result.

    Attributes:
        workers: Local worker processes; all cores when absent.
        scheduler: Address of a running Dask scheduler.
        scheduler_file: Its connection file.
        tls: Certificates for a scheduler at a ``tls://`` address.
        insecure: Whether a scheduler on another machine may be spoken to in the clear.
    """

    workers: int | None = None
    scheduler: str | None = None
    scheduler_file: Path | None = None
    tls: Certificates | None = None
    insecure: bool = False

    def address(self) -> str | None:
        """Of the scheduler, if it may be spoken to; None for local workers.

        Raises:
            UsageError: see ``sharding.schedulers.check_address``; or its connection file holds no address, or TLS was
                asked for without a scheduler.
        """
        address = address_in(self.scheduler_file) if self.scheduler_file else self.scheduler
        if address:
            check_address(address, self.tls, insecure=self.insecure)
        elif self.tls or self.insecure:
            raise UsageError("--tls-ca, --insecure: local workers need neither; name a --scheduler or leave them out")
        return address


@dataclass(frozen=True, slots=True)
class Cluster:
    """A connection to workers."""

    client: Any

    def run(self, task: Callable[[JobT], ResultT], jobs: Sequence[JobT], *, title: str, unit: str) -> list[ResultT]:
        """Run one task for each job; results in the order of the jobs.

        A worker that dies takes nothing with it: its tasks run again elsewhere, and each is idempotent.

        Raises:
            PipelineError: the first task that failed, with its own message.
            TemporaryError: workers died under one task again and again, or the scheduler went away.
        """
        results: dict[int, ResultT] = {}
        with Progress(title, sum(job.num_bytes for job in jobs), unit) as progress:
            for number, result in self._completed(task, jobs):
                results[number] = result
                progress.advance(jobs[number].num_bytes)
        return [results[number] for number in range(len(jobs))]

    def _completed(self, task: Callable[[JobT], ResultT], jobs: Sequence[JobT]) -> Iterator[tuple[int, ResultT]]:
        from distributed import CancelledError, KilledWorker, as_completed
        from distributed.comm import CommClosedError

        waiting = iter(enumerate(jobs))
        running: dict[Any, int] = {}
        pool = as_completed(loop=self.client.loop)

        def submit(num_tasks: int) -> None:
            for number, job in islice(waiting, num_tasks):
                future = self.client.submit(_guarded, task, job, pure=False)
                running[future] = number
                pool.add(future)

        try:
            submit(TASKS_PER_THREAD * max(1, sum(self.client.nthreads().values())))
            while running:
                for future in self._next_batch(pool):
                    yield running.pop(future), future.result()
                    submit(1)
        except KilledWorker:
            raise TemporaryError(
                f"workers: {ALLOWED_FAILURES + 1} died under one task; give them more memory, then run again to resume"
            ) from None
        except (CancelledError, CommClosedError, OSError):
            raise TemporaryError("workers: the scheduler went away; run again to resume") from None
        finally:
            if running:
                self.client.cancel(list(running), force=True)

    def _next_batch(self, pool: Any) -> list[Any]:
        """Wait for finished tasks, but not for workers that never come back."""
        last_seen = looked_at = time.monotonic()
        while not (batch := pool.next_batch(block=False)):
            time.sleep(POLL_SECONDS)
            now = time.monotonic()
            if now - looked_at >= SECONDS_BETWEEN_LOOKS:
                looked_at = now
                last_seen = now if self.client.nthreads() else last_seen
            if now - last_seen > SECONDS_WITHOUT_WORKERS:
                raise TemporaryError(
                    f"workers: none for {SECONDS_WITHOUT_WORKERS:.0f} seconds; start some, then run again to resume"
                )
        return list(batch)


@contextmanager
def connected(options: ClusterOptions, working_folder: Path) -> Iterator[Cluster]:
    """Connect to a scheduler, or start local workers and stop them at the end.

    Raises:
        TemporaryError: the scheduler does not answer.
        UsageError: it may not be spoken to like this.
    """
    import dask
    import distributed  # noqa: F401 - its defaults must be there first, or they go when what is set here ends

    address = options.address()
    with dask.config.set({**DASK_SETTINGS, "distributed.scheduler.allowed-failures": ALLOWED_FAILURES}):
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        if address:
            with _remote(address, options) as client:
                yield Cluster(client)
        else:
            with _local(options, working_folder) as client:
                yield Cluster(client)


@contextmanager
def _remote(address: str, options: ClusterOptions) -> Iterator[Any]:
    from distributed import Client

    security = options.tls.security() if options.tls else None
    client = Client.__new__(Client)
    try:
        client.__init__(address, security=security, set_as_default=False)
    except BaseException as error:
        # There is nothing to close, and ``__del__`` would wait for the attempt to connect even after a Ctrl-C.
        client.status = "closed"
        if isinstance(error, OSError | ValueError | MemoryError):  # the last if another kind of server answers
            raise TemporaryError(
                "scheduler: no answer; check --scheduler or --scheduler-file"
                f"{' and that all certificates are of one authority' if options.tls else ''}, then run again"
            ) from None
        raise
    with client:
        yield client


@contextmanager
def _local(options: ClusterOptions, working_folder: Path) -> Iterator[Any]:
    from distributed import Client

    num_workers = options.workers or len(os.sched_getaffinity(0))
    with ExitStack() as stack:
        with signals_held() as check:
            cluster = stack.enter_context(_local_cluster(num_workers, working_folder, check))
            client = stack.enter_context(Client(cluster, set_as_default=False))
        yield client


def _local_cluster(num_workers: int, working_folder: Path, check: Callable[[], None]) -> Any:
    """Start workers; one that dies while it starts fails the whole start, so that is tried again."""
    from distributed import LocalCluster

    for attempt in range(START_ATTEMPTS):
        check()
        log.info("starting %d local workers, attempt %d", num_workers, attempt + 1)
        try:
            return LocalCluster(
                n_workers=num_workers,
                threads_per_worker=1,
                processes=True,
                # None would still take port 8787, and fail the second cluster of a machine.
                dashboard_address="127.0.0.1:0",
                local_directory=str(working_folder),
                silence_logs=logging.CRITICAL,
            )
        except (RuntimeError, OSError):
            continue
    raise TemporaryError(f"workers: did not start in {START_ATTEMPTS} attempts; run again, or use --scheduler")


def _guarded(task: Callable[[JobT], ResultT], job: JobT) -> ResultT:
    """Runs on the worker: only messages that are known to be safe get out."""
    try:
        return task(job)
    except PipelineError as error:
        raise type(error)(str(error)) from None
    except MemoryError:
        raise TemporaryError("worker: out of memory; give workers more memory, then run again to resume") from None
    except Exception as error:  # noqa: BLE001 - a foreign message could quote a record, so only its place is told
        raise PipelineError(f"bug: {frames(error)}; please report this line") from None
