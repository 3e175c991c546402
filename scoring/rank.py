"""One process of a run, with its ways to speak to the others and to people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from schemas.access import Access
from schemas.audit_events import Action, Outcome
from schemas.audit_logs import rank_log
from scoring.assignment import RankIdentity
from scoring.status import StatusFile
from scoring.sync import ControlPlane

ItemT = TypeVar("ItemT")


@dataclass(slots=True)
class Rank:
    """One process of a run, with its ways to speak to the others and to people.

    Attributes:
        folder: Of the run.
        identity: Which process.
        plane: The other ranks.
        status: Its status file.
        access: What it may read.
        broken_shards: Shards that it left out, with what was found instead of what was sealed.
    """

    folder: Path
    identity: RankIdentity
    plane: ControlPlane
    status: StatusFile
    access: Access | None = None
    broken_shards: dict[str, str] = field(default_factory=dict)

    @property
    def leads(self) -> bool:
        """Rank 0 alone writes what there is once."""
        return self.identity.rank == 0

    def show_life(self) -> None:
        """Tell the other ranks and people that this one makes progress; cheap enough for every tile."""
        self.plane.beat()
        self.status.refresh()

    def shown_alive(self, items: Iterable[ItemT]) -> Iterator[ItemT]:
        """The items, with a sign of life before each."""
        for item in items:
            self.show_life()
            yield item

    def audited(self, action: Action, what: str, outcome: Outcome) -> None:
        """Note an event in the rank's log; without a principal nobody could be named."""
        if self.access is not None:
            rank_log(self.folder, self.identity.rank, self.access).append(action, what, outcome)
