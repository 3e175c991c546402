"""How ranks agree: signs of life in torchrun's own store while they score, collectives only when all have arrived.

There is no collective inside the scoring loop, so uneven work cannot hang anyone. A rank that waits watches the others'
heartbeats, which advance with their tiles; one that is silent for ``timeout`` seconds is named and the run ends.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]  # not in its stubs

from schemas.errors import IntegrityError, TemporaryError
from schemas.tally import Tally
from scoring.assignment import RankIdentity

SECONDS_BETWEEN_BEATS = 1.0
SECONDS_BETWEEN_LOOKS = 0.05
ROUND_KEY = "exactppl/round"
ValueT = TypeVar("ValueT")


class ControlPlane:
    """The gloo process group and heartbeat store of a run; for a single process every method is trivial.

    Attributes:
        identity: Of this process.
        while_waiting: Called again and again while it waits for others; tells them that it lives.
    """

    def __init__(self, identity: RankIdentity, timeout_seconds: float, store: Store | None) -> None:
        self.identity = identity
        self._timeout_seconds = timeout_seconds
        self._store = store
        self._num_beats = 0
        self._round = 0
        self._beat_at = 0.0
        self.while_waiting: Callable[[], None] = self.beat

    def beat(self) -> None:
        """Say that this rank makes progress; cheap enough for every tile."""
        now = time.monotonic()
        if self._store is not None and now - self._beat_at >= SECONDS_BETWEEN_BEATS:
            self._beat_at = now
            self._num_beats += 1
            with _store_errors("heartbeat"):
                self._store.set(f"beat/{self.identity.rank}", str(self._num_beats))

    def begin_again(self) -> None:
        """Steps may come once more; every rank says so at the same point of its work."""
        self._round += 1

    def wait_for_all(self, step: str) -> None:
        """Return when every rank has reached a step.

        Raises:
            TemporaryError: a rank gave no sign of life for the timeout; names it and the step.
        """
        if self._store is not None:
            self._wait(self._store, step, beats=True)

    def gather(self, step: str, value: ValueT) -> list[ValueT]:
        """Every rank's value, by rank, on every rank."""
        self.wait_for_all(step)
        if self._store is None:
            return [value]
        values: list[Any] = [None] * self.identity.num_ranks
        with _collective(step):
            dist.all_gather_object(values, value)
        return values

    def sum_exactly(self, tally: Tally) -> Tally:
        """The exact total over all ranks, by ``all_reduce`` of int64 limbs, checked on every rank.

        Raises:
            IntegrityError: the sum that came down is not the sum of what went up, or differs between ranks.
        """
        if self._store is None:
            return tally
        limbs = torch.tensor(tally.to_limbs(), dtype=torch.int64)
        self.wait_for_all("totals")
        with _collective("totals"):
            dist.all_reduce(limbs)
        total = Tally.from_limbs(limbs.tolist())
        parts = self.gather("contributions", tally)
        totals = self.gather("digests", total)
        summed = Tally()
        for part in parts:
            summed = summed.merge(part)
        if summed != total or set(totals) != {total} or parts[self.identity.rank] != tally:
            raise IntegrityError(
                f"totals: rank {self.identity.rank} received another sum than the ranks sent; run again to reduce anew"
            )
        return total

    def leave(self) -> None:
        """Say goodbye; where rank 0 serves the store itself, it stays until all others have."""
        if self._store is None or self.identity.store_is_hosted:
            return
        if self.identity.rank == 0:
            # Without beats: a rank that waits for this one elsewhere must notice that it has gone.
            self._wait(self._store, "left", beats=False)
        else:
            with _store_errors("left"):
                self._store.set(self._arrival("left", self.identity.rank), "1")

    def _wait(self, store: Store, step: str, *, beats: bool) -> None:
        with _store_errors(step):
            store.set(self._arrival(step, self.identity.rank), "1")
            missing = {rank: ("", time.monotonic()) for rank in range(self.identity.num_ranks)}
            while missing:
                missing = self._still_missing(store, step, missing)
                if beats:
                    self.while_waiting()
                time.sleep(SECONDS_BETWEEN_LOOKS if missing else 0)

    def _arrival(self, step: str, rank: int) -> str:
        return f"{self._round}/{step}/{rank}"

    def _still_missing(
        self, store: Store, step: str, missing: dict[int, tuple[str, float]]
    ) -> dict[int, tuple[str, float]]:
        """The ranks that have not arrived, each with its last heartbeat and when that was first seen."""
        now, still = time.monotonic(), {}
        for rank, (beat, since) in missing.items():
            if store.check([self._arrival(step, rank)]):
                continue
            latest = store.get(f"beat/{rank}").decode() if store.check([f"beat/{rank}"]) else ""
            still[rank] = (latest, since if latest == beat else now)
            if now - still[rank][1] > self._timeout_seconds:
                raise _silent(step, rank, self._timeout_seconds)
        return still


