"""What a contender is told to do, and what it found; both travel between processes as JSON files."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

Precision = Literal["fp32", "mixed", "bf16"]
PRECISIONS: tuple[Precision, ...] = ("fp32", "mixed", "bf16")
BATCH_SIZES = (1, 8, 16)
PLAIN_BATCH = 8


@dataclass(frozen=True, slots=True)
class Task:
    """What one process is to measure.

    Attributes:
        model: As our command takes it; for the peers a Hugging Face folder.
        notes: JSON list of the texts, longest first.
        precision: ``fp32``, ``mixed`` (bf16 autocast), or ``bf16``.
        threads: Compute threads of a process.
        max_length: Positions of a window.
        prefix_id: Token before each note.
        outcome: Where the findings go; with several ranks, rank N's have ``.N`` behind the name.
        launched_at: ``time.monotonic()`` of the parent when it started the process.
        batch_size: Of the peers.
        build: Corpus that ours scores.
        run: Run folder of ours.
        dedup: Whether ours computes equal notes once.
        tile_tokens: Tokens of our tiles.
        compared: Whether the losses of the single notes are wanted.
    """

    model: str
    notes: str
    precision: Precision
    threads: int
    max_length: int
    prefix_id: int
    outcome: str
    launched_at: float
    batch_size: int = PLAIN_BATCH
    build: str = ""
    run: str = ""
    dedup: bool = False
    tile_tokens: int = 512
    compared: bool = True


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one process found.

    Attributes:
        seconds: From the first note to the last loss.
        num_tokens: Scored tokens.
        started, stopped: ``time.monotonic()`` of both ends.
        losses_nats: By note; empty where they are not compared.
        tokens: Scored tokens by note.
        versions: Of torch and transformers.
        figures: What else was seen, by name.
        is_out_of_memory: It did not fit, and nothing else here counts.
    """

    seconds: float = 0.0
    num_tokens: int = 0
    started: float = 0.0
    stopped: float = 0.0
    losses_nats: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    is_out_of_memory: bool = False

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.num_tokens / self.seconds


def write_task(task: Task, path: Path) -> None:
    """Leave a task where its process finds it."""
    path.write_text(json.dumps(asdict(task)), encoding="utf-8")


def read_task(path: Path) -> Task:
    """The task of this process."""
    return Task(**json.loads(path.read_text(encoding="utf-8")))


def write_outcome(outcome: Outcome, path: Path) -> None:
    """Leave findings where the parent looks."""
    path.write_text(json.dumps(asdict(outcome)), encoding="utf-8")


def read_outcome(path: Path) -> Outcome:
    """What a process found."""
    return Outcome(**json.loads(path.read_text(encoding="utf-8")))
