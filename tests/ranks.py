"""Real processes that act as the ranks of one launch, without torchrun: rank 0 serves the store."""

from __future__ import annotations

import multiprocessing
import socket
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from schemas.errors import PipelineError
from scoring.assignment import RankIdentity

# A fork server imports torch and transformers once; ranks are forked from it before any thread exists.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["scoring.run", "transformers.models.llama.modeling_llama", "tests.ranks"])
SECONDS_TO_START = 60


@dataclass(frozen=True)
class RankOutcome:
    """How a rank ended: what it returned, or its error; neither when it was killed. Seconds since all had started."""

    value: Any = None
    error: str = ""
    message: str = ""
    seconds: float = 0.0


def run_ranks(
    body: Callable[[RankIdentity], Any], num_ranks: int, *, absent: Collection[int] = ()
) -> dict[int, RankOutcome]:
    """Run a function of a test module as each rank of a world, but for those that never start."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    ranks, ready = {}, CONTEXT.Barrier(num_ranks - len(absent))
    for rank in set(range(num_ranks)) - set(absent):
        identity = RankIdentity(rank, num_ranks, rank, num_ranks, address="localhost", port=port)
        ours, theirs = CONTEXT.Pipe()
        process = CONTEXT.Process(target=_act, args=(body, identity, theirs, ready))
        process.start()
        theirs.close()
        ranks[rank] = (process, ours)
    try:
        return {rank: _outcome(connection) for rank, (_, connection) in ranks.items()}
    finally:
        for process, _ in ranks.values():
            process.join(10)
            process.kill()
            process.join()


def _act(body: Callable[[RankIdentity], Any], identity: RankIdentity, connection: Connection, ready: Any) -> None:
    ready.wait(SECONDS_TO_START)
    started = time.monotonic()
    try:
        outcome = RankOutcome(value=body(identity), seconds=time.monotonic() - started)
    except PipelineError as error:
        seconds = time.monotonic() - started
        outcome = RankOutcome(error=type(error).__name__, message=str(error), seconds=seconds)
    connection.send(outcome)


def _outcome(connection: Connection) -> RankOutcome:
    try:
        outcome: RankOutcome = connection.recv()
    except EOFError:
        return RankOutcome()
    return outcome