@contextmanager
def control_plane(identity: RankIdentity, *, timeout_seconds: float) -> Iterator[ControlPlane]:
    """Join the ranks of a launch.

    Raises:
        TemporaryError: the store cannot be reached, or a rank does not come, within the timeout; names the rank.
    """
    if identity.address is None:
        yield ControlPlane(identity, timeout_seconds, None)
        return
    timeout = timedelta(seconds=timeout_seconds)
    try:
        store = TCPStore(
            identity.address,
            identity.port,
            world_size=None,
            is_master=identity.rank == 0 and not identity.store_is_hosted,
            timeout=timeout,
            wait_for_workers=False,
        )
        own = PrefixStore(_join_round(store, identity, timeout_seconds), store)
        plane = ControlPlane(identity, timeout_seconds, own)
        dist.init_process_group("gloo", store=own, rank=identity.rank, world_size=identity.num_ranks, timeout=timeout)
    except (dist.DistError, RuntimeError, ValueError):
        raise TemporaryError(
            f"rank {identity.rank} of {identity.num_ranks} could not join the others within {timeout_seconds:g} s; "
            "see that all ranks were started, then run again"
        ) from None
    try:
        yield plane
        plane.leave()
    finally:
        dist.destroy_process_group()


def _join_round(store: Store, identity: RankIdentity, timeout_seconds: float) -> str:
    """Agree on a name for this launch's keys that no earlier one has used.

    The store outlives restarts, and torchrun's restart counts differ between nodes (pytorch issue 108158), so old keys
    must not be mistaken for new ones: rank 0 opens a round under a random name, each rank answers with a token of its
    own, and goes on only when rank 0 has read that very token back.

    Raises:
        TemporaryError: a rank gave no sign of life; names it.
    """
    token, deadline = secrets.token_hex(8), time.monotonic() + timeout_seconds
    if identity.rank == 0:
        store.set(ROUND_KEY, token)
        others = [
            _token_of(store, f"{token}/join/{rank}", rank, deadline=deadline, timeout=timeout_seconds)
            for rank in range(1, identity.num_ranks)
        ]
        store.set(f"{token}/go", ",".join([token, *others]))
        return token
    joined = ""
    while time.monotonic() < deadline:
        latest = store.get(ROUND_KEY).decode() if store.check([ROUND_KEY]) else ""
        if latest != joined:
            joined = latest
            store.set(f"{joined}/join/{identity.rank}", token)
        if joined and store.check([f"{joined}/go"]) and token in store.get(f"{joined}/go").decode().split(","):
            return joined
        time.sleep(SECONDS_BETWEEN_LOOKS)
    raise _silent("start", 0, timeout_seconds)


def _token_of(store: Store, key: str, rank: int, *, deadline: float, timeout: float) -> str:
    while not store.check([key]):
        if time.monotonic() > deadline:
            raise _silent("start", rank, timeout)
        time.sleep(SECONDS_BETWEEN_LOOKS)
    return str(store.get(key).decode())


def _silent(step: str, rank: int, timeout_seconds: float) -> TemporaryError:
    return TemporaryError(
        f"{step}: rank {rank} gave no sign of life for {timeout_seconds:g} s; look at its status file, then run the "
        "same command again"
    )


@contextmanager
def _store_errors(step: str) -> Iterator[None]:
    try:
        yield
    except (dist.DistError, RuntimeError):
        raise TemporaryError(f"{step}: the rendezvous store is gone; run the same command again") from None


@contextmanager
def _collective(step: str) -> Iterator[None]:
    try:
        yield
    except (dist.DistError, RuntimeError):
        raise TemporaryError(f"{step}: a rank was lost during the exchange; run the same command again") from None
